//! What was granted and not handed back, held against the laws.

use std::collections::HashSet;
use std::sync::Arc;

use fastrand::Rng;

use super::Heard;
use crate::ledger::{Ask, Bucket, Calendar, Grant, Log, LogUsage, Message, Reply, Shape, Slots, Stamp, Term};
use crate::testing::oracle::{window_of, worst_window_of_units};

/// A law that a store has broken, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Breach {
    /// Its number.
    pub law: u8,
    /// What happened.
    pub what: String,
}

/// The slots that were granted and not handed back, and the laws that were broken.
#[derive(Debug)]
pub struct Record {
    pub(super) logs: Vec<Log>,
    pub(super) booked: Vec<(Arc<[Log]>, Slots)>,
    /// Debts that were entered, by log: where, and how many units.
    pub(super) debts: Vec<Vec<(i64, u64)>>,
    starts: HashSet<Stamp>,
    /// Units that were ever granted, by log.
    granted: Vec<u64>,
    /// How far ahead of now anybody has booked who asks ahead, by log, in microseconds.
    reach: Vec<i64>,
    /// Windows by which anybody asked, of each log.
    windows: Vec<HashSet<Term>>,
    breaches: Vec<Breach>,
}

impl Record {
    pub(super) fn new(logs: &[Log]) -> Self {
        Self {
            logs: logs.to_vec(),
            booked: Vec::new(),
            debts: vec![Vec::new(); logs.len()],
            starts: HashSet::new(),
            granted: vec![0; logs.len()],
            reach: vec![0; logs.len()],
            windows: vec![HashSet::new(); logs.len()],
            breaches: Vec::new(),
        }
    }

    /// The laws that were broken: in a calm history 1, 12, 13, 14 and 18 are looked after, else 13 and 14.
    #[must_use]
    pub fn breaches(&self) -> &[Breach] {
        &self.breaches
    }

    /// All that a log holds: what was granted and not handed back, and debts.
    fn entries(&self, of: usize) -> Vec<(i64, u64)> {
        let mut all = [self.granted_in(of), self.debts[of].clone()].concat();
        all.retain(|(_, units)| *units > 0);
        all
    }

    /// The units of a log that were granted and not handed back, with their starts.
    fn granted_in(&self, of: usize) -> Vec<(i64, u64)> {
        let log = &self.logs[of];
        let units = |(logs, slots): &(Arc<[Log]>, Slots)| {
            let at = logs.iter().position(|one| (one.scope, &one.unit) == (log.scope, &log.unit))?;
            Some((slots.start.as_micros(), u64::from(slots.charges[at])))
        };
        self.booked.iter().filter_map(units).collect()
    }

    /// Units entered in the log where that were most.
    pub(super) fn longest(&self) -> u64 {
        self.granted.iter().copied().max().unwrap_or(0)
    }

    /// Whether a slot ever started then.
    pub(super) fn knows(&self, start: Stamp) -> bool {
        self.starts.contains(&start)
    }

    /// Whether a log has an entry of then that was not handed back.
    pub(super) fn holds(&self, log: &Log, start: Stamp) -> bool {
        let place = self.logs.iter().position(|of| is_same(of, log));
        place.is_some_and(|at| self.entries(at).iter().any(|(entry, _)| *entry == start.as_micros()))
    }

    /// When some slot counts no more in one of its terms.
    pub(super) fn some_end(&self, rng: &mut Rng) -> Option<Stamp> {
        let newest = self.booked.len().saturating_sub(10);
        let (logs, slots) = rng.choice(&self.booked[newest..])?;
        let log = rng.choice(logs.iter())?;
        Some(slots.start.plus(rng.choice(log.terms.iter())?.span))
    }

