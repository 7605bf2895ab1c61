//! What all queues of one process share: the store, and the process's name there.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::ledger::MessageId;
use crate::store::{MemoryStore, Store};

/// Numbers of messages are up to so many bits apart. A store reads them as floats, of 53 bits.
const STEP_BITS: u32 = 12;

/// One throttle, as its store knows it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) store: Arc<dyn Store>,
    /// The same, where it is in memory.
    memory: Option<MemoryStore>,
    /// A name from the operating system's randomness, so that a process that starts anew is another one.
    id: AtomicU64,
    pub(crate) horizon: Duration,
    /// For how many it counts where limits are shared.
    pub(crate) weight: u32,
    numbers: AtomicU64,
    /// Whether the store answers before it is waited for, as far as is known.
    at_hand: AtomicBool,
    /// When it began, by the machine's own clock.
    epoch: std::time::Instant,
    /// Whoever tells the store what upstreams said.
    teller: OnceLock<Box<dyn Teller>>,
}

/// Whoever tells the store what upstreams said.
pub(crate) trait Teller: fmt::Debug + Send + Sync {
    /// Somebody waits, or looks, in a runtime: what nobody tells any more can be told there.
    fn see_to_news(&self);
}

impl Process {
    /// A process of the weight 1, that is not mistaken for another: two with one name would get each other's slots.
    ///
    /// # Errors
    ///
    /// When the operating system gives no randomness.
    pub(crate) fn new(store: Arc<dyn Store>, horizon: Duration) -> Result<Self, getrandom::Error> {
        let (id, numbers) = (AtomicU64::new(getrandom::u64()?), AtomicU64::new(0));
        let (at_hand, epoch) = (AtomicBool::new(true), std::time::Instant::now());
        let teller = OnceLock::new();
        Ok(Self { store, memory: None, id, horizon, weight: 1, numbers, at_hand, epoch, teller })
    }

    /// The same, whose store may be this one in memory.
    pub(crate) fn in_memory(self, memory: Option<MemoryStore>) -> Self {
        Self { memory, ..self }
    }

    /// The same, which counts for so many.
    pub(crate) fn weighing(self, weight: u32) -> Self {
        Self { weight, ..self }
    }

    /// Has this tell the store what upstreams said.
    pub(crate) fn let_tell(&self, teller: impl Teller + 'static) {
        // There is one for each process.
        _ = self.teller.set(Box::new(teller));
    }

    /// Somebody waits, or looks, in a runtime: what nobody tells the store any more can be told there.
    pub(crate) fn see_to_news(&self) {
        if let Some(teller) = self.teller.get() {
            teller.see_to_news();
        }
    }

    /// What the store calls it.
    pub(crate) fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// Takes another name, unless that has been done: another process has this one. A machine that was cloned while it ran has
    /// two of each process.
    pub(crate) fn rename(&self, id: u64) {
        let other = getrandom::u64().unwrap_or_else(|_| fastrand::u64(..));
        if self.id.compare_exchange(id, other, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            tracing::warn!("another process has the same name, or the store has lost data: goes on under a new name");
        }
    }

    /// The number of the next message; they ascend in every stream.
    ///
    /// By steps that differ between two clones: they have the same memory and the same randomness, but seldom the same nanosecond.
    pub(crate) fn next_number(&self) -> u64 {
        let nanos = u64::from(self.epoch.elapsed().subsec_nanos());
        // Its upper bits depend on all bits of the time, whose lowest a coarse clock leaves empty. No step leaves the last bits as they are, by
        // which a short answer says whose it is.
        let step = 1 + (nanos.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - STEP_BITS)) % ((1 << STEP_BITS) - 1);
        self.numbers.fetch_add(step, Ordering::Relaxed) + step
    }

    /// The next message of a stream, whose last one is answered.
    pub(crate) fn next_message(&self, stream: Arc<str>) -> MessageId {
        MessageId::new(self.id(), stream, self.next_number())
    }

    /// The store, where it is in memory: it is asked without a message.
    pub(crate) const fn memory(&self) -> Option<&MemoryStore> {
        self.memory.as_ref()
    }

    /// Whether the store may have its answers at hand.
    pub(crate) fn answers_at_hand(&self) -> bool {
        self.at_hand.load(Ordering::Relaxed)
    }

    /// The store has to be waited for.
    pub(crate) fn answers_later(&self) {
        self.at_hand.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_whose_own_generators_agree_have_different_names() {
        let name = || {
            fastrand::seed(7);
            Process::new(Arc::new(MemoryStore::new()), Duration::ZERO).unwrap().id()
        };
        assert_ne!(name(), name());
    }

    #[test]
    fn numbers_ascend_and_those_of_a_clone_are_others() {
        let [process, clone] = [(); 2].map(|()| Process::new(Arc::new(MemoryStore::new()), Duration::ZERO).unwrap());
        let numbers = |process: &Process| (0..100).map(|_| process.next_number()).collect::<Vec<_>>();
        let (ours, others) = (numbers(&process), numbers(&clone));
        assert!(ours.windows(2).all(|pair| pair[0] < pair[1]), "{ours:?}");
        assert!(ours[99] <= 100 << STEP_BITS);
        let same = ours.iter().filter(|number| others.contains(number)).count();
        assert!(same < 5, "{ours:?} {others:?}");
    }

    #[test]
    fn no_number_has_the_last_bits_of_the_one_before() {
        let process = Process::new(Arc::new(MemoryStore::new()), Duration::ZERO).unwrap();
        let last_bits = |_| process.next_number() % (1 << STEP_BITS);
        let all: Vec<_> = (0..200_000).map(last_bits).collect();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn a_name_is_given_up_once() {
        let process = Process::new(Arc::new(MemoryStore::new()), Duration::ZERO).unwrap();
        let first = process.id();
        process.rename(first);
        let second = process.id();
        process.rename(first);
        assert_eq!(process.id(), second, "whoever is told later of the same name changes nothing");
        assert_ne!(first, second);
    }
}
