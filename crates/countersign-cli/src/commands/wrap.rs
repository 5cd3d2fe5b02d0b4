//! `countersign wrap`: one stdio server, in the place where the client had it.

use std::future::pending;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use countersign::call::Failure;
use countersign::descriptor::{Input, Output};
use countersign::gate::Gate;
use countersign::lines::Lines;
use countersign::message::LINE_BYTES_MAX;
use countersign::outbox::{self, Outbox, QUEUED_BYTES_MAX};
use countersign::process::{self, Spec};
use countersign::recorder::Recorder;
use countersign::seed::{self, Seed};
use countersign::serve::audit::Audit;
use countersign::serve::stdio::{self, Client, Session};
use countersign::upstream::child::{ChildUpstream, Config, Graces};
use countersign::{clock, decision, stderr};
use countersign_log::hex;
use countersign_log::journal::{Journal, LOCK_WAIT, Limits, Opened, Opening};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::USAGE;
use crate::args::Wrap;
use crate::keyring::{self, Plan, Wanted};

/// How long a client is waited for that is to be told why we cannot start.
const FIRST_REQUEST_WAIT: Duration = Duration::from_secs(1);
/// From SIGTERM to our end: SDKs kill two seconds after it.
const TERM_DRAIN: Duration = Duration::from_millis(1000);
/// Of that, what writing the last outcomes and answers may take.
const TERM_FLUSH: Duration = Duration::from_millis(300);
/// What the last outcomes may take when nobody presses: a journal that is being opened is first opened,
/// so that none is left half made.
const LAST_OUTCOMES_WAIT: Duration = Duration::from_secs(2);
/// How long a server may take to end after the client has closed its input.
const GRACES: Graces = Graces {
    close: Duration::from_secs(2),
    terminate: Duration::from_secs(2),
};
/// The same when we were told to end.
const TERM_GRACES: Graces = Graces {
    close: Duration::from_millis(50),
    terminate: Duration::from_millis(200),
};
/// How long our last words on stderr may take.
const STDERR_WAIT: Duration = Duration::from_millis(100);

/// Runs the command.
pub(crate) fn run(args: Wrap, seed: Option<Seed>) -> ExitCode {
    let code = match prepare(args, seed) {
        Ok(start) => in_runtime(wrap(start)).unwrap_or(ExitCode::from(USAGE)),
        Err(why) => refuse(&why),
    };
    stderr::settle(STDERR_WAIT);
    code
}

/// Says why there is no start: on stderr and, if it asks soon, to the client.
pub(crate) fn refuse(why: &str) -> ExitCode {
    stderr::say(format_args!("{why}"));
    in_runtime(tell_client(why));
    stderr::settle(STDERR_WAIT);
    ExitCode::from(USAGE)
}

async fn tell_client(why: &str) {
    let (Ok(input), Ok(output)) = (Input::stdin(), Output::stdout()) else {
        return;
    };
    let (outbox, reader) = Outbox::new(QUEUED_BYTES_MAX);
    answer_first(&mut Lines::new(input, LINE_BYTES_MAX), &outbox, why).await;
    outbox.close();
    // A client that does not read is not waited for either.
    let _ = tokio::time::timeout(FIRST_REQUEST_WAIT, outbox::write_all_to(reader, output)).await;
}

/// Tells `why` to a client that asks within the time; who does not, has stderr.
async fn answer_first(lines: &mut Lines<Input>, outbox: &Outbox, why: &str) {
    let refused = tokio::time::timeout(FIRST_REQUEST_WAIT, stdio::refuse_first(lines, why)).await;
    if let Ok(Ok(Some(line))) = refused {
        outbox.push(line);
    }
}

fn in_runtime<T>(work: impl Future<Output = T>) -> Option<T> {
    // One thread: waking another costs more than everything that is done for a call.
    match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => {
            let done = runtime.block_on(work);
            // A read of stdin by a thread cannot be ended; nobody waits for it.
            runtime.shutdown_background();
            Some(done)
        }
        Err(error) => {
            stderr::say(format_args!("no runtime: {error}"));
            None
        }
    }
}