    /// Takes some slots of the same logs out, to be handed back.
    pub(super) fn take(
        &mut self,
        rng: &mut Rng,
        is_of: impl Fn(&Arc<[Log]>) -> bool,
    ) -> Option<(Arc<[Log]>, Vec<Slots>)> {
        let all: Vec<usize> = (0..self.booked.len()).filter(|&at| is_of(&self.booked[at].0)).collect();
        // Mostly of the newest, which is where it matters that older ones still count.
        let oldest = if rng.u8(0..4) == 0 { 0 } else { all.len().saturating_sub(20) };
        let first = *rng.choice(&all[oldest..])?;
        let logs = Arc::clone(&self.booked[first].0);
        let count = rng.usize(1..20).min(self.booked.len() - first);
        let same = self.booked[first..first + count].iter().take_while(|(of, _)| Arc::ptr_eq(of, &logs)).count();
        let mut slots: Vec<Slots> = Vec::new();
        let taken: Vec<Slots> = self.booked.drain(first..first + same).map(|(_, slot)| slot).collect();
        let uses_a_part = rng.u8(0..4) == 0;
        for slot in taken {
            // Sometimes the calls used a part of what they were charged.
            let used: Vec<u32> =
                slot.charges.iter().map(|&units| if uses_a_part { rng.u32(0..=units) } else { 0 }).collect();
            let unused = slot.charges.iter().zip(&used).map(|(units, used)| units - used).collect();
            if uses_a_part {
                self.booked.push((Arc::clone(&logs), Slots { charges: used.into(), ..slot.clone() }));
            }
            let slot = Slots { charges: unused, ..slot };
            match slots.last_mut() {
                Some(last) if (last.start, &last.charges) == (slot.start, &slot.charges) => last.count += 1,
                _ => slots.push(slot),
            }
        }
        Some((logs, slots))
    }

    /// Slots that were not handed back after all.
    pub(super) fn keep(&mut self, ask: &Ask) {
        for slots in ask.back.iter().filter(|slots| self.starts.contains(&slots.start)) {
            for _ in 0..slots.count {
                self.booked.push((Arc::clone(&ask.logs), Slots { count: 1, ..slots.clone() }));
            }
        }
    }

    /// The debts that came with an ask which was decided at `now`: each at the tail of its log.
    pub(super) fn owed(&mut self, now: Stamp, ask: &Ask) {
        for (log, &debt) in ask.logs.iter().zip(&ask.debts).filter(|(_, debt)| **debt > 0) {
            let Some(at) = self.logs.iter().position(|of| is_same(of, log)) else { continue };
            let units = u64::from(debt.min(log.largest_quota()));
            let newest = self.entries(at).iter().map(|(stamp, _)| *stamp).max();
            self.debts[at].push((newest.map_or(now.as_micros(), |newest| newest.max(now.as_micros())), units));
            self.granted[at] += units;
        }
    }

    /// What an ask was granted at `now`, and what came with it.
    pub(super) fn granted(&mut self, now: Stamp, ask: &Ask, grant: &Grant) {
        self.owed(now, ask);
        let places: Vec<usize> =
            ask.logs.iter().filter_map(|log| self.logs.iter().position(|of| is_same(of, log))).collect();
        for (log, &at) in ask.logs.iter().zip(&places).filter(|_| places.len() == ask.logs.len()) {
            let windows = log.terms.iter().filter(|term| term.shape == Shape::Window);
            self.windows[at].extend(windows.map(|term| term.cold(0)));
        }
        let same_scope = |at: &usize| ask.logs.iter().any(|log| log.scope == self.logs[*at].scope);
        let concerned: Vec<usize> = (0..self.logs.len()).filter(same_scope).collect();
        let furthest = concerned.iter().map(|&at| self.reach[at]).max().unwrap_or(0).max(ask.reach());
        for slots in slots(ask, grant) {
            // Of a log without terms nobody knows how far ahead others book.
            if slots.start > now.plus(furthest) && places.len() == ask.logs.len() {
                self.broken(14, format!("{:?} is granted at {now:?}, {furthest} µs ahead at most", slots.start));
            }
            for (&at, &units) in places.iter().zip(slots.charges.iter()) {
                self.granted[at] += u64::from(units);
            }
            self.starts.insert(slots.start);
            self.booked.push((Arc::clone(&ask.logs), slots));
        }
        if !ask.ahead.is_zero() {
            for at in concerned {
                self.reach[at] = self.reach[at].max(ask.reach());
            }
        }
    }

