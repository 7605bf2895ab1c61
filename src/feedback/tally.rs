//! The quotas of one response, gathered header by header and then joined.

use std::time::Duration;

use http::HeaderName;

use super::join;
use super::moment::Moment;
use super::number::Number;
use super::part::is_part;
use super::quota::Quota;
use super::reach::Reach;
use super::refill::Refill;
use super::reset::Reset;
use super::span;
use super::structured::{Policy, Status};
use super::time_unit::TimeUnit;
use super::unit::Unit;

/// More quotas than this are nobody's real limits.
pub(super) const MOST: usize = 64;

/// Which quota a header speaks of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) owner: String,
    pub(super) name: String,
    /// Where the value names the window: one header then speaks of several quotas.
    pub(super) window: Option<Duration>,
    /// Its place among the members of a list that name no window.
    pub(super) place: usize,
}

impl Key {
    /// That of the first member of the list in which this is a later one.
    pub(super) fn first_of_list(&self) -> Option<Self> {
        (self.place > 0).then(|| Self { place: 0, ..self.clone() })
    }
}

/// Where the parts of a quota come from, and so what they may be joined with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Single headers that share a key.
    Fields,
    /// A member of `RateLimit-Policy`, or of a list of limits: what is allowed, not what is left.
    Policy,
    /// A member of `RateLimit`: what is left, not what is allowed.
    Status,
    /// Complete as it is.
    Whole,
}

/// A quota that is being gathered.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) source: Source,
    pub(super) key: Key,
    pub(super) quota: Quota,
    /// Units that come back in each window.
    fill: Option<Number>,
}

/// The quotas of one response.
#[derive(Debug, Default)]
pub(super) struct Tally {
    drafts: Vec<Draft>,
    /// The header that is being read.
    header: Option<HeaderName>,
}

impl Tally {
    /// What is added from now on is told by this header.
    pub(super) fn read(&mut self, header: &HeaderName) {
        self.header = Some(header.clone());
    }

    /// Adds what single headers say of the quota `key`.
    pub(super) fn add(&mut self, key: Key, quota: Quota) {
        let window = quota.window.or(key.window);
        let quota = Quota { window, ..quota }.told_by(self.header.as_ref());
        if let Some(draft) = self.at(key) {
            draft.quota.absorb(quota);
        }
    }

    /// Adds how many units come back to the quota `key` in each of its windows, or in each second if it has none.
    pub(super) fn fill(&mut self, key: Key, units: Number) {
        if let Some(draft) = self.at(key) {
            draft.fill = Some(units);
        }
    }

    /// Adds a quota that nothing else in the response speaks of.
    pub(super) fn push(&mut self, quota: Quota) {
        self.draft(Source::Whole, Key::default(), quota);
    }

    /// Adds what is allowed, under the owner of the header that says so.
    pub(super) fn allow(&mut self, owner: &str, policy: Policy) {
        let Policy { name, amount, window, unit } = policy;
        let quota = Quota { name, unit, limit: Some(amount), window, ..Quota::default() };
        self.draft(Source::Policy, Key { owner: owner.to_owned(), ..Key::default() }, quota);
    }

    /// Adds what is left.
    pub(super) fn leave(&mut self, status: Status, now: Moment) {
        let Status { name, limit, remaining, reset } = status;
        let reset = reset.map(|seconds| Reset::of_number(seconds, TimeUnit::Seconds, now));
        let quota = Quota { name, limit, remaining, reset, ..Quota::default() };
        if quota.name.is_some() {
            self.draft(Source::Status, Key::default(), quota);
        } else {
            // The generation without names says the same as three headers.
            self.add(Key::default(), quota);
        }
    }

    fn at(&mut self, key: Key) -> Option<&mut Draft> {
        let same = |draft: &Draft| draft.source == Source::Fields && draft.key == key;
        match self.drafts.iter().position(same) {
            Some(index) => self.drafts.get_mut(index),
            None => self.draft(Source::Fields, key, Quota::default()),
        }
    }

