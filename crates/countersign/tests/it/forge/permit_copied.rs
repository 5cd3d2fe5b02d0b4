//! A second permit, made of a first one.

use countersign::recorder::Permit;

fn copy(permit: &Permit) -> Permit {
    permit.clone()
}

fn main() {}
