//! What the store was told of this process, and has told of others.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::{BELIEVED, FIRST, LAPSES, STEADILY, WAITING};

/// What the store was told.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// When the store was told last, and whether anybody waited then.
    pub(super) last: Option<(Instant, bool)>,
    /// Which description of the upstream it was told, and when.
    pub(super) described: Option<(u64, Instant)>,
    /// When it was told again for a loss of data.
    pub(super) lost_data: Option<Instant>,
    /// Each process that uses the upstream is counted all the time.
    pub(super) is_steady: bool,
    /// How many processes there were, when that was known last; and whether the store had told it not long before that.
    pub(super) processes: Option<(u32, Instant, bool)>,
    /// Since when the store has counted this process without a gap.
    pub(super) counted: Option<Instant>,
    most: Most,
    /// The throttle is closed.
    pub(super) closed: bool,
}

/// The most processes that were told lately. A store that has lost its data counts those alone that have come since: fewer are believed once
/// all have had the time to come.
#[derive(Debug, Default)]
struct Most(VecDeque<(u32, Instant)>);

impl Most {
    fn of(&mut self, processes: u32, now: Instant) -> u32 {
        self.0.retain(|&(other, told)| other > processes && told + LAPSES[0] > now);
        self.0.push_back((processes, now));
        self.0.front().map_or(processes, |(most, _)| *most)
    }
}

impl Told {
    /// The store cannot be reached. What it told not long before stays known as long as that lasts: nobody else hears of others either.
    pub(super) fn lose(&mut self, now: Instant) {
        if let Some((processes, known, true)) = &mut self.processes
            && *known + BELIEVED > now
        {
            *known = now;
            self.most.of(*processes, now);
        }
    }

    /// The store was asked at `now` how many processes there are, and told it at `answered`. One that was lost has forgotten those that have not
    /// come back yet: as many as before are believed, for as long as those may take.
    pub(super) fn count(&mut self, processes: u32, now: Instant, answered: Instant) {
        let is_sure = self.processes.is_some_and(|(_, known, _)| known + BELIEVED > now);
        self.processes = Some((self.most.of(processes, now), now, is_sure));
        self.counted = self.counted.filter(|_| is_sure).or(Some(answered));
    }

    /// How long after this the store is told again: before long where the process does not know yet how many there are.
    pub(super) fn pace(&self) -> Duration {
        match self.processes {
            _ if !self.is_steady => WAITING,
            Some((.., true)) => STEADILY,
            _ => FIRST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_processes_are_believed_once_all_have_had_the_time_to_come() {
        let (mut most, begin) = (Most::default(), Instant::now());
        let told = [(0, 4), (5, 4), (7, 1), (12, 3), (17, 2), (24, 2), (25, 2), (31, 2), (32, 2), (33, 5), (34, 1)];
        let believed = told.map(|(at, processes)| most.of(processes, begin + Duration::from_secs(at)));
        assert_eq!(believed, [4, 4, 4, 4, 4, 4, 3, 3, 2, 5, 5]);
    }

    /// It has forgotten whoever could not renew meanwhile.
    #[test]
    fn after_a_store_was_lost_as_many_are_believed_as_before_as_long_as_some_may_not_have_come_back() {
        let (mut told, begin) = (Told::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let count = |told: &mut Told, (processes, seconds)| {
            told.count(processes, at(seconds), at(seconds));
            told.processes.map(|(processes, _, is_sure)| (processes, is_sure))
        };
        assert_eq!([(4, 0), (4, 1)].map(|of| count(&mut told, of)), [Some((4, false)), Some((4, true))]);
        for seconds in [6, 14, 22, 30] {
            told.lose(at(seconds));
            assert_eq!(told.processes, Some((4, at(seconds), true)), "nobody hears of others");
        }
        let believed = [(1, 36), (2, 37), (2, 49), (2, 51)].map(|of| count(&mut told, of));
        assert_eq!(believed, [4, 4, 4, 2].map(|of| Some((of, true))));
        // Of too long ago it is no more known.
        told.lose(at(70));
        assert_eq!(told.processes, Some((2, at(51), true)));
    }
}
