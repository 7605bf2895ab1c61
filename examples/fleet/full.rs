//! The scopes of which more is wanted than their quota allows.

use std::time::Duration;

use crate::args::Args;
use crate::call::Call;
use crate::fair;
use crate::quantiles::Quantiles;
use crate::summary::ratio;

/// What came of the full scopes.
#[derive(Default)]
pub(crate) struct Full {
    pub(crate) scopes: u32,
    started: u32,
    /// Starts that one queue for all processes would have had.
    possible: u32,
    waits: Vec<Duration>,
    /// Of each in which anybody started, the most wanted first.
    pub(crate) fair: Vec<Fair>,
}

/// How fair a scope was to the processes that share it.
#[derive(Clone, Copy)]
pub(crate) struct Fair {
    /// Calls that a process started, on average.
    pub(crate) each: f64,
    /// Jain's index of what they got.
    pub(crate) index: f64,
    /// What it would have been in one queue, first come first served.
    pub(crate) in_queue: f64,
}

impl Full {
    /// Adds the calls of a scope, with the starts that they would have had in one queue.
    pub(crate) fn add(
        &mut self,
        args: &Args,
        calls: &[&Call],
        possible: &[Option<Duration>],
        counted: impl Fn(Duration) -> bool + Copy,
    ) {
        let of_nobody = || vec![0.0; args.processes as usize];
        let (mut wanted, mut got, mut in_queue) = (of_nobody(), of_nobody(), of_nobody());
        for (call, possible) in calls.iter().zip(possible) {
            if counted(call.wanted) {
                wanted[call.process] += 1.0;
                let both = call.started().zip(*possible);
                self.waits.extend(both.map(|(started, possible)| started.saturating_sub(possible)));
            }
            if call.started().is_some_and(counted) {
                got[call.process] += 1.0;
                self.started += 1;
            }
            if possible.is_some_and(counted) {
                in_queue[call.process] += 1.0;
                self.possible += 1;
            }
        }
        self.scopes += 1;
        let (index, in_queue) = (fair::index(&wanted, &got), fair::index(&wanted, &in_queue));
        let each = got.iter().sum::<f64>() / f64::from(args.processes);
        self.fair.extend((each > 0.0).then_some(Fair { each, index, in_queue }));
    }

    /// Starts as a share of those that were possible.
    pub(crate) fn used(&self) -> f64 {
        ratio(self.started, self.possible)
    }

    /// Waits beyond those in one queue, of whoever got through.
    pub(crate) fn waits(&self) -> Quantiles {
        Quantiles::of(self.waits.clone())
    }
}
