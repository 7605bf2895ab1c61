//! What a quota counts.

/// What a quota counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// Calls, one each: what every quota counts unless the upstream says otherwise.
    #[default]
    Calls,
    /// Tokens of a language model.
    Tokens,
    /// Points, credits or complexity: a call costs as many as the upstream says.
    Points,
    /// Bytes of content.
    Bytes,
    /// Calls in flight at once: a place is free again when a call ends, not when a window does.
    Seats,
    /// Something else.
    Other,
}

impl Unit {
    /// Whether every call spends it, so that none is served once it is spent: tokens and bytes run out for some calls only, and
    /// places in flight are taken by the call itself.
    pub(crate) const fn is_spent_by_every_call(self) -> bool {
        matches!(self, Self::Calls | Self::Points)
    }

    /// The unit that the parameter `qu` of a `RateLimit-Policy` names.
    pub(super) fn of_policy(qu: &str) -> Self {
        match qu {
            "requests" => Self::Calls,
            "content-bytes" | "bytes" => Self::Bytes,
            "concurrent-requests" => Self::Seats,
            "tokens" => Self::Tokens,
            _ => Self::Other,
        }
    }

    /// The unit that the name of a quota speaks of, such as `input-tokens` or `api-units`.
    pub(super) fn of_name(name: &str) -> Self {
        let unit = |word| match word {
            "token" | "tokens" => Some(Self::Tokens),
            "unit" | "units" | "point" | "points" | "credit" | "credits" | "complexity" | "cost" => Some(Self::Points),
            "byte" | "bytes" => Some(Self::Bytes),
            "concurrent" | "concurrency" => Some(Self::Seats),
            "time" => Some(Self::Other),
            _ => None,
        };
        // `api-token` says whose calls they are.
        let whose = |before: &str, word: &str| before == "api" && word == "token";
        let words = std::iter::once("").chain(name.split('-')).zip(name.split('-'));
        words.filter(|(before, word)| !whose(before, word)).find_map(|(_, word)| unit(word)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_counts_calls_unless_its_name_says_otherwise() {
        let cases = [
            ("", Unit::Calls),
            ("requests", Unit::Calls),
            ("subscription-reads", Unit::Calls),
            ("project-tokens", Unit::Tokens),
            ("api-units", Unit::Points),
            ("concurrent-requests", Unit::Seats),
            ("api-token", Unit::Calls),
            ("api-tokens", Unit::Tokens),
            ("time-xrm-requests", Unit::Other),
        ];
        for (name, unit) in cases {
            assert_eq!(Unit::of_name(name), unit, "{name}");
        }
        for (qu, unit) in [("requests", Unit::Calls), ("content-bytes", Unit::Bytes), ("widgets", Unit::Other)] {
            assert_eq!(Unit::of_policy(qu), unit, "{qu}");
        }
    }
}
