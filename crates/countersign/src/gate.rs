//! The three rings around a call: a frame that records, the embedder's layers, and a core that judges,
//! records and forwards.
//!
//! The frame closes every call with an outcome: when the client hangs up, a layer panics or hangs, or
//! the upstream dies. Layers sit between frame and core, so no order of layers switches recording off.
//! The core runs on its own: whoever stops waiting for it does not stop it.

use std::future::Future;
use std::ops::DerefMut;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{SetOnce, oneshot, watch};

use crate::BoxFuture;
use crate::call::{Call, Cancel, Era, Failure, Refusal, Reply};
use crate::decision::{Decision, Judge, Verdict};
use crate::message::{Id, Message};
use crate::outbox::Place;
use crate::recorder::{Admission, Hold, Intent, Permit, Recorder};
use crate::upstream::{ToClient, Upstream};

/// One layer. Any `async fn(Call, Next) -> Reply` is one.
pub trait Layer: Send + Sync {
    /// May change the call, answer it, refuse it, or hand it to `next`, and may change the reply.
    fn handle(&self, call: Call, next: Next) -> BoxFuture<Reply>;
}

impl<F, Fut> Layer for F
where
    F: Fn(Call, Next) -> Fut + Send + Sync,
    Fut: Future<Output = Reply> + Send + 'static,
{
    fn handle(&self, call: Call, next: Next) -> BoxFuture<Reply> {
        Box::pin(self(call, next))
    }
}

/// The way through the rings. Cheap to clone.
#[derive(Clone)]
pub struct Gate {
    rings: Arc<Rings>,
}

struct Rings {
    layers: Vec<Box<dyn Layer>>,
    judge: Box<Judge>,
    recorder: Recorder,
    upstream: Arc<dyn Upstream>,
    /// How long an upstream may take for a call; layers get as much again, each way.
    within: Duration,
    /// Refusals that are not on record yet.
    unsettled: watch::Sender<usize>,
}

impl Gate {
    /// Puts the rings together. The first layer sees a call first. `within` bounds the wait for the
    /// upstream from forwarding on, and the time that layers may take before and after.
    pub fn new(
        layers: Vec<Box<dyn Layer>>,
        judge: Box<Judge>,
        recorder: Recorder,
        upstream: Arc<dyn Upstream>,
        within: Duration,
    ) -> Self {
        Self {
            rings: Arc::new(Rings {
                layers,
                judge,
                recorder,
                upstream,
                within,
                unsettled: watch::Sender::new(0),
            }),
        }
    }

    /// Waits until every refusal so far is on record; one without an id is no request in flight.
    pub async fn settled(&self) {
        let mut unsettled = self.rings.unsettled.subscribe();
        // The sender lives in `self`, so this cannot fail.
        let _ = unsettled.wait_for(|count| *count == 0).await;
    }

    /// The life of one call. It goes on to its outcome even when nobody waits for this future.
    pub fn handle(&self, call: Call, to_client: Arc<dyn ToClient>) -> BoxFuture<Reply> {
        let (tell, told) = oneshot::channel();
        let era = call.era();
        let rings = Arc::clone(&self.rings);
        let life = async move {
            let reply = Contained(pin!(rings.frame(call, to_client))).await;
            // Nobody waits any more: the outcome is recorded all the same.
            let _ = tell.send(reply);
        };
        drive(Box::pin(life));
        Box::pin(async move {
            told.await
                .unwrap_or_else(|_| Reply::failure(&Failure::Broken, era))
        })
    }

    /// Begins to admit calls that arrived together: their intents are written with one `write`.
    pub fn admissions(&self) -> Admissions {
        Admissions {
            rings: Arc::clone(&self.rings),
            held: Some(self.rings.recorder.hold()),
            waiting: Vec::new(),
        }
    }
}

/// Calls that arrived together, in their order.
pub struct Admissions {
    rings: Arc<Rings>,
    held: Option<Hold>,
    waiting: Vec<BoxFuture<()>>,
}

