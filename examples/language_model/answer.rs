//! What a model answers, and how many tokens that takes: it alone knows before it is over.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::limits::LARGEST;

/// What is asked for: calls of one kind use about as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// 5 to 20 % of the most.
    Title,
    /// 10 to 30 % of the most; one in ten, up to all of it.
    Summary,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Title => "title",
            Self::Summary => "summary",
        }
    }

    /// Of a question. Two in three want a summary.
    pub(crate) const fn of(question: u64) -> Self {
        if question.is_multiple_of(3) { Self::Title } else { Self::Summary }
    }
}

/// The tokens that the answer to a question takes.
pub(crate) fn tokens(question: u64) -> u32 {
    let mut rng = fastrand::Rng::with_seed(question);
    match Kind::of(question) {
        Kind::Title => rng.u32(LARGEST / 20..=LARGEST / 5),
        Kind::Summary if rng.u32(..10) == 0 => rng.u32(LARGEST / 10..=LARGEST),
        Kind::Summary => rng.u32(LARGEST / 10..=LARGEST * 3 / 10),
    }
}

/// The path of a question.
pub(crate) fn path(question: u64) -> String {
    format!("/{}/{question}", Kind::of(question).name())
}

/// The question of a path.
pub(crate) fn question(path: &str) -> u64 {
    path.rsplit('/').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// An answer as server-sent events: some text, and in the last event what it used.
pub(crate) fn events(question: u64) -> String {
    let mut events = String::new();
    for word in ["It", " depends", "."] {
        // Writing to a String cannot fail.
        let _ = write!(events, "data: {}\n\n", json!({ "text": word }));
    }
    let _ = write!(events, "data: {}\n\n", json!({ "usage": { "total_tokens": tokens(question) } }));
    events
}

/// The tokens that an event says were used.
pub(crate) fn used(line: &str) -> Option<u64> {
    let event: Value = serde_json::from_str(line.strip_prefix("data:")?).ok()?;
    event.get("usage")?.get("total_tokens")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_event_says_what_an_answer_used_and_no_answer_uses_more_than_the_most() {
        for number in 0..1_000 {
            assert_eq!(question(&path(number)), number);
            let events = events(number);
            let used: Vec<_> = events.lines().filter_map(used).collect();
            assert_eq!(used, [u64::from(tokens(number))]);
            assert!(events.ends_with("}\n\n") && tokens(number) <= LARGEST);
        }
        assert_eq!(used("data: {\"usage\":null}"), None);
    }
}