    fn draft(&mut self, source: Source, key: Key, quota: Quota) -> Option<&mut Draft> {
        if self.drafts.len() >= MOST {
            return None;
        }
        let quota = quota.told_by(self.header.as_ref());
        self.drafts.push(Draft { source, key, quota, fill: None });
        self.drafts.last_mut()
    }

    /// The quotas, with everything joined that speaks of the same one.
    pub(super) fn finish(mut self) -> Vec<Quota> {
        self.spread_resets();
        for draft in &mut self.drafts {
            draft.settle();
        }
        for target in join::TARGETS {
            self.join(target);
        }
        let mut quotas: Vec<Quota> = self.drafts.into_iter().map(|draft| draft.quota).collect();
        quotas.iter_mut().for_each(Quota::complete);
        quotas.retain(|quota| !quota.is_silent());
        quotas
    }

    /// Resets have no places in lists: what was told of the first is told of all.
    fn spread_resets(&mut self) {
        for at in 0..self.drafts.len() {
            if let Some(first) = self.drafts[at].key.first_of_list() {
                let of_first = self.drafts.iter().find(|draft| draft.source == Source::Fields && draft.key == first);
                let reset = of_first.and_then(|draft| draft.quota.reset);
                let quota = &mut self.drafts[at].quota;
                quota.reset = quota.reset.or(reset);
            }
        }
    }

    /// Merges every draft into the one that `target` finds for it.
    fn join(&mut self, target: join::Target) {
        let mut from = 0;
        while let Some(draft) = self.drafts.get(from) {
            match target(&self.drafts, draft) {
                Some(into) if into != from && into < self.drafts.len() => self.merge(from, into),
                _ => from += 1,
            }
        }
    }

    fn merge(&mut self, from: usize, into: usize) {
        let draft = self.drafts.remove(from);
        let into = if from < into { into - 1 } else { into };
        if let Some(target) = self.drafts.get_mut(into) {
            target.quota.absorb(draft.quota);
        }
    }
}

