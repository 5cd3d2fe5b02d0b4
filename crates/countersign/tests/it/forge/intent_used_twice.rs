//! An intent that gets two outcomes.

use countersign::call::Reply;
use countersign::recorder::{Intent, Recorder};

async fn answer_twice(recorder: &Recorder, intent: Intent, first: Reply, second: Reply) {
    recorder.outcome(intent, first).await;
    recorder.outcome(intent, second).await;
}

fn main() {}
