//! Lines out of byte streams that arrive in pieces of any size.

use std::io::{BufRead, BufReader, Write};
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use countersign::lines::{EXCERPT, LINES_AT_ONCE_MAX, Line, Lines};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};

use crate::program::shim;

const MEGABYTE: usize = 1024 * 1024;

/// A small generator with a fixed seed (xorshift): tests must repeat.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits fit") % sides
    }
}

/// Delivers its bytes in pieces of random sizes, and says that it is not ready in between.
struct Pieces {
    bytes: Bytes,
    dice: Dice,
    piece_max: usize,
}

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.dice.roll(4) == 0 {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let piece_max = self.piece_max;
        let wanted = 1 + self.dice.roll(piece_max);
        let count = wanted.min(self.bytes.len()).min(buffer.remaining());
        buffer.put_slice(&self.bytes.split_to(count));
        Poll::Ready(Ok(()))
    }
}

async fn all(reader: impl AsyncRead + Unpin, limit: usize) -> Vec<Line> {
    let mut lines = Lines::new(reader, limit);
    let mut found = Vec::new();
    while lines
        .read(&mut found)
        .await
        .expect("these readers do not fail")
    {}
    assert!(!lines.read(&mut found).await.expect("the end stays the end"));
    found
}

/// What `all` must find, computed the simple way.
fn expected(input: &[u8], limit: usize) -> Vec<Line> {
    let mut parts: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
    let last = parts.pop().expect("split gives at least one part");
    let line = |part: &[u8], whole: fn(Bytes) -> Line| {
        if part.len() <= limit {
            return whole(Bytes::copy_from_slice(part));
        }
        Line::TooLong {
            head: Bytes::copy_from_slice(&part[..EXCERPT.min(part.len())]),
            tail: Bytes::copy_from_slice(&part[part.len().saturating_sub(EXCERPT)..]),
            bytes: part.len() as u64,
        }
    };
    let mut lines: Vec<Line> = parts
        .into_iter()
        .map(|part| line(part, Line::Whole))
        .collect();
    if !last.is_empty() {
        lines.push(line(last, Line::Last));
    }
    lines
}

#[tokio::test]
async fn any_cutting_of_the_input_gives_the_same_lines() {
    for case in 1..=200 {
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15 ^ case);
        let mut input = Vec::new();
        for _ in 0..dice.roll(40) {
            // Mostly short lines, some around the limit, some far above it.
            let length = match dice.roll(10) {
                0 => 0,
                1 => 19_990 + dice.roll(20),
                2 => dice.roll(300_000),
                _ => dice.roll(300),
            };
            input.extend((0..length).map(|_| [b'a', b'\r', 0, 0xE2, 0x80, 0xA8][dice.roll(6)]));
            input.push(b'\n');
        }
        if dice.roll(2) == 0 {
            input.pop();
        }
        let piece_max = [1, 7, 4096, 65_536, 1_000_000][dice.roll(5)];
        let piece_max = if input.len() > 100_000 {
            piece_max.max(512)
        } else {
            piece_max
        };
        let limit = 20_000;
        let expected = expected(&input, limit);
        let reader = Pieces {
            bytes: input.into(),
            dice,
            piece_max,
        };
        assert_eq!(all(reader, limit).await, expected, "case {case}");
    }
}

#[tokio::test]
async fn only_0x0a_ends_a_line() {
    let input = "a\r\nb\u{2028}c\0d\u{85}\x0b\x0c\n\n\rlast".as_bytes();
    let whole = |text: &'static str| Line::Whole(Bytes::from_static(text.as_bytes()));
    assert_eq!(
        all(input, 100).await,
        [
            whole("a\r"),
            whole("b\u{2028}c\0d\u{85}\x0b\x0c"),
            whole(""),
            Line::Last(Bytes::from_static(b"\rlast")),
        ]
    );
}

#[tokio::test]
async fn an_empty_input_has_no_line() {
    assert_eq!(all(&b""[..], 100).await, []);
}

#[tokio::test]
async fn a_line_of_the_limit_passes_and_one_more_byte_does_not() {
    for (length, passes) in [(99_999, true), (100_000, true), (100_001, false)] {
        for end in ["\n", ""] {
            let input = format!("{}{end}", "x".repeat(length));
            let found = all(input.as_bytes(), 100_000).await;
            assert_eq!(
                !matches!(found[0], Line::TooLong { .. }),
                passes,
                "{length} {end:?}"
            );
            assert_eq!(found.len(), 1);
        }
    }
}

#[tokio::test]
async fn everything_buffered_is_handed_out_at_once() {
    let (mut writer, reader) = tokio::io::duplex(MEGABYTE);
    writer
        .write_all(b"one\ntwo\nthr")
        .await
        .expect("it has room");
    let mut lines = Lines::new(reader, 100);
    let mut found = Vec::new();
    assert!(lines.read(&mut found).await.expect("duplex does not fail"));
    assert_eq!(found.len(), 2);
}