impl Draft {
    /// Fills in what the key says.
    fn settle(&mut self) {
        let quota = &mut self.quota;
        if let Some(units) = self.fill {
            // The window of a rate is no window of the quota.
            quota.refill = Refill::of(units, quota.window.take().unwrap_or(Duration::from_secs(1)));
        }
        quota.part = quota.name.as_deref().is_some_and(is_part);
        if self.source != Source::Fields {
            return;
        }
        let Key { owner, name, window, place } = &self.key;
        // An owner is mostly the vendor; Riot's is the method.
        let is_of_method = name.is_empty() && Reach::of_word(owner) == Some(Reach::Route);
        quota.part |= is_part(name) || is_of_method;
        quota.plain = window.is_none() && *place == 0 && (name.is_empty() || name == "requests");
        quota.unit = Unit::of_name(name);
        quota.window = quota.window.or_else(|| span::named(name));
        let called = if name.is_empty() { owner } else { name };
        if quota.name.is_none() && !called.is_empty() {
            quota.name = Some(called.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(owner: &str, name: &str) -> Key {
        Key { owner: owner.to_owned(), name: name.to_owned(), ..Key::default() }
    }

    fn policy(name: Option<&str>, amount: u64, window: u64) -> Policy {
        let name = name.map(str::to_owned);
        Policy { name, amount, window: Some(Duration::from_secs(window)), unit: Unit::Calls }
    }

    fn status(name: &str, remaining: u64) -> Status {
        Status { name: Some(name.to_owned()), remaining: Some(remaining), ..Status::default() }
    }

    fn numbers(tally: Tally) -> Vec<(Option<u64>, Option<u64>, Option<u64>)> {
        let seconds = |quota: &Quota| quota.window().map(|window| window.as_secs());
        tally.finish().iter().map(|quota| (quota.limit(), quota.remaining(), seconds(quota))).collect()
    }

    #[test]
    fn headers_with_one_key_are_one_quota() {
        let mut tally = Tally::default();
        tally.add(key("", ""), Quota::default().with_limit(400));
        tally.add(key("", ""), Quota::default().with_remaining(384));
        tally.add(key("", "minute"), Quota::default().with_remaining(3));
        assert_eq!(numbers(tally), [(Some(400), Some(384), None), (None, Some(3), Some(60))]);
    }

    #[test]
    fn a_status_joins_the_policy_of_its_name_or_the_only_one() {
        let mut tally = Tally::default();
        tally.leave(status("b", 2), Moment::at(0, 0));
        tally.allow("", policy(Some("a"), 10, 1));
        tally.allow("", policy(Some("b"), 20, 2));
        assert_eq!(numbers(tally), [(Some(10), None, Some(1)), (Some(20), Some(2), Some(2))]);

        let mut tally = Tally::default();
        tally.allow("", policy(Some("burst"), 100, 60));
        tally.leave(status("default", 50), Moment::at(0, 0));
        assert_eq!(numbers(tally), [(Some(100), Some(50), Some(60))]);

        let mut tally = Tally::default();
        tally.allow("", policy(Some("a"), 10, 1));
        tally.allow("", policy(Some("b"), 20, 2));
        tally.leave(status("default", 5), Moment::at(0, 0));
        assert_eq!(numbers(tally), [(Some(10), None, Some(1)), (Some(20), None, Some(2)), (None, Some(5), None)]);
    }

    #[test]
    fn headers_without_a_name_join_the_policy_of_their_limit() {
        let mut tally = Tally::default();
        tally.add(key("", ""), Quota::default().with_limit(1_000).with_remaining(9));
        tally.allow("", policy(None, 10, 1));
        tally.allow("", policy(None, 1_000, 3_600));
        assert_eq!(numbers(tally), [(Some(10), None, Some(1)), (Some(1_000), Some(9), Some(3_600))]);
    }

    #[test]
    fn a_reset_alone_joins_the_quota_with_the_least_left() {
        let mut tally = Tally::default();
        tally.add(key("", ""), Quota::default().with_reset_after(Duration::from_secs(23)));
        tally.add(key("", "hour"), Quota::default().with_remaining(5));
        tally.add(key("", "minute"), Quota::default().with_remaining(0));
        let quotas = tally.finish();
        let resets: Vec<_> = quotas.iter().map(|quota| (quota.name(), quota.reset_after())).collect();
        assert_eq!(resets, [(Some("hour"), None), (Some("minute"), Some(Duration::from_secs(23)))]);
    }

    #[test]
    fn a_quota_told_twice_is_one_quota() {
        let mut tally = Tally::default();
        let twice = Quota::default().with_limit(10).with_remaining(9);
        tally.add(key("", "minute"), twice.clone());
        tally.add(key("", ""), twice.with_reset_after(Duration::from_secs(47)));
        assert_eq!(numbers(tally), [(Some(10), Some(9), Some(60))]);
    }

    #[test]
    fn a_rate_is_per_window_and_else_per_second() {
        let mut tally = Tally::default();
        tally.add(key("", ""), Quota::default().with_window(Duration::from_secs(2)));
        tally.fill(key("", ""), Number::parse("5").unwrap());
        let quotas = tally.finish();
        assert_eq!(quotas[0].refill(), Some(Refill::new(5, Duration::from_secs(2))));
        assert_eq!(quotas[0].window(), None);
    }

    #[test]
    fn quotas_beyond_all_reason_are_left_out() {
        let mut tally = Tally::default();
        for number in 0..1_000 {
            tally.add(key("", &number.to_string()), Quota::default().with_remaining(number));
        }
        assert_eq!(tally.finish().len(), MOST);
    }
}
