//! The order of lines towards one writer, and what happens when it is slow or gone.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use countersign::outbox::{Outbox, QUEUED_BYTES_MAX, write_all_to};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::time::timeout;

const SOON: Duration = Duration::from_millis(50);

fn line(number: usize) -> Bytes {
    Bytes::from(format!("line {number}"))
}

fn text(numbers: impl IntoIterator<Item = usize>) -> String {
    numbers
        .into_iter()
        .map(|number| format!("line {number}\n"))
        .collect()
}

/// Counts the calls that a writer gets, and keeps what was written.
#[derive(Clone, Default)]
struct Counted {
    calls: Arc<AtomicUsize>,
    bytes: Arc<std::sync::Mutex<Vec<u8>>>,
}

impl AsyncWrite for Counted {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.bytes
            .lock()
            .expect("no test panics here")
            .extend_from_slice(bytes);
        std::task::Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn places_filled_in_reverse_leave_in_order() {
    let (outbox, queue) = Outbox::new(QUEUED_BYTES_MAX);
    let (writer, mut reader) = tokio::io::duplex(64);
    let task = tokio::spawn(write_all_to(queue, writer));
    let mut places: Vec<_> = (0..100).map(|_| outbox.place()).collect();
    outbox.push(line(100));
    while let Some(place) = places.pop() {
        let number = places.len();
        place.fill(line(number));
        tokio::task::yield_now().await;
    }
    outbox.close();
    let mut written = String::new();
    reader
        .read_to_string(&mut written)
        .await
        .expect("duplex does not fail");
    assert_eq!(written, text(0..=100));
    task.await
        .expect("it does not panic")
        .expect("it does not fail");
}

#[tokio::test]
async fn a_held_place_stops_what_is_behind_it_and_a_dropped_one_does_not() {
    let (outbox, queue) = Outbox::new(QUEUED_BYTES_MAX);
    let (writer, mut reader) = tokio::io::duplex(4096);
    let task = tokio::spawn(write_all_to(queue, writer));
    outbox.push(line(0));
    let place = outbox.place();
    outbox.push(line(1));
    let mut first = [0; 7];
    reader
        .read_exact(&mut first)
        .await
        .expect("the first line comes");
    assert!(timeout(SOON, reader.read_u8()).await.is_err());
    drop(place);
    // The last place is given up after the close: nothing more may be waited for then.
    let last = outbox.place();
    outbox.close();
    let mut second = [0; 7];
    reader
        .read_exact(&mut second)
        .await
        .expect("the second line comes");
    assert!(timeout(SOON, outbox.drained()).await.is_err());
    drop(last);
    timeout(SOON, outbox.drained())
        .await
        .expect("it is drained");
    task.await
        .expect("it does not panic")
        .expect("it does not fail");
    assert!(!outbox.is_broken());
}

#[tokio::test]
async fn a_line_can_be_taken_out_again_until_the_writer_has_it() {
    let (outbox, reader) = Outbox::new(QUEUED_BYTES_MAX);
    let queued: Vec<_> = (0..3)
        .map(|number| outbox.push_retractable(line(number)))
        .collect();
    let before = outbox.queued_bytes();
    assert!(outbox.retract(queued[1]));
    assert!(!outbox.retract(queued[1]));
    assert_eq!(outbox.queued_bytes(), before - line(1).len() - 1);

    let written = Counted::default();
    let writing = tokio::spawn(write_all_to(reader, written.clone()));
    outbox.drained().await;
    assert!(!outbox.retract(queued[0]) && !outbox.retract(queued[2]));
    let late = outbox.push_retractable(line(3));
    outbox.close();
    writing.await.unwrap().unwrap();
    assert!(!outbox.retract(late));
    assert!(!outbox.retract(outbox.push_retractable(line(4))));
    let bytes = written.bytes.lock().unwrap().clone();
    assert_eq!(String::from_utf8(bytes).unwrap(), text([0, 2, 3]));
}

#[tokio::test]
async fn a_slow_reader_closes_the_room_and_reading_opens_it() {
    let limit = 100_000;
    let (outbox, queue) = Outbox::new(limit);
    let (writer, mut reader) = tokio::io::duplex(1000);
    let task = tokio::spawn(write_all_to(queue, writer));
    let mut pushed = 0_usize;
    while timeout(SOON, outbox.room()).await.is_ok() {
        outbox.push(Bytes::from(vec![b'x'; 9_999]));
        pushed += 10_000;
        tokio::task::yield_now().await;
    }
    // To within one line.
    assert!(pushed.abs_diff(limit) <= 11_000, "{pushed}");
    assert!(outbox.queued_bytes().abs_diff(limit) <= 11_000);
    let mut taken = vec![0; pushed];
    let read = async { reader.read_exact(&mut taken).await };
    let (read, room) = tokio::join!(read, timeout(SOON * 20, outbox.room()));
    read.expect("all of it comes");
    room.expect("there is room again");
    timeout(SOON, outbox.drained())
        .await
        .expect("it is drained");
    assert_eq!(outbox.queued_bytes(), 0);
    drop(outbox);
    task.await
        .expect("it does not panic")
        .expect("it does not fail");
}

#[tokio::test]
async fn a_queue_of_empty_lines_is_bounded_by_more_than_their_newlines() {
    let (outbox, _queue) = Outbox::new(100_000);
    let mut pushed = 0;
    while timeout(Duration::ZERO, outbox.room()).await.is_ok() {
        outbox.push(Bytes::new());
        pushed += 1;
    }
    assert!(pushed < 10_000, "{pushed}");
}

#[tokio::test]
async fn a_broken_pipe_breaks_the_outbox_and_wakes_everyone() {
    let (outbox, queue) = Outbox::new(10);
    let (reader, writer) = std::io::pipe().expect("pipes can be made");
    let writer =
        tokio::net::unix::pipe::Sender::from_owned_fd(writer.into()).expect("it is a pipe");
    let place = outbox.place();
    outbox.push(Bytes::from_static(b"more than ten bytes"));
    let task = tokio::spawn(write_all_to(queue, writer));
    assert!(timeout(SOON, outbox.room()).await.is_err());
    drop(reader);
    let waiting = outbox.clone();
    let drained = tokio::spawn(async move { waiting.drained().await });
    drop(place);
    let error = task
        .await
        .expect("it does not panic")
        .expect_err("nobody reads");
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    drained.await.expect("it does not panic");
    timeout(SOON, outbox.room())
        .await
        .expect("a broken outbox has room");
    assert!(outbox.is_broken());
    outbox.push(line(1));
    outbox.place().fill(line(2));
    drop(outbox.place());
    assert_eq!(outbox.lost_lines(), 3);
    assert_eq!(outbox.queued_bytes(), 0);
}

#[tokio::test]
async fn a_writer_that_is_dropped_breaks_the_outbox() {
    let (outbox, queue) = Outbox::new(10);
    let place = outbox.place();
    outbox.push(line(1));
    drop(queue);
    assert!(outbox.is_broken());
    place.fill(line(0));
    assert_eq!(outbox.lost_lines(), 2);
}

#[tokio::test]
async fn ten_thousand_queued_lines_go_out_in_few_writes() {
    let (outbox, queue) = Outbox::new(QUEUED_BYTES_MAX);
    (0..10_000).for_each(|number| outbox.push(line(number)));
    outbox.close();
    let writer = Counted::default();
    write_all_to(queue, writer.clone())
        .await
        .expect("it does not fail");
    let written = writer.bytes.lock().expect("no test panics here");
    assert_eq!(*written, text(0..10_000).as_bytes());
    // 1,024 lines per batch.
    assert_eq!(writer.calls.load(Ordering::Relaxed), 10);
}

#[tokio::test]
async fn long_and_short_lines_mix_in_order() {
    let (outbox, queue) = Outbox::new(QUEUED_BYTES_MAX);
    let (reader, writer) = std::io::pipe().expect("pipes can be made");
    let writer =
        tokio::net::unix::pipe::Sender::from_owned_fd(writer.into()).expect("it is a pipe");
    let mut expected = Vec::new();
    for number in 0..60_usize {
        let length = [0, 1, 200, 16_384, 16_385, 70_000, 1_000_000][number % 7];
        let fill = b'a' + u8::try_from(number % 26).expect("it is below 26");
        expected.extend(std::iter::repeat_n(fill, length));
        expected.push(b'\n');
        outbox.push(Bytes::from(vec![fill; length]));
    }
    outbox.close();
    let reading = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut reader = reader;
        reader.read_to_end(&mut bytes).map(|_| bytes)
    });
    write_all_to(queue, writer).await.expect("it does not fail");
    let bytes = reading
        .join()
        .expect("it does not panic")
        .expect("it is read");
    assert!(bytes == expected);
}

#[tokio::test]
async fn lines_from_several_threads_all_arrive_each_in_its_order() {
    let (outbox, queue) = Outbox::new(QUEUED_BYTES_MAX);
    let writer = Counted::default();
    let consumed = writer.clone();
    let consumer = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime
            .expect("runtimes can be made")
            .block_on(write_all_to(queue, consumed))
    });
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let outbox = outbox.clone();
            std::thread::spawn(move || {
                for number in 0..5_000 {
                    let line = Bytes::from(format!("{thread} {number}"));
                    match number % 3 {
                        0 => outbox.push(line),
                        1 => outbox.place().fill(line),
                        _ => {
                            drop(outbox.place());
                            outbox.push(line);
                        }
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("it does not panic");
    }
    outbox.drained().await;
    drop(outbox);
    consumer
        .join()
        .expect("it does not panic")
        .expect("it does not fail");
    let written = writer.bytes.lock().expect("no test panics here");
    let written = std::str::from_utf8(&written).expect("it is ASCII");
    for thread in 0..4 {
        let own = written
            .lines()
            .filter(|line| line.starts_with(&format!("{thread} ")));
        assert!(own.eq((0..5_000).map(|number| format!("{thread} {number}"))));
    }
}
