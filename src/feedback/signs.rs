//! What a response says about its refusal, apart from the numbers.

use std::time::Duration;

use super::grpc::Grpc;
use super::quota::stricter;
use super::reach::Reach;
use super::refusal::Refusal;

/// What the names of the headers begin with by which Kubernetes tells who refused.
const KUBERNETES: &str = "x-kubernetes-pf-";

/// What a response says about its refusal, apart from the numbers.
#[derive(Debug, Default)]
pub(super) struct Signs {
    /// `Retry-After` in milliseconds, which is the finer one.
    pub(super) retry_after_millis: Option<Duration>,
    pub(super) retry_after: Option<Duration>,
    pub(super) grpc: Grpc,
    /// There was a `Retry-After`, readable or not.
    pub(super) has_retry_after: bool,
    pub(super) should_retry: Option<bool>,
    pub(super) near_limit: bool,
    pub(super) cost: Option<u64>,
    /// A type, scope or reason was given.
    pub(super) explained: bool,
    pub(super) reach: Option<Reach>,
    /// Whose calls are meant, where all of them are: `global`, or of an application.
    pub(super) global: Option<Reach>,
    /// The cause that is named outright.
    pub(super) cause: Option<Refusal>,
    /// An error type was given, and whether every one that was given names throttling.
    throttling: Option<bool>,
}

impl Signs {
    /// The wait that was asked for outright.
    pub(super) fn told_wait(&self) -> Option<Duration> {
        // A gRPC server that refused for another reason asks one call to wait, and not all.
        // Of two the one that asks for anything.
        let millis = self.retry_after_millis.filter(|wait| !wait.is_zero() || self.retry_after.is_none());
        millis.or(self.retry_after).or(self.grpc.pushback.filter(|_| self.grpc.is_refused()))
    }

    /// Whether they ask to wait, however badly. To wait for nothing asks for nothing: some say it in every response.
    pub(super) fn ask_to_wait(&self) -> bool {
        self.has_retry_after && self.told_wait() != Some(Duration::ZERO)
    }

    /// Whether an error type names throttling, so that the call was not executed.
    pub(super) fn names_throttling(&self) -> bool {
        self.throttling == Some(true)
    }

    /// The cause that is named outright, by an error type or a reason.
    pub(super) fn named_cause(&self) -> Option<Refusal> {
        self.cause.or(self.names_throttling().then_some(Refusal::Quota))
    }

    /// Takes the words of `RateLimit-Reason`, `X-Rate-Limit-Type` and their like, where `global` means everybody.
    pub(super) fn explain(&mut self, reason: &str) {
        self.explain_with(reason, Reach::Upstream);
    }

    /// The same of an upstream that limits each account, as Stripe, where `global` means all of its calls.
    pub(super) fn explain_of_account(&mut self, reason: &str) {
        self.explain_with(reason, Reach::Token);
    }

    fn explain_with(&mut self, reason: &str, global: Reach) {
        for word in words(reason) {
            let global = match &*word {
                "global" => Some(global),
                // Riot counts all methods and regions together.
                "application" | "app" => Some(Reach::Token),
                _ => None,
            };
            self.explained = true;
            self.global = stricter(self.global, global, Reach::max);
            self.reach = stricter(self.reach, global.or_else(|| Reach::of_word(&word)), Reach::max);
            self.cause = self.cause.or(cause_of(&word));
        }
    }

    /// Takes Discord's scope, where `user` is this caller's own quota of one route, and `global` that of all routes.
    pub(super) fn scope(&mut self, scope: &str) {
        self.explain_of_account(scope);
        if scope.eq_ignore_ascii_case("user") {
            self.reach = stricter(self.reach, Some(Reach::Route), Reach::max);
        }
    }

    /// Takes whether all routes are meant.
    pub(super) fn global(&mut self, text: &str) {
        if is_true(text) {
            self.explain_of_account("global");
        }
    }

    /// Whether a header that is about something else may give something away.
    pub(super) fn may_tell(name: &str) -> bool {
        let named = matches!(
            name,
            "x-should-retry" | "grpc-status" | "grpc-message" | "x-amzn-errortype" | "x-amzn-error-type"
        );
        named || name.starts_with(KUBERNETES)
    }