impl Admissions {
    /// Takes a call in; `to_client` gets its answer.
    pub fn call(&mut self, call: Call, to_client: Arc<dyn ToClient>) {
        let rings = Arc::clone(&self.rings);
        let id = answerable(call.received());
        self.begin(id, to_client.clone(), async move {
            rings.frame(call, to_client).await
        });
    }

    /// Records a call that is refused before it is judged, and tells the client.
    pub fn refuse(&mut self, received: Message, refusal: Refusal, to_client: Arc<dyn ToClient>) {
        let unsettled = Unsettled::begin(&self.rings);
        let id = answerable(&received);
        self.begin(id, to_client, async move {
            let failure = Failure::Refused(refusal);
            let reply = Reply::failure(&failure, Era::of(&received));
            unsettled.0.recorder.whole(&received, reply).await
        });
    }

    /// As [`Self::refuse`], where one answer for many has gone out already.
    pub fn refuse_silently(&mut self, received: Message, refusal: Refusal) {
        let unsettled = Unsettled::begin(&self.rings);
        self.hold(Box::pin(async move {
            let failure = Failure::Refused(refusal);
            let reply = Reply::silent(&failure, Era::of(&received));
            unsettled.0.recorder.whole(&received, reply).await;
        }));
    }

    fn begin(
        &mut self,
        id: Option<Id>,
        to_client: Arc<dyn ToClient>,
        life: impl Future<Output = Reply> + Send + 'static,
    ) {
        self.hold(Box::pin(async move {
            let reply = Contained(pin!(life)).await;
            if let Some(id) = id {
                to_client.answer(&id, reply);
            }
        }));
    }

    fn hold(&mut self, mut life: BoxFuture<()>) {
        // Only here is the order of arrival known: each call writes its intent before the next one.
        if step(&mut life).is_pending() {
            self.waiting.push(life);
        }
    }
}

impl Drop for Admissions {
    /// Writes the intents, and forwards each call whose turn it now is, in order.
    fn drop(&mut self) {
        self.held = None;
        self.waiting.drain(..).for_each(drive);
    }
}

/// A refusal that is not on record yet.
struct Unsettled(Arc<Rings>);

impl Unsettled {
    fn begin(rings: &Arc<Rings>) -> Self {
        rings.unsettled.send_modify(|count| *count += 1);
        Self(Arc::clone(rings))
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        self.0.unsettled.send_modify(|count| *count -= 1);
    }
}

/// The id to answer under; a notification has none. `null` is one, which JSON-RPC 2.0 section 5 gives
/// to errors about requests that asked badly.
fn answerable(received: &Message) -> Option<Id> {
    received.id().cloned()
}

/// Takes a life as far as it goes without waiting, then leaves it to the runtime.
pub(crate) fn drive(mut life: BoxFuture<()>) {
    if step(&mut life).is_pending() {
        tokio::spawn(life);
    }
}

/// One step, outside the reader's own budget of work between two yields.
fn step(life: &mut BoxFuture<()>) -> Poll<()> {
    Pin::new(&mut tokio::task::unconstrained(life)).poll(&mut Context::from_waker(Waker::noop()))
}

/// A life that ends with an error instead of a panic, so that a fault of ours costs one call.
struct Contained<P>(Pin<P>);

impl<P: DerefMut<Target: Future<Output = Reply>> + Unpin> Future for Contained<P> {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        let life = self.0.as_mut();
        std::panic::catch_unwind(AssertUnwindSafe(|| life.poll(context)))
            .unwrap_or_else(|_| Poll::Ready(Reply::failure(&Failure::Broken, Era::Modern)))
    }
}

/// What the core did with a call.
struct Judged {
    reply: Reply,
    /// Missing where not even the intent could be recorded.
    intent: Option<Intent>,
}

