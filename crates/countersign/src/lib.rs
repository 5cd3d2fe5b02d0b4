//! An audit-and-governance layer for MCP servers.
//!
//! Three rings stand between a client and its servers: a frame that records an outcome whatever
//! happens, the embedder's layers, and a core that judges a call, writes the decision down, and
//! only then forwards exactly what was judged.

pub mod descriptor;
pub mod lines;
pub mod message;
pub mod outbox;
pub mod process;
pub mod seed;
pub mod stderr;
