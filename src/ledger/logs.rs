//! The logs of one scope, by what they count.

use std::sync::Arc;

use super::{Log, QuotaReport, Report, SlidingLog, Stamp, micros};

type Named = (Arc<str>, SlidingLog);

/// Nearly always one: it lies in place, so that finding it takes no further look into memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Logs {
    first: Option<Named>,
    more: Option<Box<More>>,
}

/// Behind a pointer, as there are as many logs as scopes.
#[derive(Clone, Debug, Default)]
struct More(Vec<Named>);

impl Logs {
    pub(super) const fn new() -> Self {
        Self { first: None, more: None }
    }

    /// The log of this name, if anything was ever entered into it.
    #[inline]
    pub(super) fn get(&self, name: &Arc<str>) -> Option<&SlidingLog> {
        self.all().find(|(of, _)| is_same(of, name)).map(|(_, log)| log)
    }

    /// The log of this name, new if need be.
    #[inline]
    pub(super) fn entry(&mut self, name: &Arc<str>) -> &mut SlidingLog {
        if self.first.as_ref().is_none_or(|(of, _)| is_same(of, name)) {
            return &mut self.first.get_or_insert_with(|| (Arc::clone(name), SlidingLog::new())).1;
        }
        let more = &mut self.more.get_or_insert_default().0;
        let at = more.iter().position(|(of, _)| is_same(of, name)).unwrap_or_else(|| {
            more.push((Arc::clone(name), SlidingLog::new()));
            more.len() - 1
        });
        &mut more[at].1
    }

    /// The log of this name, to be changed, if anything was ever entered into it.
    pub(super) fn get_mut(&mut self, name: &Arc<str>) -> Option<&mut SlidingLog> {
        self.all_mut().find(|(of, _)| is_same(of, name)).map(|(_, log)| log)
    }

    /// What an upstream reports of the buckets of a log: what is missing beside ours is of others. Says how many units that are at
    /// most.
    pub(super) fn fill_others(&mut self, now: Stamp, log: &Log, report: &Report) -> u32 {
        let counted = report.started.unwrap_or(now).plus(micros(report.late)).min(now);
        let started = report.started.unwrap_or(now).min(now);
        let of = |quota: &QuotaReport| {
            let (bucket, window) = (quota.term.as_bucket()?, micros(quota.window));
            // What the upstream counted so long ago has drained.
            let is_new = counted.plus(window) > now;
            let fills = window.saturating_mul(1_000);
            is_new.then(|| self.entry(&log.unit).told(bucket, fills, quota.remaining, started, counted))
        };
        report.quotas.iter().filter_map(of).max().unwrap_or(0)
    }

    /// Units of a log that started from `first` to `last` were of cold calls, which may arrive later: they fill buckets accordingly.
    pub(super) fn arrive(&mut self, log: &Log, first: Stamp, last: Stamp) {
        let Some(entries) = self.get_mut(&log.unit) else { return };
        for term in log.terms.iter().filter(|term| term.cold > 0) {
            if let Some(bucket) = term.as_bucket() {
                entries.arrive(bucket, first.min(last), last.plus(term.cold));
            }
        }
    }

    /// Loses the logs in which nothing has started since then, or all.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn lose(&mut self, since: Option<Stamp>) {
        let is_used =
            |log: &SlidingLog| since.is_some_and(|since| log.nth_newest(1).is_some_and(|newest| newest >= since));
        let logs = self.all_mut().map(|(_, log)| log);
        logs.filter(|log| !is_used(log)).for_each(SlidingLog::lose);
    }

    /// Forgets the log of this name. Says which was its newest entry.
    pub(super) fn forget(&mut self, name: &Arc<str>) -> Option<Stamp> {
        let (_, log) = if self.first.as_ref().is_some_and(|(of, _)| is_same(of, name)) {
            let next = self.more.as_mut().and_then(|more| more.0.pop());
            std::mem::replace(&mut self.first, next)?
        } else {
            let more = &mut self.more.as_mut()?.0;
            more.swap_remove(more.iter().position(|(of, _)| is_same(of, name))?)
        };
        log.nth_newest(1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &SlidingLog> {
        self.all().map(|(_, log)| log)
    }

    fn all(&self) -> impl Iterator<Item = &Named> {
        self.first.iter().chain(self.more.iter().flat_map(|more| &more.0))
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Named> {
        self.first.iter_mut().chain(self.more.iter_mut().flat_map(|more| &mut more.0))
    }
}

/// Whether both are one name: mostly it is the same text in memory, which is not read then.
fn is_same(one: &Arc<str>, other: &Arc<str>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_a_log_of_its_own() {
        let (mut logs, names) = (Logs::default(), ["calls", "points", "tokens"].map(Arc::<str>::from));
        // The second time by the same names elsewhere in memory.
        for names in [names.clone(), names.each_ref().map(|name| Arc::from(&**name))] {
            for (at, name) in (1..).zip(&names) {
                logs.entry(name).append(Stamp::from_micros(at), 1, 1);
            }
        }
        let counted = |log: &SlidingLog| (log.nth_newest(2), log.nth_newest(3));
        for (at, name) in (1..).zip(&names) {
            assert_eq!(logs.get(name).map(counted), Some((Some(Stamp::from_micros(at)), None)), "{name}");
            logs.get_mut(name).unwrap().hand_back(Stamp::from_micros(at), 1);
        }
        assert_eq!(logs.iter().filter_map(|log| log.nth_newest(1)).count(), 3, "one of two is left in each");
        assert!(logs.get(&"calls of others".into()).is_none());
        for (name, left) in names.iter().zip([2, 1, 0]) {
            assert!(logs.forget(name).is_some() && logs.get(name).is_none() && logs.forget(name).is_none(), "{name}");
            assert_eq!(logs.iter().count(), left);
        }
    }
}