    /// Takes what a header that is about something else may give away; whether it is one of those.
    pub(super) fn other(&mut self, name: &str, text: &str) -> bool {
        match name {
            "x-should-retry" => self.should_retry = Some(is_true(text)),
            "grpc-status" => self.grpc.status(text),
            "grpc-message" => self.grpc.message(text),
            "x-amzn-errortype" | "x-amzn-error-type" => {
                self.throttling = Some(self.throttling.unwrap_or(true) && is_throttling(text));
            }
            _ if name.starts_with(KUBERNETES) => self.cause = self.cause.or(Some(Refusal::Seats)),
            _ => return false,
        }
        true
    }
}

fn cause_of(word: &str) -> Option<Refusal> {
    match word {
        "shared" => Some(Refusal::Shared),
        "service" => Some(Refusal::Service),
        "concurrency" | "concurrent" => Some(Refusal::Seats),
        "lock" | "locked" => Some(Refusal::Lock),
        _ => None,
    }
}

/// Whether a text stands for yes.
pub(super) fn is_true(text: &str) -> bool {
    text.eq_ignore_ascii_case("true") || text == "1"
}

/// Whether every error type of a list names throttling: `com.example#ThrottlingException:http://example.com/`, where the
/// name lies between a namespace and a link.
fn is_throttling(error_types: &str) -> bool {
    const NAMES: [&str; 4] = ["throttl", "toomanyrequests", "requestlimitexceeded", "slowdown"];
    error_types.split(',').all(|error_type| {
        let name = error_type.split_once(':').map_or(error_type, |(name, _)| name);
        let name = name.rsplit_once('#').map_or(name, |(_, name)| name).to_ascii_lowercase();
        NAMES.iter().any(|word| name.contains(word))
    })
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_ascii_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_tells_whose_calls_are_meant() {
        let cases = [
            ("application", Some(Reach::Token)),
            ("method", Some(Reach::Route)),
            ("jira-quota-tenant-based", Some(Reach::Token)),
            ("jira-quota-global-based", Some(Reach::Upstream)),
            ("jira-per-issue-on-write", Some(Reach::Route)),
            ("endpoint-concurrency", Some(Reach::Route)),
            ("because", None),
        ];
        for (reason, reach) in cases {
            let mut signs = Signs::default();
            signs.explain(reason);
            assert_eq!((signs.reach, signs.explained), (reach, true), "{reason}");
        }
    }

    #[test]
    fn throttling_is_named_by_the_name_of_every_error_type_and_by_nothing_around_it() {
        let cases: [(&[&str], bool); 9] = [
            (&["ThrottlingException"], true),
            (&["ThrottlingException:http://internal.example.com/"], true),
            (&["com.example.v1#RequestThrottled"], true),
            (&["TooManyRequestsException", "SlowDown"], true),
            (&["ValidationException:http://throttling.example.com/"], false),
            (&["com.throttling#InternalFailure"], false),
            (&["ThrottlingException", "InternalFailure"], false),
            (&["InternalFailure, ThrottlingException"], false),
            (&[""], false),
        ];
        for (lines, named) in cases {
            let mut signs = Signs::default();
            assert!(lines.iter().all(|line| signs.other("x-amzn-errortype", line)));
            assert_eq!(signs.names_throttling(), named, "{lines:?}");
        }
        assert!(!Signs::default().names_throttling());
    }

    #[test]
    fn a_header_gives_something_away_just_when_it_may() {
        let names = [
            "x-should-retry",
            "grpc-status",
            "grpc-message",
            "x-amzn-errortype",
            "x-amzn-error-type",
            "x-kubernetes-pf-flowschema-uid",
            "content-length",
            "x-amzn-requestid",
            "stripe-should-retry",
            "date",
            "",
        ];
        for name in names {
            assert_eq!(Signs::may_tell(name), Signs::default().other(name, "1"), "{name}");
        }
        assert_eq!(names.iter().filter(|name| Signs::may_tell(name)).count(), 6);
    }

    #[test]
    fn of_several_reasons_the_widest_holds() {
        let mut signs = Signs::default();
        signs.scope("user");
        assert_eq!(signs.reach, Some(Reach::Route));
        signs.global("false");
        assert_eq!(signs.reach, Some(Reach::Route));
        assert_eq!(signs.global, None);
        signs.global("true");
        assert_eq!((signs.reach, signs.global), (Some(Reach::Token), Some(Reach::Token)));
        signs.scope("ip");
        assert_eq!(signs.reach, Some(Reach::Upstream));
    }

    #[test]
    fn an_empty_reason_explains_nothing() {
        let mut signs = Signs::default();
        signs.explain(" - ");
        assert!(!signs.explained);
    }
}