/// Everything that is found out before anything is started.
struct Start {
    args: Wrap,
    plan: Plan,
    spec: Spec,
    session_seed: [u8; 32],
}

fn prepare(args: Wrap, seed: Option<Seed>) -> Result<Start, String> {
    seed::forbid_dumps().map_err(|error| format!("cannot protect the key in memory: {error}"))?;
    let (program, arguments) = args
        .command
        .split_first()
        .ok_or("no command was given behind `--`")?;
    process::resolve(program).map_err(|error| error.to_string())?;
    let session_seed = keyring::random()?;
    let run_id = run_id(&session_seed);
    let plan = keyring::plan(Wanted {
        name: &args.name,
        journal: args.journal.as_deref(),
        seed_file: args.seed_file.as_deref(),
        seed,
        unsealed: args.unsealed,
        run_id: &run_id,
    })?;
    let spec = Spec {
        program: program.clone(),
        arguments: arguments.to_vec(),
        environment_removed: seed::environment_names_to_remove(),
        shim: std::env::current_exe().ok(),
    };
    Ok(Start {
        args,
        plan,
        spec,
        session_seed,
    })
}

/// Begins with the time, so that names sort by it. The session's key is public, and unlike any other.
fn run_id(session_seed: &[u8; 32]) -> String {
    let session = countersign_log::keys::Identity::from_seed(session_seed).public();
    format!("{:013}-{}", clock::now_ms(), hex::encode(&session.0[..4]))
}

/// How it came to an end.
enum End {
    ClientClosed,
    Told,
    ServerGone(i32),
    NoJournal(String),
}

async fn wrap(start: Start) -> ExitCode {
    let Start {
        args,
        plan,
        spec,
        session_seed,
    } = start;
    let (Ok(mut terminate), Ok(mut interrupt)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        return fail("signals cannot be received").await;
    };
    let (outbox, reader) = Outbox::new(QUEUED_BYTES_MAX);
    let client = Arc::new(Client::new(outbox.clone()));
    let config = Config {
        spec,
        max_restarts: u32::try_from(args.max_restarts).unwrap_or(0),
    };
    let upstream = match ChildUpstream::start(config, Arc::clone(&client) as _) {
        Ok(upstream) => upstream,
        Err(error) => return fail(&error.to_string()).await,
    };
    let recorder = Recorder::new(&args.name, args.fsync.into());
    let mut opening = OpeningJournal::begin(plan, session_seed, args.accept_head, recorder.clone());
    // Nothing is read from the client before the journal is ours; while it is being read, all but
    // governed calls passes.
    let locked = tokio::select! {
        locked = &mut opening.locked => locked.unwrap_or(Ok(())),
        () = told(&mut terminate, &mut interrupt) => {
            upstream.shut_down(TERM_GRACES).await;
            return ExitCode::SUCCESS;
        }
    };
    if let Err(why) = locked {
        upstream.shut_down(TERM_GRACES).await;
        return fail(&why).await;
    }
    let (input, output) = match (Input::stdin(), Output::stdout()) {
        (Ok(input), Ok(output)) => (input, output),
        (Err(error), _) | (_, Err(error)) => {
            upstream.shut_down(TERM_GRACES).await;
            recorder.discard();
            return fail(&format!("stdin and stdout must be open: {error}")).await;
        }
    };
    let writer = tokio::spawn(outbox::write_all_to(reader, output));
    let gate = Gate::new(
        Vec::new(),
        Box::new(decision::allow_all),
        recorder.clone(),
        Arc::new(upstream.clone()),
        args.timeout,
    );
    let audit = Arc::new(Audit::new(&args.name, recorder.clone(), upstream.clone()));
    let session = Session {
        client: Arc::clone(&client),
        gate,
        upstream: upstream.clone(),
        audit,
        within: args.timeout,
    };

    let mut lines = Lines::new(input, LINE_BYTES_MAX);
    let end = tokio::select! {
        read = session.run(&mut lines) => {
            if let Err(error) = read {
                stderr::say(format_args!("stdin cannot be read: {error}"));
            }
            End::ClientClosed
        }
        () = told(&mut terminate, &mut interrupt) => End::Told,
        code = upstream.ended() => End::ServerGone(code),
        why = &mut opening.failed => End::NoJournal(why),
    };
    let settled = async {
        // What waits for a journal that is being read is owed a record too, and no start is left half done.
        match recorder.opened().await {
            Ok(()) => session.settled().await,
            Err(_) => pending().await,
        }
    };
    let end = drain(
        end,
        &session,
        &recorder,
        settled,
        opening.failed,
        &mut terminate,
        &mut interrupt,
    )
    .await;
    if let Some(why) = no_start(&end, &upstream)
        && !client.has_asked()
    {
        answer_first(&mut lines, &outbox, &why).await;
    }
    finish(
        end,
        &session,
        &recorder,
        &outbox,
        writer,
        &mut terminate,
        &mut interrupt,
    )
    .await
}

