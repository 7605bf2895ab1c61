//! What the name of a header says: whose quota it is, which one, and what is told of it.
//!
//! `X-RateLimit-Limit-Minute`, `anthropic-ratelimit-tokens-reset`, `x-app-limit-24hour-remaining`: an owner, a mark,
//! and then, in any order, one word for the field and the rest for the quota.

use super::span;
use super::time_unit::TimeUnit;

/// The meaning of a header's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// The words in front of the mark, without `x`.
    pub(super) owner: String,
    /// The words behind the mark that are not the field.
    pub(super) quota: String,
    pub(super) field: Field,
    /// The unit that the name gives for a number.
    pub(super) unit: Option<TimeUnit>,
    /// The name promises a time from now.
    pub(super) relative: bool,
}

/// What a header tells of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Field {
    /// The word alone, `RateLimit` or `X-Rate-Limit`: a limit or a structured field.
    Bare,
    /// `RateLimit-Policy`.
    Policy,
    /// Used and limit in one value.
    Call,
    /// Several fields in one value, or nothing about quotas at all.
    Whole,
    Label,
    /// The label of GitHub's quotas, of which each is one of several.
    Resource,
    Reason,
    Scope,
    Global,
    Cost,
    Limit,
    Fill,
    Window,
    Utilization,
    Used,
    Remaining,
    Reset,
    NearLimit,
}

/// The meaning of `name`, which is in lower case; `None` if it has no word of a limit in it.
pub(super) fn parse(name: &str) -> Option<Name> {
    // Most headers are about something else: they are not taken apart.
    if !name.as_bytes().windows(5).any(|word| matches!(word, b"limit" | b"quota")) {
        return None;
    }
    let words = words(name);
    let words = words.strip_prefix(&["x"]).unwrap_or(&words);
    let mark = Mark::find(words)?;
    let (owner, suffix) = (words.get(..mark.start)?, words.get(mark.end..)?);
    let mut parsed =
        Name { owner: owner.join("-"), quota: String::new(), field: Field::Whole, unit: None, relative: false };
    parsed.read(suffix);
    parsed.settle(suffix, mark.rate)
}

/// The words of a name, which is ASCII.
fn words(name: &str) -> Vec<&str> {
    let (mut words, mut start) = (Vec::with_capacity(8), 0);
    for (at, byte) in name.bytes().enumerate() {
        if byte == b'-' || byte == b'_' {
            words.extend(name.get(start..at));
            start = at + 1;
        }
    }
    words.extend(name.get(start..));
    words
}

/// Where the words of a name that mean a limit stand.
struct Mark {
    start: usize,
    end: usize,
    /// They say that it is a limit of a rate; others may be limits of anything.
    rate: bool,
}

impl Mark {
    fn find(words: &[&str]) -> Option<Self> {
        let pair = |at: usize| (words.get(at).copied(), words.get(at + 1).copied());
        for start in 0..words.len() {
            match pair(start) {
                (Some("ratelimit" | "ratelimits" | "ratelimited"), _) => {
                    return Some(Self { start, end: start + 1, rate: true });
                }
                (Some("rate"), Some("limit" | "limits" | "limited")) => {
                    return Some(Self { start, end: start + 2, rate: true });
                }
                _ => {}
            }
        }
        let start = words.iter().position(|word| matches!(*word, "limit" | "quota"))?;
        Some(Self { start, end: start + 1, rate: false })
    }
}

impl Name {
    /// Takes the field and its unit out of the suffix; the rest is the quota.
    fn read(&mut self, suffix: &[&str]) {
        let field = suffix.iter().filter_map(|word| field_of(word)).max();
        let timed = matches!(field, Some(Field::Reset | Field::Window));
        let mut rest = Vec::new();
        for word in suffix {
            match *word {
                "ms" | "msec" | "millis" | "milliseconds" if timed => self.unit = Some(TimeUnit::Millis),
                "after" | "in" if timed => self.relative = true,
                "seconds" | "secs" | "sec" | "at" | "time" | "date" | "timestamp" | "epoch" | "unix" | "utc"
                    if timed => {}
                "rate" if field.is_some() => {}
                word if field.is_some() && field_of(word) == field => {}
                word => rest.push(word),
            }
        }
        self.quota = rest.join("-");
        self.field = field.unwrap_or(Field::Whole);
    }

    /// Decides on what the words mean together.
    fn settle(mut self, suffix: &[&str], rate: bool) -> Option<Self> {
        let alone = self.quota.is_empty();
        self.field = match self.field {
            // These words name a quota unless they are all that is said.
            Field::Policy
            | Field::Label
            | Field::Resource
            | Field::Reason
            | Field::Scope
            | Field::Global
            | Field::Cost
                if !alone =>
            {
                Field::Whole
            }
            Field::Policy | Field::Label | Field::Resource | Field::Reason | Field::Scope | Field::Global if !rate => {
                return None;
            }
            Field::Whole if suffix.is_empty() && rate => Field::Bare,
            Field::Whole if suffix.is_empty() => call(&self.owner)?,
            // HubSpot's `-daily` is the limit of the day.
            Field::Whole if span::named(&self.quota).is_some() => Field::Limit,
            Field::Whole if !rate && suffix != ["info"] => return None,
            // Amazon gives the limit as calls per second.
            Field::Limit if self.owner == "amzn" => Field::Fill,
            field => field,
        };
        if !rate && self.field > Field::Whole {
            // `x-app-limit-24hour` is called by all of its words.
            let owner = std::mem::take(&mut self.owner);
            self.quota = [owner, self.quota].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
        }
        Some(self)
    }
}

