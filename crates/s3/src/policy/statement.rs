//! One compiled statement and whether it applies to a request.

use super::{
    AccessRequest, Effect, Need,
    actions::ActionSet,
    condition::Condition,
    pattern::{Pattern, Subject},
    principal::Principals,
};

/// A statement: it applies when all its parts do.
#[derive(Debug, Clone)]
pub(super) struct Statement {
    pub(super) effect: Effect,
    pub(super) principals: Principals,
    pub(super) actions: ActionSet,
    pub(super) resources: Resources,
    pub(super) conditions: Vec<Condition>,
}

/// The buckets and objects that a statement is about.
#[derive(Debug, Clone)]
pub(super) enum Resources {
    /// These.
    Only(Vec<Pattern>),
    /// All but these.
    AllBut(Vec<Pattern>),
}

impl Statement {
    /// Whether it applies; the cheapest parts are asked first.
    pub(super) fn applies(&self, request: &AccessRequest<'_>) -> bool {
        self.actions.contains(request.need.action)
            && self.principals.include(request.context.user)
            && self.resources.include(self.effect, request)
            && self
                .conditions
                .iter()
                .all(|condition| condition.holds(self.effect, request))
    }
}

impl Resources {
    fn include(&self, effect: Effect, request: &AccessRequest<'_>) -> bool {
        let (patterns, wanted) = match self {
            Self::Only(patterns) => (patterns, true),
            Self::AllBut(patterns) => (patterns, false),
        };
        let subject = subject(request.need);
        let mut listed = false;
        for pattern in patterns {
            match (pattern.matches(subject, request), effect) {
                (Ok(matches), _) => listed |= matches,
                // A variable without a value names nothing; an allow does not rest on that.
                (Err(_), Effect::Deny) => {}
                (Err(_), Effect::Allow) => return false,
            }
        }
        listed == wanted
    }
}

/// What of the ARN follows `arn:aws:s3:::`; the service itself is only in `*`.
fn subject(need: &Need) -> Subject<'_> {
    match (&need.bucket, &need.key) {
        (None, _) => Subject::Text("*"),
        (Some(bucket), None) => Subject::Text(bucket.as_str()),
        (Some(bucket), Some(key)) => Subject::Joined(bucket.as_str(), key.as_str()),
    }
}