impl Rings {
    async fn frame(self: Arc<Self>, call: Call, to_client: Arc<dyn ToClient>) -> Reply {
        if !self.layers.is_empty() {
            return self.layered_frame(call, to_client).await;
        }
        let judged = self.judge_and_forward(call, to_client).await;
        match judged.intent {
            Some(intent) => self.recorder.outcome(intent, judged.reply).await,
            None => judged.reply,
        }
    }

    async fn layered_frame(self: Arc<Self>, call: Call, to_client: Arc<dyn ToClient>) -> Reply {
        let received = call.received().clone();
        let cancel = call.cancel().clone();
        let era = call.era();
        let passage = Arc::new(Passage::of(&call));
        let next = Next {
            rings: Arc::clone(&self),
            passage: Arc::clone(&passage),
            to_client,
            at: 0,
        };
        let mut layers = tokio::spawn(async move { next.run(call).await });

        let mut ended = tokio::select! {
            ended = &mut layers => Some(ended),
            () = cancel.client() => None,
            () = tokio::time::sleep(self.within) => None,
        };
        let judged = passage.close();
        if judged {
            // The core ends by itself: the upstream's time limit and the client's cancel bound it.
            passage.core_ended.wait().await;
        }
        if ended.is_none() && judged && !cancel.is_by_client() {
            ended = tokio::time::timeout(self.within, &mut layers).await.ok();
        }
        layers.abort();
        let reply = match ended {
            _ if cancel.is_by_client() => Reply::failure(&Failure::Cancelled, era),
            Some(Ok(reply)) => reply,
            Some(Err(_panicked)) => Reply::failure(&Failure::LayerPanicked, era),
            None => Reply::failure(&Failure::timed_out(self.within), era),
        };
        let kept = passage
            .kept
            .lock()
            .expect("no code that holds it panics")
            .take();
        match kept {
            Some(Kept { intent, place }) => {
                let reply = self.recorder.outcome(intent, reply).await;
                reply.in_place(place)
            }
            // Not judged, or judged and not recorded: intent and outcome are still owed, together.
            None => self.recorder.whole(&received, reply).await,
        }
    }

    async fn judge_and_forward(&self, call: Call, to_client: Arc<dyn ToClient>) -> Judged {
        let era = call.era();
        let decision = self.decide(&call);
        match self.recorder.admit(call, &decision, self.within).await {
            Ok(Admission::Permit(permit, intent)) => {
                let reply = match permit.cancel().now() {
                    // Taken back while its intent was being written: never sent.
                    Some(by) => Reply::failure(&Failure::cancelled(&by), era),
                    None => self.forward(permit, to_client).await,
                };
                Judged {
                    reply,
                    intent: Some(intent),
                }
            }
            Ok(Admission::Refused(refusal, intent)) => Judged {
                reply: Reply::failure(&Failure::Refused(refusal), era),
                intent: Some(intent),
            },
            Err(failure) => Judged {
                reply: Reply::failure(&failure, era),
                intent: None,
            },
        }
    }

    /// An upstream that panics leaves an intent, and that still gets its outcome.
    async fn forward(&self, permit: Permit, to_client: Arc<dyn ToClient>) -> Reply {
        let sent =
            std::panic::catch_unwind(AssertUnwindSafe(|| self.upstream.send(permit, to_client)));
        match sent {
            Ok(reply) => Contained(reply).await,
            Err(_panicked) => Reply::failure(&Failure::Broken, Era::Modern),
        }
    }

    /// What cannot be judged is refused before anyone is asked. So is what the judge fails on.
    fn decide(&self, call: &Call) -> Decision {
        match call.ambiguity() {
            Some(ambiguity) => Decision {
                verdict: Verdict::Refuse(Refusal::Malformed(ambiguity.to_string())),
                rule: "ambiguous".into(),
            },
            None => std::panic::catch_unwind(AssertUnwindSafe(|| (self.judge)(call)))
                .unwrap_or_else(|_panicked| Decision {
                    verdict: Verdict::Refuse(Refusal::Unjudged),
                    rule: "judge-failed".into(),
                }),
        }
    }
}

