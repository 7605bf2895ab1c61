//! Which calls go first.

use std::time::Duration;

use crate::config::limit::Limit;
use crate::config::upstream::Upstream;
pub use crate::ledger::Priority;

impl Upstream {
    /// Lets a call of low priority that has waited so long go before all others, so that it comes to its turn however many there
    /// are. Without this it waits until nobody of higher priority does.
    ///
    /// It goes before calls of its own process, and shares limits with others as if it had high priority. Where more calls of low priority
    /// wait so long than the limits serve, none of high priority has more than a share beside them:
    /// [`reserve`](Self::reserve) what those need.
    ///
    /// ```
    /// # use outgate::{Limit, Upstream};
    /// # use std::time::Duration;
    /// let bank = Upstream::new("bank").limit(Limit::per_second(100)).promote_low_after(Duration::from_secs(60));
    /// # let _ = bank;
    /// ```
    #[must_use]
    pub const fn promote_low_after(mut self, wait: Duration) -> Self {
        self.promote_low_after = Some(wait);
        self
    }

    /// Keeps `percent` of every limit, 1 to 99, for calls of this priority and of higher ones: all others may use the rest, in all
    /// processes together. What is kept and not used is lost.
    ///
    /// In numbers: of `Limit::per_second(100)` with `reserve(Priority::High, 20)`, calls of normal and low priority start 80 in a
    /// second at most, and none of them may cost more than 80. Said again, it replaces what was said before.
    ///
    /// The rest is rounded down. Of a limit of which it would be nothing, such as one call a second, nothing is kept; nor of seats:
    /// calls in flight are the same for all. Where upstreams [share](Self::shares) limits, each says it for its own calls.
    ///
    /// ```
    /// use outgate::{Limit, Priority, Upstream};
    ///
    /// let bank = Upstream::new("bank").limit(Limit::per_second(100)).reserve(Priority::High, 20);
    /// # let _ = bank;
    /// ```
    #[must_use]
    pub const fn reserve(mut self, priority: Priority, percent: u8) -> Self {
        self.reserve = Some(Reserve { for_priority: priority, percent });
        self
    }
}

/// A part of the limits that is kept for calls of a priority and of higher ones: all others are charged in a log of their own as
/// well, whose limits allow the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reserve {
    pub(crate) for_priority: Priority,
    /// How much is kept: 1 to 99.
    pub(crate) percent: u8,
}

impl Reserve {
    /// Whether calls of a priority are charged in the log of those for whom nothing is kept.
    pub(crate) const fn is_charged(self, priority: Priority) -> bool {
        priority.place() > self.for_priority.place()
    }

    /// What that log is called beside the one of a unit.
    pub(crate) fn unit(self, of: &str) -> String {
        let below = match self.for_priority {
            Priority::High => "high",
            Priority::Normal => "normal",
            Priority::Low => "low",
        };
        format!("{of}-below-{below}")
    }

    /// What is wrong with it.
    pub(crate) fn fault(self) -> Option<String> {
        if !(1..100).contains(&self.percent) {
            return Some(format!("{} % is not between 1 and 99", self.percent));
        }
        (self.for_priority == Priority::Low).then(|| "no priority is below low: nothing can be kept from it".to_owned())
    }

