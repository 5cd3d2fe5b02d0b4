//! One test binary: drives the program as a client would and reads the journal as an auditor would.

mod answers;
mod audit_tools;
mod auditor;
mod client;
mod ending;
#[cfg(target_os = "linux")]
mod full_disk;
mod peers;
mod program;
mod proxy;
mod reference;
mod refused;
mod restart;
mod start;
mod storage;
mod structure;
mod time;
mod transparency;