/// Whether the core may still be entered, by which call, and how it went there.
struct Passage {
    received: Bytes,
    cancel: Cancel,
    stage: Mutex<Stage>,
    kept: Mutex<Option<Kept>>,
    core_ended: SetOnce<()>,
}

/// What the core leaves to the frame, out of the reach of layers.
struct Kept {
    intent: Intent,
    /// The answer's place in the client's queue: a layer that kept the reply would stop the queue with it.
    place: Option<Place>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    InCore,
    Closed,
}

impl Passage {
    fn of(call: &Call) -> Self {
        Self {
            received: call.received().raw().clone(),
            cancel: call.cancel().clone(),
            stage: Mutex::default(),
            kept: Mutex::default(),
            core_ended: SetOnce::new(),
        }
    }

    /// Whether the core may be entered; only the first to ask may.
    fn enter(&self) -> bool {
        let mut stage = self.stage.lock().expect("no code that holds it panics");
        let open = *stage == Stage::Open;
        if open {
            *stage = Stage::InCore;
        }
        open
    }

    /// Nobody enters from now on. Whether someone has.
    fn close(&self) -> bool {
        let mut stage = self.stage.lock().expect("no code that holds it panics");
        std::mem::replace(&mut *stage, Stage::Closed) == Stage::InCore
    }
}

/// Says that the core has ended, also when it breaks.
struct CoreEnds(Arc<Passage>);

impl Drop for CoreEnds {
    fn drop(&mut self) {
        // One core, one end.
        let _ = self.0.core_ended.set(());
    }
}

/// The rest of the way. Not `Clone`: one arrival, at most one forward.
pub struct Next {
    rings: Arc<Rings>,
    passage: Arc<Passage>,
    to_client: Arc<dyn ToClient>,
    at: usize,
}

impl Next {
    /// Hands the call on to the next layer, or to the core. Dropping the future after the call was
    /// forwarded sends a cancel upstream. After the frame has closed the call nothing is forwarded.
    pub fn run(self, call: Call) -> BoxFuture<Reply> {
        let rings = Arc::clone(&self.rings);
        match rings.layers.get(self.at) {
            Some(layer) => layer.handle(
                call,
                Self {
                    at: self.at + 1,
                    ..self
                },
            ),
            None => self.enter_core(call),
        }
    }

    fn enter_core(self, call: Call) -> BoxFuture<Reply> {
        let era = call.era();
        let failed =
            |failure| Box::pin(async move { Reply::failure(&failure, era) }) as BoxFuture<Reply>;
        if !call.is_made_from(&self.passage.received, &self.passage.cancel) {
            // Its intent would say that the client has sent what it never sent.
            return failed(Failure::AnotherCall);
        }
        if !self.passage.enter() {
            return failed(Failure::Revoked);
        }
        let (mut tell, told) = oneshot::channel();
        let Self {
            rings,
            passage,
            to_client,
            ..
        } = self;
        tokio::spawn(async move {
            let ends = CoreEnds(Arc::clone(&passage));
            let cancel = call.cancel().clone();
            let core = rings.judge_and_forward(call, to_client);
            tokio::pin!(core);
            let mut judged = tokio::select! {
                judged = &mut core => judged,
                () = tell.closed() => {
                    cancel.by_us();
                    core.await
                }
            };
            let place = judged.reply.take_place();
            let kept = judged.intent.map(|intent| Kept { intent, place });
            *passage.kept.lock().expect("no code that holds it panics") = kept;
            // Whoever waited may be gone; the frame then records what the client gets.
            let _ = tell.send(judged.reply);
            drop(ends);
        });
        Box::pin(async move {
            told.await
                .unwrap_or_else(|_| Reply::failure(&Failure::Broken, era))
        })
    }
}

#[cfg(test)]
mod tests;
