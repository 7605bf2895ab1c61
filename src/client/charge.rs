//! What a call was charged, and what is left of it: settled and handed back as often as anybody likes, it never takes what is another's.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::client::estimate::Estimate;
use crate::client::observing::Shadow;
use crate::counts::Counts;
use crate::queue::Queue;
use crate::queue::settling::{Balance, Correction, Counted};
use crate::queue::waiters::Slot;

/// What a call was charged for its slot.
pub(crate) struct Charge {
    queue: Arc<Queue>,
    slot: Slot,
    /// Where its upstream estimates.
    estimate: Option<Arc<Estimate>>,
    state: Mutex<State>,
    /// The places of the logs of which somebody has said what it used, as bits.
    said: AtomicU64,
}

/// What is left of it.
enum State {
    /// All, and nothing else was taken.
    Whole,
    /// In each log of the queue.
    Settled(Vec<Balance>),
    /// Nothing.
    HandedBack,
}

impl Charge {
    pub(crate) fn new(queue: &Arc<Queue>, slot: Slot) -> Self {
        Self {
            queue: Arc::clone(queue),
            slot,
            estimate: None,
            state: Mutex::new(State::Whole),
            said: AtomicU64::new(0),
        }
    }

    /// Of a call that reserved estimates.
    pub(crate) fn estimated(self, estimate: Option<Arc<Estimate>>) -> Self {
        Self { estimate, ..self }
    }

    /// The slot.
    pub(crate) const fn slot(&self) -> &Slot {
        &self.slot
    }

    /// The call used so many units.
    pub(crate) fn settle(&self, unit: &str, used: u64) {
        self.estimate.iter().for_each(|estimate| estimate.settled(unit, used));
        if !matches!(*self.lock(), State::HandedBack) {
            self.queue.counts().settled(unit, used);
        }
        self.correct(unit, used);
    }

    /// What is charged becomes what the call used.
    pub(crate) fn correct(&self, unit: &str, used: u64) {
        let upstream = &**self.queue.upstream();
        if self.queue.settling().logs_of(unit).next().is_none() {
            return self.queue.settling().is_unknown(upstream, unit);
        }
        self.said.fetch_or(self.places_of(unit), Ordering::Relaxed);
        let mut state = self.lock();
        let Some(mut balances) = self.balances(&state) else { return };
        let (mut back, mut debts) = (vec![0; balances.len()], vec![0; balances.len()]);
        for (at, counted) in self.counted(unit) {
            if let (Some(balance), Some(back), Some(debt)) = (balances.get_mut(at), back.get_mut(at), debts.get_mut(at))
            {
                (*back, *debt) = balance.correct(counted.entries(used), counted.at_end);
            }
        }
        if back.iter().chain(&debts).all(|&units| units == 0) {
            return;
        }
        *state = State::Settled(balances);
        drop(state);
        tracing::debug!(upstream, unit, used, "settled");
        self.tell(back, debts);
    }

    /// Whether anybody has said what the call used of a unit.
    fn is_settled(&self, unit: &str) -> bool {
        self.said.load(Ordering::Relaxed) & self.places_of(unit) != 0
    }

    /// Whether the call takes less of a unit than so much.
    #[cfg(feature = "tower")]
    fn takes_less(&self, unit: &str, used: u64) -> bool {
        let balances = self.balances(&self.lock()).unwrap_or_default();
        let takes_less = |(at, counted): (usize, &Counted)| {
            balances.get(at).is_some_and(|balance: &Balance| balance.taken() < counted.entries(used))
        };
        self.counted(unit).any(takes_less)
    }

    /// The logs of the queue in which what the call uses of a unit counts.
    fn counted(&self, unit: &str) -> impl Iterator<Item = (usize, &Counted)> {
        let is_kept_for = self.queue.settling().is_kept_for(&self.slot.costs);
        self.queue.settling().logs_of(unit).filter(move |(_, log)| !is_kept_for || log.rest_of.is_none())
    }

    fn places_of(&self, unit: &str) -> u64 {
        self.queue.settling().logs_of(unit).fold(0, |bits, (at, _)| bits | 1 << (at % 64))
    }

    /// What is left in each log; nothing of what was handed back.
    fn balances(&self, state: &State) -> Option<Vec<Balance>> {
        match state {
            State::Whole => Some(self.slot.costs.iter().copied().map(Balance::new).collect()),
            State::Settled(balances) => Some(balances.clone()),
            State::HandedBack => None,
        }
    }

    /// Gives the whole slot to the next in queue, else what is left of it back to the log. Says whether it was the whole slot, which takes
    /// its seat along.
    pub(crate) fn hand_back(&self) -> bool {
        let state = std::mem::replace(&mut *self.lock(), State::HandedBack);
        let is_whole = matches!(state, State::Whole);
        match state {
            State::Whole => self.queue.give_back(self.slot.clone()),
            State::Settled(balances) => {
                let debts = vec![0; balances.len()];
                self.tell(balances.into_iter().map(Balance::held).collect(), debts);
            }
            State::HandedBack => {}
        }
        is_whole
    }

    fn tell(&self, back: Vec<u32>, debts: Vec<u32>) {
        if back.iter().chain(&debts).any(|&units| units > 0) {
            let (start, sender) = (self.slot.stamp, self.slot.sender);
            self.queue.settle(Correction { start, sender, back, debts });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever settles a call.
#[derive(Clone)]
pub(crate) enum Settler {
    Charged(Arc<Charge>),
    /// Of a call that went on at once, as its upstream is observed: its shadow is settled.
    Shadow(Arc<Shadow>),
    /// Of a call that nobody was asked for; with what it tells about others, where its upstream estimates.
    Uncharged(Option<Arc<Estimate>>, Counts),
}

impl Settler {
    /// The call used so many units.
    pub(crate) fn settle(&self, unit: &str, used: u64) {
        match self {
            Self::Charged(charge) => charge.settle(unit, used),
            Self::Shadow(shadow) => shadow.settle(unit, used),
            Self::Uncharged(estimate, counts) => {
                if let Some(estimate) = estimate {
                    estimate.settled(unit, used);
                }
                counts.settled(unit, used);
            }
        }
    }
}

impl Settler {
    /// Whether anybody has said what the call used of a unit, as far as that is known.
    pub(crate) fn is_settled(&self, unit: &str) -> bool {
        matches!(self, Self::Charged(charge) if charge.is_settled(unit))
    }

    /// Whether the call takes less of a unit than so much, as far as that is known.
    #[cfg(feature = "tower")]
    pub(crate) fn takes_less(&self, unit: &str, used: u64) -> bool {
        matches!(self, Self::Charged(charge) if charge.takes_less(unit, used))
    }
}

/// Whether both settle the same call.
impl PartialEq for Settler {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Charged(one), Self::Charged(other)) => Arc::ptr_eq(one, other),
            (Self::Shadow(one), Self::Shadow(other)) => Arc::ptr_eq(one, other),
            (Self::Uncharged(one, _), Self::Uncharged(other, _)) => {
                one.as_ref().map(Arc::as_ptr) == other.as_ref().map(Arc::as_ptr)
            }
            _ => false,
        }
    }
}

impl Eq for Settler {}

impl fmt::Debug for Settler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settler").finish_non_exhaustive()
    }
}
