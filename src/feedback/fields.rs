//! Reads the values of headers whose names have been understood.

use std::time::Duration;

use super::name::{Field, Name};
use super::number::Number;
use super::quota::Quota;
use super::reader::{Outcome, Reader};
use super::reset::Reset;
use super::signs::is_true;
use super::structured::{self, Policy, Reading};
use super::tally::Key;
use super::time_unit::TimeUnit;
use super::{span, text};

impl Reader<'_> {
    /// Reads one value of a header whose name has been understood.
    pub(super) fn quota(&mut self, name: &Name, text: &str) -> Outcome {
        match name.field {
            Field::Bare => self.bare(name, text),
            Field::Policy => self.policy(name, text),
            Field::Call => self.call(name, text),
            Field::Whole => self.whole(name, text),
            Field::Limit => self.limit(name, text),
            Field::Used => self.amount(name, text, |used| Quota { used: Some(used), ..Quota::default() }),
            Field::Remaining => self.remaining(name, text),
            Field::Reset => self.reset(name, text),
            Field::Window => self.window(name, text),
            Field::Cost => self.cost(text),
            Field::Fill => {
                let Some(units) = Number::parse(text) else { return Outcome::Invalid };
                self.tally.fill(key(name), units);
                Outcome::Read
            }
            Field::Utilization => {
                let utilization = Number::parse(text).map(Number::millionths);
                self.add(key(name), utilization.map(|_| Quota { utilization, ..Quota::default() }))
            }
            Field::Label | Field::Resource => {
                let called = Some(text.to_owned()).filter(|text| !text.is_empty());
                let resource = name.field == Field::Resource;
                self.add(key(name), Some(Quota { name: called, resource, ..Quota::default() }))
            }
            Field::Reason | Field::Scope | Field::Global | Field::NearLimit => {
                self.sign(name, text);
                Outcome::Read
            }
        }
    }

    fn sign(&mut self, name: &Name, text: &str) {
        match name.field {
            Field::Scope => self.signs.scope(text),
            Field::Global => self.signs.global(text),
            Field::NearLimit => self.signs.near_limit |= is_true(text),
            _ if name.owner == "stripe" => self.signs.explain_of_account(text),
            _ => self.signs.explain(text),
        }
    }

    fn add(&mut self, key: Key, quota: Option<Quota>) -> Outcome {
        let Some(quota) = quota else { return Outcome::Invalid };
        self.tally.add(key, quota);
        Outcome::Read
    }

    /// `RateLimit`, or a limit under a name without a field.
    fn bare(&mut self, name: &Name, text: &str) -> Outcome {
        let Some(Reading { members, repaired }) = structured::statuses(text) else { return self.limit(name, text) };
        let now = self.now();
        for status in members {
            self.tally.leave(status, now);
        }
        repaired_if(repaired)
    }

    fn policy(&mut self, name: &Name, text: &str) -> Outcome {
        let Some(Reading { members, repaired }) = structured::policies(text) else { return Outcome::Invalid };
        for policy in members {
            self.tally.allow(&name.owner, policy);
        }
        repaired_if(repaired)
    }

    fn call(&mut self, name: &Name, text: &str) -> Outcome {
        let quota = text::used_of_limit(text).map(|(used, limit)| of_used(used, limit));
        self.add(Key { owner: name.owner.clone(), ..Key::default() }, quota)
    }

    fn limit(&mut self, name: &Name, text: &str) -> Outcome {
        // BoldDesk writes the period where others write the number.
        if let Some(window) = span::parse(text).filter(|window| !window.is_zero()) {
            return self.add(key(name), Some(Quota::default().with_window(window)));
        }
        if let Some((limit, window)) = text::rate(text) {
            return self.add(windowed(name, window), Some(Quota::default().with_limit(limit)));
        }
        self.amount(name, text, |limit| Quota::default().with_limit(limit))
    }

    /// A number, `amount:window` pairs, or a list of amounts with parameters.
    fn amount(&mut self, name: &Name, text: &str, quota: impl Fn(u64) -> Quota) -> Outcome {
        if let Some(number) = Number::parse(text) {
            return self.add(key(name), Some(quota(number.floor())));
        }
        if let Some(pairs) = text::pairs(text) {
            for (amount, window) in pairs {
                self.tally.add(windowed(name, window), quota(amount));
            }
            return Outcome::Read;
        }
        let Some(Reading { members, repaired }) = structured::amounts(text) else { return Outcome::Invalid };
        let mut places = 0..;
        for Policy { name: called, amount, window, .. } in members {
            // Without a window nothing else says which quota it is.
            let place = if window.is_none() { places.next() } else { None };
            let key = Key { window, place: place.unwrap_or_default(), ..key(name) };
            self.tally.add(key, Quota { name: called, ..quota(amount) });
        }
        repaired_if(repaired)
    }

    fn remaining(&mut self, name: &Name, text: &str) -> Outcome {
        let outcome = self.amount(name, text, |remaining| Quota::default().with_remaining(remaining));
        let named = if outcome == Outcome::Invalid { text::named_amounts(text) } else { None };
        let Some(named) = named else { return outcome };
        for (called, remaining) in named {
            let key = Key { name: called.to_owned(), ..key(name) };
            self.tally.add(key, Quota::default().with_remaining(remaining));
        }
        Outcome::Read
    }

    fn reset(&mut self, name: &Name, text: &str) -> Outcome {
        let usual = if name.relative { Some(TimeUnit::Seconds) } else { self.dialect.reset };
        // KuCoin counts in milliseconds, and does not say so.
        let usual = usual.or((name.owner == "gw").then_some(TimeUnit::Millis));
        let (now, unit) = (self.now(), name.unit.or(usual));
        let told = |member: &str| {
            let reset = Reset::parse(member, unit, now)?;
            Some(Reset { relative: name.relative && reset.at.is_none(), ..reset })
        };
        let reset = text::joined(text, told, Reset::and);
        self.add(key(name), reset.map(|_| Quota { reset, ..Quota::default() }))
    }

    fn window(&mut self, name: &Name, text: &str) -> Outcome {
        let number = |number: Number| if name.unit.is_some() { number.millis() } else { number.seconds() };
        let window = Number::parse(text).map(number).or_else(|| span::parse(text));
        let window = window.filter(|window| !window.is_zero());
        self.add(key(name), window.map(|window| Quota::default().with_window(window)))
    }

    /// Several fields in one value; what is none of it is about something else.
    fn whole(&mut self, name: &Name, text: &str) -> Outcome {
        let Some(words) = text::words(text) else { return Outcome::Unknown };
        let mut quota = Quota::default();
        for (word, value) in &words {
            let number = Number::parse(value).map(Number::floor);
            match *word {
                "total" | "limit" | "max" => quota.limit = number,
                "remaining" | "left" => quota.remaining = number,
                "used" | "count" => quota.used = number,
                "reset" | "resets" => quota.reset = Reset::parse(value, self.dialect.reset, self.now()),
                _ => self.part(name, word, value),
            }
        }
        self.tally.add(key(name), quota);
        Outcome::Read
    }

    /// `api-usage=14/5000` and `per-app-api-usage=17/250`: a quota of its own.
    fn part(&mut self, name: &Name, word: &str, value: &str) {
        let Some((used, limit)) = text::used_of_limit(value) else { return };
        let called = word.strip_suffix("api-usage").unwrap_or(word).trim_end_matches('-');
        let key = Key { owner: name.owner.clone(), name: called.to_owned(), ..Key::default() };
        // Salesforce counts by the day and does not say so.
        let window = (name.owner == "sforce").then_some(Duration::from_secs(86_400));
        self.tally.add(key, Quota { window, ..of_used(used, limit) });
    }
}

