//! A permit whose line is changed after the decision.

use bytes::Bytes;
use countersign::recorder::Permit;

fn change(permit: &mut Permit, line: Bytes) {
    permit.line = line;
}

fn main() {}
