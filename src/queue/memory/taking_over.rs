//! What a queue takes over of what another remembers, whose place it takes as limits are replaced.

use std::collections::VecDeque;

use super::{Memory, Step, enter};
use crate::ledger::{Log, Slots};

/// Of a start of which it is not known which message it was granted by.
const LONG_AGO: (u64, u64) = (1, 1);

/// Starts that are given up, and for how long the store must hold them, where that is shorter than the logs counted.
type Given = (Step, Option<Box<[i64]>>);

impl Memory {
    /// Remembers what the queue did whose place this one takes, and which forgets it: of the logs that both are charged in, `theirs` and `ours`.
    pub(in super::super) fn take_over(&mut self, before: &mut Self, theirs: &[Log], ours: &[Log]) {
        let places = places(theirs, ours);
        let (older, starts) = before.give_up(&places);
        // Whoever has heard of no loss since says all again: rather twice than never.
        self.heard = if self.written.is_none() { before.heard } else { self.heard.min(before.heard) };
        self.untold = self.untold.or(before.untold);
        (self.written, self.granted_at) = (self.written.max(before.written), self.granted_at.max(before.granted_at));
        self.answer = self.answer.max(before.answer);
        let counted: Box<[i64]> = theirs.iter().map(Log::retention).collect();
        for (step, kept) in starts {
            let kept = shorter(kept.as_ref().unwrap_or(&counted), &places, ours);
            self.note((step.start, step.granted_by), step.units.iter().copied(), ours.len(), kept);
        }
        if self.counts_for_long() {
            self.take_in(older);
        }
    }

    /// Slots go back of a queue whose place this one took.
    pub(in super::super) fn handed_back_by(&mut self, slots: &Slots, theirs: &[Log], ours: &[Log]) {
        let units = |place: Option<usize>| place.map_or(0, |at| slots.charges[at]);
        let charges = places(theirs, ours).into_iter().map(units).collect::<Vec<_>>();
        self.handed_back(&Slots::new(slots.count, slots.start, charges));
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.starts.is_empty() && self.older.is_empty()
    }

    /// All starts, with their units at these places of another queue's logs, where they have any there: older ones, and others, with how long
    /// the store must hold them.
    fn give_up(&mut self, places: &[Option<usize>]) -> (Vec<Step>, Vec<Given>) {
        let width = self.units.len().checked_div(self.starts.len()).unwrap_or(0);
        let give = |start, granted_by, units: &mut [u32]| {
            let of = |place: &Option<usize>| place.and_then(|at| units.get_mut(at)).map_or(0, std::mem::take);
            let units: Box<[u32]> = places.iter().map(of).collect();
            units.iter().any(|units| *units > 0).then_some(Step { start, units, granted_by })
        };
        let older = self.older.iter_mut().filter_map(|step| give(step.start, step.granted_by, &mut step.units));
        let older = older.collect();
        let rows = self.units.make_contiguous().chunks_mut(width.max(1)).zip(&self.starts).enumerate();
        let starts = rows.filter_map(|(at, (units, start))| {
            let granted_by = self.granted_by.get(at).copied().unwrap_or(LONG_AGO);
            give(*start, granted_by, units).map(|step| (step, self.kept.of(at).map(Into::into)))
        });
        let given = (older, starts.collect());
        let is_any = self.older.iter().flat_map(|step| &step.units).chain(&self.units).any(|units| *units > 0);
        if !is_any {
            self.older.clear();
            self.forget_first(self.starts.len(), width);
        }
        given
    }

    fn take_in(&mut self, older: Vec<Step>) {
        let mut all: Vec<Step> = std::mem::take(&mut self.older).into_iter().chain(older).collect();
        all.sort_by_key(|step| step.start);
        let mut older = VecDeque::new();
        for step in all {
            enter(&mut older, step.start, &step.units, step.granted_by, self.span);
        }
        self.older = older;
    }
}

/// Where each of our logs is among theirs.
fn places(theirs: &[Log], ours: &[Log]) -> Vec<Option<usize>> {
    let place = |ours: &Log| theirs.iter().position(|theirs| theirs.name() == ours.name());
    ours.iter().map(place).collect()
}

/// For how long the store must hold what it had to hold for so long, by our logs, where that is shorter than these count.
fn shorter(kept: &[i64], places: &[Option<usize>], ours: &[Log]) -> Option<Box<[i64]>> {
    let least =
        |(place, log): (&Option<usize>, &Log)| place.map_or(log.retention(), |at| kept[at].min(log.retention()));
    let least: Box<[i64]> = places.iter().zip(ours).map(least).collect();
    least.iter().zip(ours).any(|(least, log)| *least < log.retention()).then_some(least)
}
