//! A layer that forwards twice.

use countersign::call::{Call, Reply};
use countersign::gate::Next;

async fn forward_twice(first: Call, second: Call, next: Next) -> Reply {
    next.run(first).await;
    next.run(second).await
}

fn main() {}
