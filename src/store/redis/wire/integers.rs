//! The integers that a script is given.

use crate::ledger::{Again, Ask, Cause, Cold, Log, Message, Pause, Report, Seats, Shape, Slots, Stamp, Term, micros};

/// The largest integer that Lua keeps exactly.
const EXACT: i64 = 1 << 53;

/// What callers are less of a higher priority, and more of a lower one.
const OF_A_PRIORITY: i64 = 1 << 32;

/// The integers of a message, each as a double, in which Lua counts; the lowest byte first.
pub(super) struct Integers(Vec<u8>);

impl Integers {
    /// What every message begins with.
    pub(super) fn of(message: &Message) -> Self {
        let mut integers = Self(Vec::with_capacity(256));
        let number = if message.id.is_nobodys() { 0 } else { message.id.number };
        integers.push(number).push(message.id.previous);
        integers.stamp(message.known).stamp(message.latest);
        integers
    }

    pub(super) fn push(&mut self, integer: impl TryInto<i64>) -> &mut Self {
        let integer = integer.try_into().unwrap_or(EXACT).clamp(-EXACT, EXACT);
        #[expect(clippy::cast_precision_loss, reason = "no more than a double holds exactly")]
        self.0.extend_from_slice(&(integer as f64).to_le_bytes());
        self
    }

    /// Nothing is zero.
    pub(super) fn stamp(&mut self, stamp: Option<Stamp>) -> &mut Self {
        self.push(stamp.map_or(0, Stamp::as_micros))
    }

    pub(super) fn ask(&mut self, ask: &Ask) {
        self.push(micros(ask.horizon)).push(micros(ask.ahead)).push(
            u32::from(ask.insist)
                + 2 * u32::from(ask.cold.is_some())
                + 4 * u32::from(!ask.debts.is_empty())
                + 8 * u32::from(ask.seats.is_some())
                + 16 * ask.weight.saturating_sub(1)
                + 2_048 * u32::from(ask.again.is_some())
                + 4_096 * u32::from(!ask.remembered.apart.is_empty())
                + 8_192 * u32::from(ask.observes),
        );
        self.logs(&ask.logs, &ask.counted);
        self.push(ask.remembered.number).stamp(Some(ask.remembered.told));
        let of = |all: &[Stamp], at: usize| all.get(at).map_or(0, |stamp| stamp.as_micros());
        for at in 0..ask.logs.len() {
            let apart = of(&ask.remembered.apart, at);
            self.push(if apart > 0 { -apart } else { of(&ask.remembered.newest, at) });
        }
        if !ask.remembered.apart.is_empty() {
            self.stamp(Some(ask.remembered.lost_at));
        }
        if let Some(Again { heard, loss, steps, .. }) = &ask.again {
            self.stamp(Some(*heard)).stamp(Some(*loss)).push(steps.len() as u64);
            for Slots { count, start, charges, .. } in steps {
                self.stamp(Some(*start));
                charges.iter().for_each(|units| _ = self.push(units.saturating_mul(*count)));
            }
        }
        if let Some(Cold { first, last, charges, .. }) = &ask.cold {
            self.push(first.as_micros()).push(last.as_micros());
            charges.iter().for_each(|&units| _ = self.push(units));
            ask.logs.iter().flat_map(|log| log.terms.iter()).for_each(|term| _ = self.push(term.cold));
        }
        ask.debts.iter().for_each(|&units| _ = self.push(units));
        if let Some(Seats { limits, kept, idle, lease, .. }) = &ask.seats {
            self.push(micros(*lease)).push(*kept).push(*idle);
            limits.iter().for_each(|limit| _ = self.push(limit.seats));
        }
        self.push(ask.back.len() as u64);
        for Slots { count, start, charges, looks } in &ask.back {
            self.push(start.as_micros()).push(*looks);
            for units in charges.iter() {
                self.push(units.saturating_mul(*count));
            }
        }
        for run in &ask.runs {
            self.push(i64::from(run.callers) + run.priority.below_normal() * OF_A_PRIORITY);
            self.push(run.max_wait.map_or(-1, micros));
            for &units in run.charges.iter() {
                self.push(units);
            }
        }
    }

