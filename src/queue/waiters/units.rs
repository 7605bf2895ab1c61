//! How many units callers want, and how many of those come before a ticket.

use std::collections::VecDeque;

/// Tickets that are summed up together.
const BLOCK: u64 = 256;

/// Units by blocks of tickets, so that a sum over a long waiters is short.
#[derive(Debug, Default)]
pub(super) struct Units {
    total: u64,
    /// The first block, of those from the first to the last that want any.
    first: u64,
    blocks: VecDeque<u64>,
}

impl Units {
    /// Units of all.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// A caller came.
    pub(super) fn add(&mut self, ticket: u64, units: u64) {
        let block = ticket / BLOCK;
        if self.blocks.is_empty() {
            self.first = block;
        }
        while block < self.first {
            self.first -= 1;
            self.blocks.push_front(0);
        }
        let at = self.place(block);
        if at >= self.blocks.len() {
            self.blocks.resize(at + 1, 0);
        }
        self.total += units;
        self.blocks[at] += units;
    }

    /// A caller went that came before.
    pub(super) fn take(&mut self, ticket: u64, units: u64) {
        let at = self.place(ticket / BLOCK);
        let Some(of_block) = self.blocks.get_mut(at) else { return };
        self.total = self.total.saturating_sub(units);
        *of_block = of_block.saturating_sub(units);
        while self.blocks.front() == Some(&0) {
            self.blocks.pop_front();
            self.first += 1;
        }
        while self.blocks.back() == Some(&0) {
            self.blocks.pop_back();
        }
    }

    /// The first ticket of this one's block, and the units of all blocks before it.
    pub(super) fn of_blocks_before(&self, ticket: u64) -> (u64, u64) {
        let block = ticket / BLOCK;
        let before = self.place(block).min(self.blocks.len());
        (block * BLOCK, self.blocks.range(..before).sum())
    }

    fn place(&self, block: u64) -> usize {
        usize::try_from(block.saturating_sub(self.first)).unwrap_or(usize::MAX)
    }
}