    /// What a limit allows those for whom nothing is kept: its quota, its burst and its refill less the part, rounded down, and one
    /// at least of the burst. `None` where that leaves no quota, or keeps nothing, and of calls in flight.
    pub(crate) fn rest_of(self, limit: &Limit) -> Option<Limit> {
        let part = u32::from(100_u8.saturating_sub(self.percent));
        let rest = |units: u32| u32::try_from(u64::from(units) * u64::from(part) / 100).ok();
        // There may be more of other units than of calls.
        let of_unit = |rest: Limit| if let Some(unit) = limit.unit_or_none() { rest.of(unit) } else { rest };
        let is_sound = (1..100).contains(&self.percent) && !limit.is_in_flight();
        let quota = rest(limit.quota()).filter(|quota| is_sound && *quota > 0)?;
        if let Some((refill, per)) = limit.refill_or_none() {
            // As little as 2 units a second are refilled: not rounded, unless it is far more than that.
            let exactly = refill.checked_mul(part).zip(per.checked_mul(100));
            let (refill, per) = exactly.or_else(|| rest(refill).map(|refill| (refill, per)))?;
            return Some(of_unit(Limit::bucket(quota, refill, per)).guard(limit.guard_or_default()));
        }
        // The same window and guard, so that both logs count an entry for as long.
        let of_rest = of_unit(Limit::new(quota, limit.window())).guard(limit.guard_or_default());
        let burst = limit.burst_or_none().and_then(rest);
        let of_rest = if let Some(reset) = limit.resets_or_none() { of_rest.resets(reset) } else { of_rest };
        Some(if let Some(burst) = burst { of_rest.burst(burst.max(1)) } else { of_rest })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::reset::Reset;
    use crate::ledger::{Ask, Ledger, Log, Message, MessageId, Run, Stamp};

    #[test]
    fn what_is_reserved_is_a_limit_on_all_others() {
        let high = Reserve { for_priority: Priority::High, percent: 20 };
        let rest = |limit: &Limit, percent| Reserve { percent, ..high }.rest_of(limit).map(|rest| rest.to_string());
        let limit = Limit::per_second(100).burst(20);
        assert_eq!(rest(&limit, 20).as_deref(), Some("80/s burst 16 guard 50ms"));
        assert_eq!(rest(&limit, 99).as_deref(), Some("1/s burst 1 guard 50ms"));
        assert_eq!(rest(&Limit::per_hour(5_000), 1).as_deref(), Some("4950/h guard 1800ms"));
        assert_eq!(rest(&Limit::per_second(3), 1).as_deref(), Some("2/s guard 50ms"), "rounded down");
        for percent in [0, 100] {
            assert_eq!(rest(&limit, percent), None, "{percent} %");
        }
        assert_eq!(rest(&Limit::per_second(1), 20), None, "nothing is left for the others");
        let refilled = |units| Limit::bucket(1_000_000, units, Duration::from_secs(60)).guard(Duration::from_secs(1));
        let of_rest =
            |units| Reserve { percent: 20, ..high }.rest_of(&refilled(units)).and_then(|rest| rest.refill_or_none());
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        assert_eq!(of_rest(50_000_000), Some((4_000_000_000, minutes(100))));
        assert_eq!(of_rest(60_000_000), Some((48_000_000, minutes(1))), "more than a number of 32 bits takes");
        let daily = Limit::per_day(1_000).resets(Reset::daily("UTC"));
        assert_eq!(high.rest_of(&daily).unwrap().resets_or_none(), daily.resets_or_none());
        let (shop, second) = (Limit::bucket(40, 2, Duration::from_secs(1)), Duration::from_secs(1));
        let of_shop = Limit::bucket(32, 160, 100 * second).guard(shop.guard_or_default());
        assert_eq!(high.rest_of(&shop), Some(of_shop.clone()));
        assert_eq!(of_shop.window(), 20 * second, "it fills as slowly");
        assert_eq!(high.rest_of(&Limit::in_flight(25)), None);
        let charged = |reserve: Reserve| {
            [Priority::High, Priority::Normal, Priority::Low].map(|priority| reserve.is_charged(priority))
        };
        assert_eq!((charged(high), high.unit("calls")), ([false, true, true], "calls-below-high".to_owned()));
        let normal = Reserve { for_priority: Priority::Normal, ..high };
        assert_eq!((charged(normal), normal.unit("tokens")), ([false, false, true], "tokens-below-normal".to_owned()));
    }

    /// A process of an upstream whose calls are charged in some logs, and a ledger that all of them ask.
    struct Process {
        sender: u64,
        charges: [u32; 2],
        waiting: Vec<Stamp>,
        counted: Vec<Stamp>,
        /// How long each of its callers waited, and when it started.
        served: Vec<(Duration, Stamp)>,
    }

    impl Process {
        fn new(sender: u64, charges: [u32; 2]) -> Self {
            Self { sender, charges, waiting: Vec::new(), counted: Vec::new(), served: Vec::new() }
        }

        /// Asks for all that wait.
        fn ask(&mut self, ledger: &mut Ledger, logs: &Arc<[Log]>, now: Stamp) {
            let callers = u32::try_from(self.waiting.len()).unwrap();
            let ask = Ask::new(Arc::clone(logs), vec![Run::new(callers, self.charges)]);
            let ask = Ask { counted: self.counted.clone(), ..ask };
            let number = u64::try_from(now.as_micros()).unwrap();
            let message = Message::new("up", MessageId::new(self.sender, "", number), ask);
            let grant = ledger.apply(now, &message).unwrap().grant().unwrap();
            for answer in grant.answers(callers).filter(|answer| answer.verdict.is_granted()) {
                let served = self.waiting.drain(..answer.callers as usize);
                self.served.extend(served.map(|came| (answer.start.since(came), answer.start)));
            }
            self.counted = grant.counted;
        }

        fn served_since(&self, begin: Stamp) -> usize {
            self.served.iter().filter(|(_, start)| *start >= begin).count()
        }
    }

    #[test]
    fn beside_four_processes_that_want_more_than_there_is_high_callers_have_what_is_reserved() {
        let (limit, reserve) = (Limit::per_second(100), Reserve { for_priority: Priority::High, percent: 20 });
        let log = |unit: &str, limit: &Limit| Log::new(unit, limit.terms("up").unwrap());
        let rest = reserve.rest_of(&limit).unwrap();
        let logs: Arc<[Log]> = [log("calls", &limit), log(&reserve.unit("calls"), &rest)].into();
        let mut ledger = Ledger::new();
        let mut low: Vec<Process> = (1..5).map(|sender| Process::new(sender, [1, 1])).collect();
        let mut high = Process::new(5, [1, 0]);
        let at = |ms: i64| Stamp::from_micros(1_000_000_000 + 1_000 * ms);
        for ms in 0..60_000 {
            if ms % 67 == 0 {
                // 15 a second.
                high.waiting.push(at(ms));
            }
            if ms % 10 == 5 && !high.waiting.is_empty() {
                high.ask(&mut ledger, &logs, at(ms));
            }
            for (process, _) in low.iter_mut().zip([0, 25, 50, 75]).filter(|(_, turn)| ms % 100 == *turn) {
                process.waiting.resize(64, at(ms));
                process.ask(&mut ledger, &logs, at(ms));
            }
        }
        let begin = at(10_000);
        let mut waits: Vec<Duration> = high.served.iter().filter(|(_, start)| *start >= begin).map(|of| of.0).collect();
        waits.sort_unstable();
        let (p99, most) = (waits[waits.len() * 99 / 100], waits[waits.len() - 1]);
        let served: usize = low.iter().map(|process| process.served_since(begin)).sum();
        // Of 80 in each second and its guard, for fifty seconds.
        let share = f64::from(u32::try_from(served).unwrap()) / (80.0 * 50.0 / 1.05);
        println!("high waited {p99:?} at p99, {most:?} at most; low got {share:.3} of its part");
        assert!(p99 <= Duration::from_millis(500) && share >= 0.99, "{p99:?} {share}");
    }
}