    pub(super) fn usage(&mut self, logs: &[Log]) {
        self.push(0).push(0).push(0);
        self.logs(logs, &[]);
    }

    /// The scopes, in which period each has counted the sender, and each log with the place of its scope and its terms.
    fn logs(&mut self, logs: &[Log], counted: &[Stamp]) {
        let count = Log::scopes(logs).count();
        self.push(count as u64).push(logs.first().is_some_and(|log| log.scope.is_none()));
        for place in 0..count {
            self.stamp(counted.get(place).copied());
        }
        let (mut place, mut last) = (0_u32, None);
        for log in logs {
            place += u32::from(last.replace(log.scope) != Some(log.scope));
            self.push(place).push(log.terms.len() as u64);
            log.terms.iter().for_each(|term| self.term(*term));
        }
    }

    fn term(&mut self, term: Term) {
        let (span, more) = shape(term);
        self.push(term.quota).push(span);
        for part in more {
            self.push(part);
        }
    }

    pub(super) fn pause(&mut self, pause: &Pause) {
        self.push(micros(pause.recovery)).push(code(pause.cause)).push(micros(pause.memory)).stamp(pause.started);
        self.push(micros(pause.told)).push(pause.status);
        let evidence = pause.log_of_calls();
        self.push(evidence.map_or(0, |of| of.calls)).push(evidence.map_or(0, |of| of.units));
        let windows = evidence.map_or(&[][..], |of| &of.windows);
        self.push(windows.len() as u64);
        for (term, window) in windows {
            self.push(term.quota).push(term.span).push(micros(*window));
        }
        for &wait in &pause.waits {
            self.push(micros(wait));
        }
        if pause.waits.is_empty() {
            self.push(0);
        }
    }

    pub(super) fn report(&mut self, report: &Report) {
        self.stamp(report.started).push(micros(report.late));
        for quota in &report.quotas {
            let (span, more) = shape(quota.term);
            self.push(quota.term.quota).push(span).push(micros(quota.window));
            self.push(quota.remaining).push(micros(quota.reset));
            for part in more {
                self.push(part);
            }
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
impl Integers {
    pub(super) const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(super) fn read(&self) -> Vec<i64> {
        let (doubles, rest) = self.0.as_chunks::<8>();
        assert!(rest.is_empty());
        #[expect(clippy::cast_possible_truncation, reason = "an integer was written")]
        doubles.iter().map(|bytes| f64::from_le_bytes(*bytes) as i64).collect()
    }
}

/// The span of a term, negative where it is no window, and what follows then.
fn shape(term: Term) -> (i64, Vec<i64>) {
    match term.shape {
        Shape::Window => (term.span, Vec::new()),
        Shape::Bucket(bucket) => (-term.span, vec![1, bucket.interval, bucket.depth]),
        Shape::Calendar(calendar) => {
            let boundaries = calendar.boundaries.iter().flat_map(|boundary| [boundary.from, boundary.to]);
            (-term.span, [2, calendar.guard].into_iter().chain(boundaries.map(Stamp::as_micros)).collect())
        }
    }
}

/// What the scripts call a cause.
const fn code(cause: Cause) -> u8 {
    match cause {
        Cause::Overload => 0,
        Cause::Refusal => 1,
        Cause::Spend => 2,
        Cause::Ban => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lua_cannot_count_is_as_much_as_it_can() {
        let mut integers = Integers::new(Vec::new());
        integers.push(i64::MAX).push(u64::MAX).push(i64::MIN);
        assert_eq!(integers.read(), [EXACT, EXACT, -EXACT]);
    }
}