    /// The log time of an answer, which was to be `now`.
    pub(super) fn hear_time(&mut self, now: Stamp, message: &Message, heard: &Heard) {
        let told = match heard {
            Ok(Reply::Grant(grant)) => grant.now,
            Ok(Reply::Paused(paused)) => paused.now,
            _ => return,
        };
        if told != now {
            self.broken(13, format!("it is {now:?}, and {told:?} is told to {message:?}"));
        }
    }

    /// What logs are told to hold at `now`: each what was granted in all the logs of a call, with one start, and nothing else.
    pub(super) fn compare(&mut self, now: Stamp, logs: &[Log], usage: &[LogUsage]) {
        for (log, usage) in logs.iter().zip(usage) {
            let Some(at) = self.logs.iter().position(|of| is_same(of, log)) else { continue };
            let entries = self.entries(at);
            // What a bucket holds depends on what was handed back when.
            let windows = log.terms.iter().zip(&usage.terms).filter(|(term, _)| term.shape == Shape::Window);
            for (term, told) in windows {
                let counts = |(start, _): &&(i64, u64)| start + term.span > now.as_micros();
                let used: u64 = entries.iter().filter(counts).map(|(_, units)| units).sum();
                if used != u64::from(told.used) {
                    let what = format!("{} of {log:?} count at {now:?} by {term:?}, not {used}", told.used);
                    self.broken(12, what);
                }
            }
        }
    }

    /// Looks for a slot of an ask just granted in whose span there is more than the quota, debts included.
    pub(super) fn judge_grant(&mut self, ask: &Ask, grant: &Grant) {
        for (place, log) in ask.logs.iter().enumerate() {
            let Some(at) = self.logs.iter().position(|of| is_same(of, log)) else { continue };
            let entries = self.entries(at);
            for slots in slots(ask, grant).iter().filter(|slots| slots.charges[place] > 0) {
                for term in log.terms.iter().filter(|term| term.shape == Shape::Window) {
                    let units = window_of(&entries, term.span, slots.start.as_micros());
                    if units > u64::from(term.quota) {
                        self.broken(18, format!("{units} of {term:?} in {log:?} up to {:?}", slots.start));
                    }
                }
                // What others name holds as well; what is more than they ever let start does so when nothing else counts.
                let named = |&&(of, term): &&(usize, Term)| of == place && self.windows[at].contains(&term);
                if let Some(&(_, term)) = grant.other_term.as_deref().filter(named) {
                    let units = window_of(&entries, term.span, slots.start.as_micros());
                    if units > u64::from(term.quota.max(slots.charges[place])) {
                        let what = format!("{units} of {term:?}, which others name, up to {:?}", slots.start);
                        self.broken(1, what);
                    }
                }
            }
        }
    }

    /// Looks for a slot of an ask just granted that starts where a calendar is quiet, or in a window of it that holds more than its quota,
    /// debts aside: by the store's own clock, which log time is ahead of by `correction`. What was granted before that was set back started
    /// earlier, by what it says now.
    pub(super) fn judge_calendars(&mut self, correction: i64, ask: &Ask, grant: &Grant) {
        for (place, log) in ask.logs.iter().enumerate().filter(|(_, log)| log.has_calendar()) {
            let Some(at) = self.logs.iter().position(|of| is_same(of, log)) else { continue };
            let entries: Vec<_> = self.granted_in(at).into_iter().map(|(at, units)| (at - correction, units)).collect();
            let starts: Vec<_> = slots(ask, grant)
                .iter()
                .filter(|slots| slots.charges[place] > 0)
                .map(|slots| slots.start.as_micros() - correction)
                .collect();
            for term in log.terms.iter() {
                let Shape::Calendar(calendar) = term.shape else { continue };
                if let Some((at, units)) =
                    starts.iter().find_map(|&start| overfull(start, &entries, calendar, term.quota))
                {
                    self.broken(1, format!("{units} at {at} are too many of {term:?} in {log:?}"));
                }
            }
        }
    }

