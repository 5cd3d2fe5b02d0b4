//! What is to become of a call, and why: a value that travels, never a `bool`.

use std::borrow::Cow;

use crate::call::{Call, Refusal};

/// Whether a call may go up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Allow,
    /// It may not, for this reason.
    Refuse(Refusal),
}

/// A verdict with the rule that gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What is to become of the call.
    pub verdict: Verdict,
    /// The rule that decided, for the person who asks why.
    pub rule: Cow<'static, str>,
}

/// Decides a call as it comes out of the layers. Pure: no I/O, no clock of its own.
pub type Judge = dyn Fn(&Call) -> Decision + Send + Sync;

/// Lets everything pass: what judges where there is no policy.
pub fn allow_all(_call: &Call) -> Decision {
    Decision {
        verdict: Verdict::Allow,
        rule: Cow::Borrowed("default"),
    }
}