/// Why a client that has not asked for anything yet will get nothing.
fn no_start(end: &End, upstream: &ChildUpstream) -> Option<String> {
    match end {
        End::NoJournal(why) => Some(why.clone()),
        End::ServerGone(code) => Some(upstream.never_started().unwrap_or_else(|| {
            format!("the server ended with code {code} and is not started again")
        })),
        End::ClientClosed | End::Told => None,
    }
}

/// A failure before the client was listened to.
async fn fail(why: &str) -> ExitCode {
    stderr::say(format_args!("{why}"));
    tell_client(why).await;
    ExitCode::from(USAGE)
}

/// The journal, being opened on a thread of its own: reading a long one takes a while.
struct OpeningJournal {
    /// The journal is ours, or why it will never be.
    locked: oneshot::Receiver<Result<(), String>>,
    /// Resolves only if it could not be opened after all.
    failed: Pin<Box<dyn Future<Output = String>>>,
}

impl OpeningJournal {
    fn begin(
        plan: Plan,
        session_seed: [u8; 32],
        accept_head: Option<countersign_log::tree::TreeHead>,
        recorder: Recorder,
    ) -> Self {
        let (tell_locked, locked) = oneshot::channel();
        let opened = tokio::task::spawn_blocking(move || {
            let tell = std::cell::Cell::new(Some(tell_locked));
            let outcome = open(plan, session_seed, accept_head, &recorder, &|| {
                // Whoever started us is there until we are done.
                tell.take().map(|tell| tell.send(Ok(())));
            });
            if let Err(why) = &outcome {
                recorder.give_up(why.clone());
                tell.take().map(|tell| tell.send(Err(why.clone())));
            }
            outcome
        });
        let failed = Box::pin(async {
            match opened.await {
                Ok(Ok(())) => pending().await,
                Ok(Err(why)) => why,
                Err(error) => error.to_string(),
            }
        });
        Self { locked, failed }
    }
}

fn open(
    plan: Plan,
    session_seed: [u8; 32],
    accept_head: Option<countersign_log::tree::TreeHead>,
    recorder: &Recorder,
    locked: &dyn Fn(),
) -> Result<(), String> {
    let (journal, opened) = Journal::open(Opening {
        path: &plan.path,
        seal: plan.seal,
        session_seed,
        now_ms: clock::now_ms(),
        key_head: plan.key_head.as_deref(),
        accept_head,
        lock_wait: LOCK_WAIT,
        locked: Some(locked),
        limits: Limits::default(),
    })
    .map_err(|error| error.to_string())?;
    report(&plan.path, &opened);
    recorder.open(journal, &opened.open_intents)
}