    /// Looks for a span that holds more than its quota, debts aside: what they belong to was granted before they were known.
    pub(super) fn judge(&mut self) {
        for at in 0..self.logs.len() {
            let (entries, log) = (self.granted_in(at), self.logs[at].clone());
            for term in log.terms.iter() {
                let over = match term.shape {
                    Shape::Window => {
                        let worst = worst_window_of_units(&entries, term.span);
                        (worst.count > u64::from(term.quota)).then_some((worst.at, worst.count))
                    }
                    Shape::Bucket(bucket) => overflow(&entries, bucket),
                    // By another clock than its windows: see `judge_calendars`.
                    Shape::Calendar(_) => None,
                };
                if let Some((at, units)) = over {
                    self.broken(1, format!("{units} at {at} are too many of {term:?} in {log:?}"));
                }
            }
        }
    }

    fn broken(&mut self, law: u8, what: String) {
        self.breaches.push(Breach { law, what });
    }
}

/// Whether it is one log, whatever each says of its terms.
fn is_same(one: &Log, other: &Log) -> bool {
    (one.scope, &one.unit) == (other.scope, &other.unit)
}

/// Where a bucket overflows into which these units fell, and what is in it then, in nanoseconds until it is empty.
fn overflow(entries: &[(i64, u64)], bucket: Bucket) -> Option<(i64, u64)> {
    let mut entries = entries.to_vec();
    entries.sort_unstable();
    let (mut last, mut level) = (i64::MIN, 0_i64);
    entries.into_iter().find_map(|(start, units)| {
        level = level.saturating_sub(start.saturating_sub(last).saturating_mul(1_000)).max(0);
        level += i64::try_from(units).unwrap_or(i64::MAX) * bucket.interval;
        last = start;
        (level > bucket.depth).then_some((start, level.unsigned_abs()))
    })
}

/// The boundary to which a start is too close, or after which too many units started, of which it is one.
fn overfull(start: i64, entries: &[(i64, u64)], calendar: Calendar, quota: u32) -> Option<(i64, u64)> {
    let boundaries = calendar.boundaries.map(|boundary| (boundary.from.as_micros(), boundary.to.as_micros()));
    let sum = |from: i64, until: i64| -> u64 {
        entries.iter().filter(|(start, _)| (from..until).contains(start)).map(|(_, units)| units).sum()
    };
    let is_quiet = |&&(from, to): &&(i64, i64)| (from - calendar.guard..to).contains(&start);
    let quiet = boundaries.iter().find(is_quiet).map(|&(from, _)| (from, sum(start, start + 1)));
    // An upstream whose clock is behind by a guard counts until then.
    let windows = boundaries.windows(2).map(|two| (two[0].0, two[1].1 + calendar.guard));
    let windows =
        windows.filter(|&(begin, end)| (begin..end).contains(&start)).map(|(begin, end)| (begin, sum(begin, end)));
    quiet.or_else(|| windows.into_iter().find(|(_, units)| *units > u64::from(quota)))
}

/// What an ask was granted: one slot for each caller.
fn slots(ask: &Ask, grant: &Grant) -> Vec<Slots> {
    let charges = ask.runs.iter().flat_map(|run| vec![&run.charges; run.callers as usize]);
    let answers = grant.answers(ask.callers()).flat_map(|answer| vec![answer; answer.callers as usize]);
    let granted = charges.zip(answers).filter(|(_, answer)| answer.verdict.is_granted());
    granted.map(|(charges, answer)| Slots::new(1, answer.start, Arc::clone(charges))).collect()
}
