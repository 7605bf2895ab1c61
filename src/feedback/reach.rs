//! Whose calls a refusal is about.

/// Whose calls a refusal is about: who has to wait; wider ones are greater.
///
/// ```
/// use outgate::feedback::{Feedback, Reach, Refusal};
///
/// let banned = Feedback::default().with_refusal(Refusal::Ban).with_reach(Reach::Upstream);
/// assert_eq!(banned.reach(), Some(Reach::Upstream));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reach {
    /// The calls of this route, method or object, made with this token.
    Route,
    /// All calls made with this token, by this user, application or account.
    Token,
    /// All calls to the upstream.
    Upstream,
}

impl Reach {
    /// The reach that a word of a reason speaks of, such as `method` or `tenant`.
    pub(super) fn of_word(word: &str) -> Option<Self> {
        match word {
            "route" | "method" | "endpoint" | "resource" | "object" | "issue" | "shared" | "service" => {
                Some(Self::Route)
            }
            "application" | "app" | "account" | "tenant" | "token" | "key" => Some(Self::Token),
            "ip" => Some(Self::Upstream),
            _ => None,
        }
    }
}