/// `X-Shopify-Shop-Api-Call-Limit` and its like.
fn call(owner: &str) -> Option<Field> {
    owner.ends_with("call").then_some(Field::Call)
}

fn field_of(word: &str) -> Option<Field> {
    Some(match word {
        "limit" | "max" | "maximum" | "total" | "ceiling" | "quota" => Field::Limit,
        "remaining" | "remain" | "left" | "available" => Field::Remaining,
        "used" | "count" | "observed" | "consumed" | "usage" => Field::Used,
        "reset" | "resets" | "resettime" | "next" | "retry" => Field::Reset,
        "window" | "period" | "interval" => Field::Window,
        "fillrate" | "fill" | "refill" | "replenish" => Field::Fill,
        "utilization" | "utilisation" => Field::Utilization,
        "near" | "nearlimit" => Field::NearLimit,
        "bucket" | "group" | "name" => Field::Label,
        "resource" => Field::Resource,
        "reason" | "type" => Field::Reason,
        "scope" => Field::Scope,
        "global" => Field::Global,
        "cost" => Field::Cost,
        "policy" => Field::Policy,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_an_owner_a_field_and_a_quota_in_any_order() {
        let cases = [
            ("x-ratelimit-limit", "", Field::Limit, ""),
            ("x-rate-limit-remaining", "", Field::Remaining, ""),
            ("ratelimit-resettime", "", Field::Reset, ""),
            ("x-ratelimit-limit-requests", "", Field::Limit, "requests"),
            ("x-ratelimit-requests-limit", "", Field::Limit, "requests"),
            ("x-ratelimit-remaining-minute", "", Field::Remaining, "minute"),
            ("anthropic-ratelimit-input-tokens-reset", "anthropic", Field::Reset, "input-tokens"),
            ("anthropic-ratelimit-unified-5h-utilization", "anthropic", Field::Utilization, "unified-5h"),
            ("x-app-limit-24hour-remaining", "", Field::Remaining, "app-24hour"),
            ("x-esi-error-limit-remain", "", Field::Remaining, "esi-error"),
            ("minute-limit-remaining", "", Field::Remaining, "minute"),
            ("x-app-rate-limit", "app", Field::Bare, ""),
            ("x-app-rate-limit-count", "app", Field::Used, ""),
            ("ratelimit", "", Field::Bare, ""),
            ("ratelimit-policy", "", Field::Policy, ""),
            ("x-hubspot-ratelimit-daily", "hubspot", Field::Limit, "daily"),
            ("x-hubspot-ratelimit-max", "hubspot", Field::Limit, ""),
            ("zendesk-ratelimit-tickets-index", "zendesk", Field::Whole, "tickets-index"),
            ("x-ms-ratelimit-remaining-resource", "ms", Field::Remaining, "resource"),
            ("x-ms-user-quota-remaining", "", Field::Remaining, "ms-user"),
            ("x-shopify-shop-api-call-limit", "shopify-shop-api-call", Field::Call, ""),
            ("sforce-limit-info", "sforce", Field::Whole, "info"),
            ("x-amzn-ratelimit-limit", "amzn", Field::Fill, ""),
            ("x-ratelimit-replenish-rate", "", Field::Fill, ""),
            ("x-ratelimit-bucket", "", Field::Label, ""),
            ("x-ratelimit-resource", "", Field::Resource, ""),
            ("x-ratelimit-scope", "", Field::Scope, ""),
            ("x-rate-limit-type", "", Field::Reason, ""),
            ("stripe-rate-limited-reason", "stripe", Field::Reason, ""),
            ("x-ratelimit-near-limit", "", Field::NearLimit, "limit"),
            ("x-ratelimit-reset-time", "", Field::Reset, ""),
            ("x-ms-ratelimit-time-remaining-xrm-requests", "ms", Field::Remaining, "time-xrm-requests"),
            ("x_ratelimit_remaining", "", Field::Remaining, ""),
        ];
        for (name, owner, field, quota) in cases {
            let parsed = parse(name).unwrap();
            assert_eq!((&*parsed.owner, parsed.field, &*parsed.quota), (owner, field, quota), "{name}");
        }
    }

    #[test]
    fn a_name_may_give_the_unit_of_its_number() {
        let cases = [
            ("x-ratelimit-reset", None, false),
            ("x-ratelimit-reset-after", None, true),
            ("x-ms-user-quota-resets-after", None, true),
            ("x-ratelimit-interval-seconds", None, false),
            ("x-hubspot-ratelimit-interval-milliseconds", Some(TimeUnit::Millis), false),
            ("x-ratelimit-reset-ms", Some(TimeUnit::Millis), false),
        ];
        for (name, unit, relative) in cases {
            let parsed = parse(name).unwrap();
            assert_eq!((parsed.unit, parsed.relative), (unit, relative), "{name}");
        }
    }

    #[test]
    fn limits_of_other_things_are_not_meant() {
        let others = [
            "content-length",
            "x-limit",
            "x-page-limit",
            "x-limit-by",
            "limit",
            "quota-user",
            "x-quota-name",
            "rate",
            "",
        ];
        for name in others {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
