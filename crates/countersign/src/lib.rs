//! An audit-and-governance layer for MCP servers.
//!
//! Three rings stand between a client and its servers: a frame that records an outcome whatever
//! happens, the embedder's layers, and a core that judges a call, writes the decision down, and
//! only then forwards exactly what was judged.

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
