//! A permit that is sent, and sent again.

use std::sync::Arc;

use countersign::recorder::Permit;
use countersign::upstream::{ToClient, Upstream};

async fn send_twice(upstream: &dyn Upstream, permit: Permit, client: Arc<dyn ToClient>) {
    upstream.send(permit, Arc::clone(&client)).await;
    upstream.send(permit, client).await;
}

fn main() {}
