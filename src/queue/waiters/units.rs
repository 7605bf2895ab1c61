//! How many units callers want, and how many of those come before a ticket.

use std::collections::VecDeque;

/// Tickets that are summed up together.
const BLOCK: u64 = 256;

/// Units by blocks of tickets, so that a sum over many waiters is short.
#[derive(Debug, Default)]
pub(super) struct Units {
    total: u64,
    /// Blocks that want any, ascending. Tickets are of the whole upstream: of one queue they may lie far apart.
    blocks: VecDeque<(u64, u64)>,
}

impl Units {
    /// Units of all.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// A caller came.
    pub(super) fn add(&mut self, ticket: u64, units: u64) {
        let block = ticket / BLOCK;
        self.total += units;
        match self.place(block) {
            Ok(at) => self.blocks[at].1 += units,
            Err(at) => self.blocks.insert(at, (block, units)),
        }
    }

    /// A caller went that came before.
    pub(super) fn take(&mut self, ticket: u64, units: u64) {
        let Ok(at) = self.place(ticket / BLOCK) else { return };
        self.total = self.total.saturating_sub(units);
        let of_block = &mut self.blocks[at].1;
        *of_block = of_block.saturating_sub(units);
        if *of_block == 0 {
            self.blocks.remove(at);
        }
    }

    /// The first ticket of this one's block, and the units of all blocks before it.
    pub(super) fn of_blocks_before(&self, ticket: u64) -> (u64, u64) {
        let block = ticket / BLOCK;
        let before = self.place(block).unwrap_or_else(|at| at);
        (block * BLOCK, self.blocks.range(..before).map(|(_, units)| units).sum())
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
    use super::*;

    #[test]
    fn those_who_come_seldom_to_a_queue_of_a_busy_upstream_take_no_room_for_the_tickets_of_others() {
        let mut units = Units::default();
        let tickets: Vec<u64> = (0..50).map(|caller| caller * 1_000_000).collect();
        for &ticket in &tickets {
            units.add(ticket, 2);
        }
        assert_eq!((units.total(), units.of_blocks_before(30_000_000).1), (100, 60));
        assert!(units.room() <= 64, "{}", units.room());
        for ticket in tickets {
            units.take(ticket, 2);
        }
        assert_eq!((units.total(), units.of_blocks_before(u64::MAX).1, units.blocks.len()), (0, 0, 0));
    }
}
