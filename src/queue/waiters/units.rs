//! How many units of each log callers want, and how many of those come before a ticket.

use std::collections::VecDeque;

use super::waiter::Waiter;
use crate::config::costs::Costs;

/// Tickets that are summed up together.
const BLOCK: u64 = 256;

/// Units of each log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Units {
    /// Calls that take one of each.
    ones: u64,
    /// What all others take, by the order of the logs.
    others: Vec<u64>,
}

impl Units {
    /// Units of the log at that place.
    pub(crate) fn of(&self, log: usize) -> u64 {
        self.ones + self.others.get(log).copied().unwrap_or(0)
    }

    /// A call's are added.
    pub(crate) fn add(&mut self, costs: &Costs) {
        match costs {
            Costs::OneEach(0) => {}
            Costs::OneEach(_) => self.ones += 1,
            Costs::Others(units) => self.add_others(units.iter().map(|&units| units.into())),
        }
    }

    /// Those of a call that were added before are taken out.
    pub(crate) fn take(&mut self, costs: &Costs) {
        match costs {
            Costs::OneEach(0) => {}
            Costs::OneEach(_) => self.ones = self.ones.saturating_sub(1),
            Costs::Others(units) => {
                for (sum, &units) in self.others.iter_mut().zip(&**units) {
                    *sum = sum.saturating_sub(units.into());
                }
            }
        }
    }

    /// All of these and all of those.
    pub(crate) fn and(mut self, others: &Self) -> Self {
        self.ones += others.ones;
        self.add_others(others.others.iter().copied());
        self
    }

    /// What is left of each without those, which are some of them or come before.
    pub(crate) fn without(mut self, those: &Self) -> Self {
        if self.others.is_empty() && those.others.is_empty() {
            self.ones = self.ones.saturating_sub(those.ones);
            return self;
        }
        let logs = self.others.len().max(those.others.len());
        let others = (0..logs).map(|log| self.of(log).saturating_sub(those.of(log))).collect();
        Self { ones: 0, others }
    }

    fn add_others(&mut self, units: impl ExactSizeIterator<Item = u64>) {
        if self.others.len() < units.len() {
            self.others.resize(units.len(), 0);
        }
        self.others.iter_mut().zip(units).for_each(|(sum, units)| *sum += units);
    }

    fn is_nothing(&self) -> bool {
        self.ones == 0 && self.others.iter().all(|&units| units == 0)
    }
}

/// Units that callers want, by blocks of tickets, so that a sum over many waiters is short.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    total: Units,
    /// Blocks that want any, ascending. Tickets are of the whole upstream: of one queue they may lie far apart.
    blocks: VecDeque<(u64, Units)>,
}

impl Wanted {
    /// Units of all.
    pub(super) const fn total(&self) -> &Units {
        &self.total
    }

    /// A caller came.
    pub(super) fn add(&mut self, waiter: &Waiter) {
        let block = waiter.ticket / BLOCK;
        self.total.add(&waiter.costs);
        let at = self.place(block).unwrap_or_else(|at| {
            self.blocks.insert(at, (block, Units::default()));
            at
        });
        self.blocks[at].1.add(&waiter.costs);
    }

    /// A caller went that came before.
    pub(super) fn take(&mut self, waiter: &Waiter) {
        let Ok(at) = self.place(waiter.ticket / BLOCK) else { return };
        self.total.take(&waiter.costs);
        let of_block = &mut self.blocks[at].1;
        of_block.take(&waiter.costs);
        if of_block.is_nothing() {
            self.blocks.remove(at);
        }
    }

    /// The first ticket of this one's block, and the units of all blocks before it.
    pub(super) fn of_blocks_before(&self, ticket: u64) -> (u64, Units) {
        let block = ticket / BLOCK;
        let before = self.place(block).unwrap_or_else(|at| at);
        let sum = self.blocks.range(..before).fold(Units::default(), |sum, (_, units)| sum.and(units));
        (block * BLOCK, sum)
    }

    fn place(&self, block: u64) -> Result<usize, usize> {
        self.blocks.binary_search_by_key(&block, |(block, _)| *block)
    }

    /// Blocks that it has room for.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.blocks.capacity()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::config::priority::Priority;
    use crate::queue::waiters::Wish;

    fn waiter(ticket: u64, costs: &[u32]) -> Waiter {
        let costs = Costs::of(&costs.into());
        Waiter { ticket, costs, joined: Instant::now(), wish: Wish::Soon, priority: Priority::Normal }
    }

    #[test]
    fn those_who_come_seldom_to_a_queue_of_a_busy_upstream_take_no_room_for_the_tickets_of_others() {
        let mut wanted = Wanted::default();
        let waiters: Vec<Waiter> = (0..50).map(|caller| waiter(caller * 1_000_000, &[2])).collect();
        for waiter in &waiters {
            wanted.add(waiter);
        }
        assert_eq!((wanted.total().of(0), wanted.of_blocks_before(30_000_000).1.of(0)), (100, 60));
        assert!(wanted.room() <= 64, "{}", wanted.room());
        for waiter in &waiters {
            wanted.take(waiter);
        }
        assert_eq!((wanted.total().of(0), wanted.blocks.len()), (0, 0));
    }

    #[test]
    fn units_of_each_log_are_summed_up_by_themselves() {
        let mut wanted = Wanted::default();
        let waiters = [waiter(0, &[1, 1]), waiter(1, &[1, 1_500]), waiter(300, &[0, 20]), waiter(600, &[1, 1])];
        for waiter in &waiters {
            wanted.add(waiter);
        }
        let of = |units: &Units| [0, 1, 2].map(|log| units.of(log));
        // Whoever takes one of each takes one of whatever log there is.
        assert_eq!(of(wanted.total()), [3, 1_522, 2]);
        assert_eq!(of(&wanted.of_blocks_before(512).1), [2, 1_521, 1]);
        let mut slots = Units::default();
        slots.add(&waiters[1].costs);
        assert_eq!(of(&wanted.total().clone().without(&slots))[..2], [2, 22]);
        assert_eq!(of(&slots.clone().without(wanted.total()))[..2], [0, 0]);
        slots.take(&waiters[1].costs);
        assert!(slots.is_nothing());
        let nothing = Costs::of(&[].into());
        slots.add(&nothing);
        slots.take(&nothing);
        assert!(slots.is_nothing(), "a call that is charged nowhere takes nothing");
    }
}
