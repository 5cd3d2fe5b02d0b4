//! One verb, one file.

pub(crate) mod demo;
pub(crate) mod sample_server;
pub(crate) mod verify;
pub(crate) mod wrap;
