//! The one place where time is read. Everything else is told what time it is.

use std::time::{SystemTime, UNIX_EPOCH};

/// Unix milliseconds by the machine's clock; 0 for a clock set before 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The monotonic clock, for deadlines. In tests it stands still until it is moved.
pub fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}
