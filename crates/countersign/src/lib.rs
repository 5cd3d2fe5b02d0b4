//! An audit-and-governance layer for MCP servers.
//!
//! Three rings stand between a client and its servers: a frame that records an outcome whatever
//! happens, the embedder's layers, and a core that judges a call, writes the decision down, and
//! only then forwards exactly what was judged.
//!
//! A layer is an async function. It may change a call, answer it, refuse it, or hand it on; whatever
//! it does, the call leaves its intent and its outcome in the journal:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use countersign::call::{Call, Reply};
//! use countersign::decision::allow_all;
//! use countersign::gate::{Gate, Next};
//! use countersign::recorder::Recorder;
//! use countersign::upstream::Upstream;
//!
//! async fn no_deletes(call: Call, next: Next) -> Reply {
//!     if call.name().as_deref() == Some("delete_file") {
//!         return Reply::error(-32000, "files are not deleted here");
//!     }
//!     next.run(call).await
//! }
//!
//! fn gate(recorder: Recorder, server: Arc<dyn Upstream>) -> Gate {
//!     let within = Duration::from_secs(60);
//!     Gate::new(vec![Box::new(no_deletes)], Box::new(allow_all), recorder, server, within)
//! }
//! ```

#[cfg(not(unix))]
compile_error!(
    "countersign runs on Linux and macOS: it needs process groups, and pipes that a reactor can watch"
);

pub mod call;
pub mod clock;
pub mod decision;
pub mod descriptor;
pub mod gate;
pub mod lines;
pub mod message;
pub mod outbox;
pub mod process;
pub mod recorder;
pub mod seed;
pub mod serve;
pub mod stderr;
pub mod upstream;

/// A future on the heap: what crosses a seam between modules.
pub type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

/// 32 octets from the system's random source.
///
/// # Errors
/// The system has none to give.
pub fn random() -> Result<[u8; 32], getrandom::Error> {
    let mut octets = [0; 32];
    getrandom::fill(&mut octets)?;
    Ok(octets)
}