fn of_used(used: u64, limit: u64) -> Quota {
    Quota { used: Some(used), limit: Some(limit), ..Quota::default() }
}

fn key(name: &Name) -> Key {
    Key { owner: name.owner.clone(), name: name.quota.clone(), ..Key::default() }
}

fn windowed(name: &Name, window: Duration) -> Key {
    Key { window: Some(window), ..key(name) }
}

fn repaired_if(repaired: bool) -> Outcome {
    if repaired { Outcome::Repaired } else { Outcome::Read }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Lines, read, read_at};
    use super::super::{Dialect, Unit};
    use super::*;

    fn main(lines: Lines) -> Option<Quota> {
        read(Dialect::GENERAL, 200, lines).main().cloned()
    }

    #[test]
    fn a_limit_is_a_number_a_rate_a_list_or_a_period() {
        let cases: [(Lines, Option<u64>, Option<u64>); 9] = [
            (&[("x-ratelimit-limit", "5000")], Some(5_000), None),
            (&[("x-rate-limit", "400")], Some(400), None),
            (&[("x-ratelimit-limit", "600/15m")], Some(600), Some(900)),
            (&[("ratelimit-limit", "100;w=21600")], Some(100), Some(21_600)),
            (&[("x-ratelimit-limit", "1000, 10;w=1, 1000;w=3600")], Some(1_000), Some(3_600)),
            (&[("x-app-rate-limit", "20:1")], Some(20), Some(1)),
            (&[("x-rate-limit-limit", "1m")], None, Some(60)),
            (&[("x-ratelimit-limit-hour", "9")], Some(9), Some(3_600)),
            (&[("ratelimit-limit", "100"), ("x-ratelimit-period", "60")], Some(100), Some(60)),
        ];
        for (lines, limit, window) in cases {
            let quota = main(lines).unwrap();
            assert_eq!((quota.limit(), quota.window().map(|window| window.as_secs())), (limit, window), "{lines:?}");
        }
    }

    #[test]
    fn of_several_lines_the_strictest_holds() {
        const TWICE: Lines = &[
            ("x-ratelimit-remaining", "9"),
            ("x-ratelimit-remaining", "7, 8"),
            ("x-ratelimit-reset", "5"),
            ("x-ratelimit-reset", "junk"),
            ("x-ratelimit-reset", "6, 7"),
        ];
        let quota = main(TWICE).unwrap();
        assert_eq!((quota.remaining(), quota.reset_after()), (Some(7), Some(Duration::from_secs(7))));
        assert!(read(Dialect::GENERAL, 200, TWICE).invalid().is_empty(), "one line can be read");
    }

    /// Strava counts by quarters of an hour and by days, and names neither.
    #[test]
    fn what_stands_at_one_place_of_two_lists_is_of_one_quota() {
        const BOTH: Lines = &[("x-ratelimit-limit", "600,30000"), ("x-ratelimit-usage", "314,27536")];
        const TWICE: Lines =
            &[("x-ratelimit-limit", "60, 60"), ("x-ratelimit-remaining", "7, 7"), ("x-ratelimit-reset", "5, 5")];
        const REFUSED: Lines = &[
            ("x-ratelimit-limit", "600,30000"),
            ("x-ratelimit-remaining", "286,0"),
            ("x-ratelimit-reset", "900,43200"),
        ];
        const MIXED: Lines = &[("ratelimit-limit", "10, 10;w=1, 500"), ("ratelimit-remaining", "3, 400")];
        type Told = &'static [(Option<u64>, Option<u64>)];
        let cases: [(Lines, Told); 4] = [
            (BOTH, &[(Some(600), Some(286)), (Some(30_000), Some(2_464))]),
            (
                &[("x-ratelimit-limit", "600,30000"), ("x-ratelimit-remaining", "0")],
                &[(Some(600), Some(0)), (Some(30_000), None)],
            ),
            (TWICE, &[(Some(60), Some(7))]),
            (MIXED, &[(Some(10), Some(3)), (Some(500), Some(400))]),
        ];
        for (lines, told) in cases {
            let feedback = read(Dialect::GENERAL, 200, lines);
            let numbers = feedback.quotas().iter().map(|quota| (quota.limit(), quota.remaining()));
            assert_eq!(numbers.collect::<Vec<_>>(), told, "{lines:?}");
            assert_eq!(feedback.main().and_then(Quota::limit), told[0].0, "{lines:?}");
        }
        let wait = read(Dialect::GENERAL, 429, REFUSED).wait();
        assert_eq!(
            wait,
            Some(std::time::Duration::from_secs(43_200)),
            "a reset in a list is of all that stand in others"
        );
        for status in [200, 400, 403, 503] {
            let feedback = read(Dialect::GENERAL, status, BOTH);
            assert!(!feedback.quotas().iter().any(Quota::is_spent) && feedback.wait().is_none(), "{status}");
            assert_ne!(feedback.refusal(), Some(super::super::Refusal::Quota), "{status}");
        }
    }

    #[test]
    fn what_is_left_is_a_whole_number_or_unknown() {
        let cases =
            [("599.0", Some(599)), ("0.9", Some(0)), ("0", Some(0)), ("-1", None), ("unlimited", None), ("", None)];
        for (text, expected) in cases {
            let feedback = read(Dialect::GENERAL, 200, Box::leak(Box::new([("x-ratelimit-remaining", text)])));
            assert_eq!(feedback.main().and_then(Quota::remaining), expected, "{text}");
            assert_eq!(feedback.invalid().len(), usize::from(expected.is_none()), "{text}");
        }
    }

    /// Found by a property: a limit of `0ms` was taken for a window without length.
    #[test]
    fn a_window_has_a_length() {
        for (name, value) in [("ratelimit", "0ms"), ("x-ratelimit-limit", "5/0s"), ("x-ratelimit-window", "0")] {
            let feedback = read(Dialect::GENERAL, 200, Box::leak(Box::new([(name, value)])));
            assert_eq!((feedback.quotas().len(), feedback.invalid().len()), (0, 1), "{name}: {value}");
        }
    }

    #[test]
    fn a_dialect_gives_the_unit_that_the_name_does_not() {
        const LINES: Lines = &[("x-ratelimit-reset", "58000"), ("x-ratelimit-reset-after-tokens", "3")];
        let feedback = read(Dialect::GENERAL.reset_in(TimeUnit::Millis), 200, LINES);
        let resets: Vec<_> = feedback.quotas().iter().filter_map(Quota::reset_after).collect();
        assert_eq!(resets, [Duration::from_secs(58), Duration::from_secs(3)]);
    }

    /// Symfony's documentation had `X-RateLimit-Retry-After` tell a time since 1970.
    #[test]
    fn a_time_since_1970_is_none_from_now_whatever_its_name_promises() {
        let cases: [(Lines, u64, bool); 7] = [
            (&[("x-ratelimit-retry-after", "1700000053")], 53, false),
            (&[("x-ratelimit-reset-ms", "1700000053250")], 53, false),
            (&[("x-ratelimit-reset-in", "Tue, 14 Nov 2023 22:14:13 GMT")], 53, false),
            (&[("ratelimit", "limit=100, remaining=0, reset=1700000053")], 53, false),
            (&[("ratelimit", r#""default";r=0;t=1700000053"#)], 53, false),
            (&[("x-ratelimit-reset-after", "1700000")], 1_700_000, true),
            // KuCoin's is in milliseconds.
            (&[("gw-ratelimit-reset", "28251")], 28, true),
        ];
        for (lines, seconds, is_length) in cases {
            let feedback = read_at(Dialect::GENERAL, 200, lines, 1_700_000_000);
            let reset = feedback.main().and_then(|quota| quota.reset).unwrap();
            assert_eq!((reset.after.as_secs(), reset.is_length()), (seconds, is_length), "{lines:?}");
        }
        let asks: [Lines; 2] = [&[("retry-after", "1700000053")], &[("retry-after-ms", "1700000053000")]];
        let told = |lines| read_at(Dialect::GENERAL, 429, lines, 1_700_000_000).told_wait();
        assert_eq!(asks.map(told), [Some(Duration::from_secs(53)); 2]);
    }

    #[test]
    fn seconds_of_execution_and_calls_of_a_token_are_what_they_are() {
        const DATAVERSE: Lines = &[
            ("x-ms-ratelimit-burst-remaining-xrm-requests", "5999"),
            ("x-ms-ratelimit-time-remaining-xrm-requests", "1,200.00"),
        ];
        const TRELLO: Lines = &[("x-rate-limit-api-token-remaining", "0"), ("x-rate-limit-api-token-max", "100")];
        let told = |lines| {
            let feedback = read(Dialect::GENERAL, 200, lines);
            let told = feedback.quotas().iter().map(|quota| (quota.unit(), quota.remaining())).collect::<Vec<_>>();
            (told, feedback.invalid().len())
        };
        assert_eq!(told(DATAVERSE), (vec![(Unit::Calls, Some(5_999)), (Unit::Other, Some(1_200))], 0));
        assert_eq!(told(TRELLO), (vec![(Unit::Calls, Some(0))], 0));
        assert_eq!(read(Dialect::GENERAL, 403, &DATAVERSE[1..]).refusal(), None);
    }

    #[test]
    fn headers_about_something_else_are_neither_read_nor_invalid() {
        const LINES: Lines = &[
            ("docker-ratelimit-source", "192.0.2.1"),
            ("x-ratelimit-tier", "gold"),
            ("x-page-limit", "many"),
            ("x-disk-usage", "a lot"),
            ("anthropic-ratelimit-unified-status", "allowed"),
        ];
        let feedback = read(Dialect::GENERAL, 200, LINES);
        assert_eq!(feedback, super::super::Feedback::default());
    }
}
