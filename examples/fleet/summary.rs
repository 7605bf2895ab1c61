//! What the calls of a run amount to.

use std::time::Duration;

use crate::args::Args;
use crate::call::{Call, End};
use crate::fair;
use crate::fleet::Outcome;
use crate::full::Full;
use crate::ledger::Verdict;
use crate::quantiles::Quantiles;
use crate::tally::Tally;
use crate::upstream::{self, Seen};

/// Everything between warm-up and end.
pub(crate) struct Summary {
    pub(crate) wanted: u32,
    pub(crate) started: u32,
    /// Starts that one queue for all processes would have had.
    pub(crate) possible: u32,
    pub(crate) refused: u32,
    pub(crate) failed: u32,
    pub(crate) tally: Tally,
    /// Of the busiest node, 1 at the most.
    pub(crate) busy: f64,
    pub(crate) round_trips: Quantiles,
    /// Waits beyond the unavoidable, where less is wanted than the quota allows. Who did not get through waited the longest.
    pub(crate) room: Quantiles,
    /// Scopes where less is wanted.
    pub(crate) with_room: u32,
    pub(crate) full: Full,
    pub(crate) verdict: Verdict,
    /// All that the upstream saw, from the first call to the last.
    pub(crate) seen: Seen,
}

impl Summary {
    pub(crate) fn new(args: &Args, outcome: Outcome) -> Self {
        let Outcome { calls, tally, verdict, end } = outcome;
        let counted = |time: Duration| (args.warm_up..end).contains(&time);
        let ended = |how: End| count(calls.iter().filter(|call| counted(call.wanted) && call.end == how));
        let mut scopes: Vec<Vec<&Call>> = vec![Vec::new(); args.scopes as usize];
        for call in &calls {
            scopes[call.scope].push(call);
        }
        let (mut room, mut full) = (Vec::new(), Full::default());
        let (mut with_room, mut all_possible) = (0, 0);
        for calls in &scopes {
            let possible = fair::one_queue(calls, &args.limit(), args.max_wait());
            all_possible += count(possible.iter().filter(|start| start.is_some_and(counted)));
            if count(calls.iter().filter(|call| counted(call.wanted))) > sustained(args) {
                full.add(args, calls, &possible, counted);
            } else {
                with_room += 1;
                let pairs = calls.iter().zip(&possible).filter(|(call, _)| counted(call.wanted));
                room.extend(pairs.filter_map(|(call, possible)| {
                    let waited = call.started().map_or(args.max_wait(), |started| started.saturating_sub(call.wanted));
                    possible.map(|possible| waited.saturating_sub(possible.saturating_sub(call.wanted)))
                }));
            }
        }
        let busiest = tally.busy.iter().max().copied().unwrap_or_default();
        Self {
            wanted: count(calls.iter().filter(|call| counted(call.wanted))),
            started: count(calls.iter().filter(|call| call.started().is_some_and(counted))),
            possible: all_possible,
            refused: ended(End::Refused),
            failed: ended(End::Failed) + ended(End::Waiting),
            busy: busiest.as_secs_f64() / f64::from(args.seconds),
            round_trips: Quantiles::of(tally.round_trips.clone()),
            room: Quantiles::of(room),
            with_room,
            full,
            verdict,
            seen: upstream::see(args, &scopes),
            tally,
        }
    }

    /// Scopes whose limit was broken, by the slots that were booked or by the calls that arrived.
    pub(crate) const fn violations(&self) -> usize {
        self.verdict.violations + self.seen.violations
    }
}

/// Calls that a scope's limit sustains in the time that is counted.
fn sustained(args: &Args) -> u32 {
    let limit = args.limit();
    let span = limit.window() + limit.guard_or_default();
    let calls = u128::from(limit.quota()) * Duration::from_secs(args.seconds.into()).as_nanos() / span.as_nanos();
    u32::try_from(calls).unwrap_or(u32::MAX)
}

fn count<T>(of: impl Iterator<Item = T>) -> u32 {
    u32::try_from(of.count()).unwrap_or(u32::MAX)
}

pub(crate) fn ratio(part: u32, whole: u32) -> f64 {
    f64::from(part) / f64::from(whole.max(1))
}