/// What the start found that a person should know.
fn report(path: &Path, opened: &Opened) {
    for warning in &opened.warnings {
        stderr::say(format_args!("journal {}: {warning}", path.display()));
    }
    if opened.dropped_lines > 0 {
        stderr::say(format_args!(
            "journal {}: a line that a crash had torn was cut off its end",
            path.display()
        ));
    }
    if !opened.open_intents.is_empty() {
        stderr::say(format_args!(
            "journal {}: calls of an earlier run have no outcome, and are now recorded as lost",
            path.display()
        ));
    }
}

async fn told(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Lets everything that was accepted come to its end, as far as there is time.
async fn drain(
    end: End,
    session: &Session,
    recorder: &Recorder,
    settled: impl Future<Output = ()>,
    mut no_journal: Pin<Box<dyn Future<Output = String>>>,
    terminate: &mut Signal,
    interrupt: &mut Signal,
) -> End {
    tokio::pin!(settled);
    let end = match end {
        End::ClientClosed => {
            session.client_closed();
            tokio::select! {
                () = &mut settled => End::ClientClosed,
                why = &mut no_journal => End::NoJournal(why),
                () = told(terminate, interrupt) => End::Told,
                code = session.upstream.ended() => End::ServerGone(code),
            }
        }
        end => end,
    };
    let end = match end {
        // What does not end within the time is ended below.
        End::Told => tokio::select! {
            () = settled => End::Told,
            why = no_journal => End::NoJournal(why),
            () = tokio::time::sleep(TERM_DRAIN) => End::Told,
        },
        end => end,
    };
    session.upstream.give_up(&match &end {
        End::NoJournal(why) => Failure::NoStart(why.clone()),
        _ => Failure::ShuttingDown,
    });
    // The outcomes of what was just ended.
    let wait = match &end {
        End::Told => TERM_FLUSH,
        _ => LAST_OUTCOMES_WAIT,
    };
    let last = async {
        // Those that wait for a journal which is not to be were told why.
        let _ = recorder.opened().await;
        session.settled().await;
    };
    // Whatever is open after that is told as lost by the next start.
    let _ = tokio::time::timeout(wait, last).await;
    end
}

/// Closes the journal first, since it is what must not be lost; then the answers; then the server.
async fn finish(
    end: End,
    session: &Session,
    recorder: &Recorder,
    outbox: &Outbox,
    writer: tokio::task::JoinHandle<std::io::Result<()>>,
    terminate: &mut Signal,
    interrupt: &mut Signal,
) -> ExitCode {
    let never_started = session.upstream.never_started();
    let closed = if never_started.is_some() {
        recorder.discard();
        Ok(())
    } else {
        recorder.close()
    };
    if let Err(why) = &closed {
        stderr::say(format_args!("the journal was not closed well: {why}"));
    }
    outbox.close();
    if let End::ClientClosed = end {
        // A client that does not read holds nobody up for longer than it may take the server to end.
        let _ = tokio::time::timeout(GRACES.close, writer).await;
        let ending = session.upstream.shut_down(GRACES);
        tokio::pin!(ending);
        tokio::select! {
            () = &mut ending => {}
            () = told(terminate, interrupt) => {
                session.upstream.hurry();
                ending.await;
            }
        }
    } else {
        let _ = tokio::time::timeout(TERM_FLUSH, writer).await;
        session.upstream.shut_down(TERM_GRACES).await;
    }
    match end {
        _ if never_started.is_some() => ExitCode::from(USAGE),
        End::NoJournal(why) => {
            stderr::say(format_args!("{why}"));
            ExitCode::from(USAGE)
        }
        // A code that is none of a process's (a signal's, by the reference) is 1.
        End::ServerGone(code) => u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from),
        End::ClientClosed | End::Told if closed.is_err() => ExitCode::FAILURE,
        End::ClientClosed | End::Told => ExitCode::SUCCESS,
    }
}
