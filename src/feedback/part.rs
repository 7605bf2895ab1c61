//! Whether a quota is that of a part of the calls by its name, or of a part of the window by its numbers.

use std::time::Duration;

use super::quota::Quota;
use super::span;
use super::unit::Unit;

/// Windows are no shorter, and resets no more exact.
const SECOND: Duration = Duration::from_secs(1);

impl Quota {
    /// Whether it is of a part of the calls for which a limit allows so many units: it is called so, and is one of several, or tells less than
    /// half as many.
    ///
    /// A quota may have any name where it is the only one, and be smaller than is configured.
    pub(crate) fn is_of_part(&self, units: u64) -> bool {
        let is_small = || self.limit.max(self.sum()).is_some_and(|told| told < units.div_ceil(2));
        self.part && (self.resource || is_small())
    }

    /// Whether it may be of a shorter window than that in which a limit allows so many units: it says no window, tells less than half as many, and
    /// of no reset that is later than its part of the window.
    ///
    /// Of a quota that is smaller than is configured the reset is later most of the time.
    pub(crate) fn may_be_of_shorter_window(&self, units: u64, window: Duration) -> bool {
        let Some(told) = self.limit.max(self.sum()).map(|told| told.max(self.remaining.unwrap_or_default())) else {
            return false;
        };
        let reset = self.reset_after().unwrap_or_default().saturating_sub(SECOND);
        let is_near = reset.as_micros() * u128::from(units) <= window.as_micros() * u128::from(told);
        self.window.is_none() && window > SECOND && told < units.div_ceil(2) && is_near
    }

    /// Whether it allows so many units.
    pub(crate) fn allows(&self, units: u64) -> bool {
        self.limit == Some(units) || self.sum() == Some(units)
    }

    /// What is used and left: GitLab tells the limit by the minute, and these by its window.
    fn sum(&self) -> Option<u64> {
        self.used.zip(self.remaining).map(|(used, left)| used.saturating_add(left))
    }
}

/// Whether a name may be that of a part of the calls, such as `search` or `incremental-exports`: others may have quotas of their own.
///
/// A name that only says what is counted, how, or in which window is no such name: `default`, `requests`, `burst`, `5-in-1min`.
pub(super) fn is_part(name: &str) -> bool {
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let mut words = words(name).peekable();
    // Numbers alone are a name that somebody gave.
    words.peek().is_some() && (words.clone().all(|word| is_number(&word)) || !words.all(|word| says_how(&word)))
}

/// Whether a word says what is counted, how, or in which window.
fn says_how(word: &str) -> bool {
    let window = word.strip_prefix("per").filter(|rest| !rest.is_empty()).unwrap_or(word);
    let is_known = matches!(
        word,
        "default"
            | "core"
            | "main"
            | "global"
            | "call"
            | "calls"
            | "request"
            | "requests"
            | "rate"
            | "limit"
            | "quota"
            | "burst"
            | "sustained"
            | "fixed"
            | "sliding"
            | "rolling"
            | "window"
            | "in"
            | "per"
    );
    is_known || Unit::of_name(word) != Unit::Calls || span::window(window).is_some()
}

fn words(name: &str) -> impl Iterator<Item = String> + Clone {
    name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_ascii_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_a_part_unless_it_says_only_what_is_counted_and_how() {
        let how = [
            "default",
            "core",
            "requests",
            "tokens",
            "burst",
            "daily",
            "minute",
            "24hour",
            "permin",
            "fixed window",
            "5-in-1min",
            "10-in-1sec",
            "8-in-2days",
            "",
            "-",
        ];
        let parts = [
            "search",
            "graphql",
            "incremental-exports",
            "80c17d2f203122d936070c88c8d10f33",
            "1234",
            "sovereignty",
            "throttle_authenticated_web",
            "esi-error",
            "per-app",
            "peruser",
            "subscription-reads",
            "input-tokens",
            "unified-5h",
            "api",
        ];
        let wrong: Vec<_> = how.into_iter().filter(|name| is_part(name)).collect();
        assert_eq!(wrong, [""; 0]);
        let wrong: Vec<_> = parts.into_iter().filter(|name| !is_part(name)).collect();
        assert_eq!(wrong, [""; 0]);
    }
}