#[tokio::test]
async fn a_flood_of_lines_is_handed_out_in_bounded_lists_without_more_input() {
    let (mut writer, reader) = tokio::io::duplex(MEGABYTE);
    let text: String = (0..5_000).map(|number| format!("{number}\n")).collect();
    writer
        .write_all(text.as_bytes())
        .await
        .expect("it has room");
    let mut lines = Lines::new(reader, 100);
    let mut all = Vec::new();
    let mut found = Vec::new();
    while all.len() < 5_000 {
        let read = tokio::time::timeout(Duration::from_secs(5), lines.read(&mut found)).await;
        assert!(read.expect("they are here").expect("duplex does not fail"));
        assert!(found.len() <= LINES_AT_ONCE_MAX);
        all.append(&mut found);
    }
    let expected = (0..5_000).map(|number| Line::Whole(Bytes::from(number.to_string())));
    assert!(all.into_iter().eq(expected));
}

#[tokio::test]
async fn a_read_that_is_given_up_loses_nothing() {
    let (mut writer, reader) = tokio::io::duplex(MEGABYTE);
    let mut lines = Lines::new(reader, 100);
    let mut found = Vec::new();
    for piece in ["ha", "lf", " a line"] {
        writer
            .write_all(piece.as_bytes())
            .await
            .expect("it has room");
        let read = tokio::time::timeout(Duration::from_millis(5), lines.read(&mut found));
        assert!(read.await.is_err());
    }
    writer.write_all(b"\n").await.expect("it has room");
    assert!(lines.read(&mut found).await.expect("duplex does not fail"));
    assert_eq!(found, [Line::Whole(Bytes::from_static(b"half a line"))]);
}

#[tokio::test]
async fn a_long_line_is_read_in_linear_time() {
    let mut seconds = Vec::new();
    for length in [8 * MEGABYTE, 64 * MEGABYTE] {
        let mut input = vec![b'x'; length];
        input.push(b'\n');
        let reader = Pieces {
            bytes: input.into(),
            dice: Dice(7),
            piece_max: 65_536,
        };
        let start = std::time::Instant::now();
        let found = all(reader, 64 * MEGABYTE).await;
        seconds.push(start.elapsed().as_secs_f64());
        assert!(matches!(&found[..], [Line::Whole(bytes)] if bytes.len() == length));
    }
    // Eight times the length; quadratic would be 64 times. The rest is room for a busy machine.
    assert!(seconds[1] < 30.0 * seconds[0] + 0.2, "{seconds:?}");
}

/// Seen from outside, since tests may share one process.
#[cfg(target_os = "linux")]
#[test]
fn an_overlong_line_is_skipped_in_flat_memory() {
    let mut child = Command::new(shim())
        .args(["echo", "1000000"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the example program starts");
    let mut input = child.stdin.take().expect("it is piped");
    let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
    let piece = vec![b'x'; MEGABYTE];
    for _ in 0..512 {
        input.write_all(&piece).expect("it reads");
    }
    input.write_all(b"\nnext\n").expect("it reads");
    let mut echoed = String::new();
    output.read_line(&mut echoed).expect("the length comes");
    output.read_line(&mut echoed).expect("the next line comes");
    assert_eq!(echoed, format!("{}\nnext\n", 512 * MEGABYTE));
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
    let status = status.expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|text| text.split_whitespace().next()?.parse::<usize>().ok());
    assert!(
        peak.is_some_and(|kilobytes| kilobytes < 16 * 1024),
        "{peak:?} kB"
    );
    drop(input);
    child.wait().expect("it can be waited for");
}

#[tokio::test]
async fn a_short_line_does_not_keep_the_buffer_of_a_long_one() {
    let mut input = b"early\n".repeat(3);
    input.extend(std::iter::repeat_n(b'x', 8 * MEGABYTE));
    input.extend_from_slice(b"\nlate\nlast");
    let mut found = all(&input[..], 64 * MEGABYTE).await;
    let long = found.remove(3);
    assert!(matches!(long, Line::Whole(bytes) if bytes.len() == 8 * MEGABYTE));
    let mut short = Vec::new();
    for line in found.split_off(3) {
        match line {
            Line::Whole(bytes) | Line::Last(bytes) => short.push(bytes),
            Line::TooLong { .. } => unreachable!("no line is above the limit"),
        }
    }
    assert_eq!(short, ["late", "last"]);
    for bytes in short {
        // A line that is the only owner of its memory shows how much that is.
        let owned = bytes.try_into_mut().expect("nobody else holds it");
        assert!(owned.capacity() < MEGABYTE, "{}", owned.capacity());
    }
}
