//! The program `countersign`.

fn main() {}
