//! Re-entry: after a loss of data who was granted starts in a log that counts them for long says them again, and they are entered as before.
//!
//! `lua/again.lua` says the same in Redis.

use super::loss::Loss;
use super::{Ask, Ledger, MAX_MEMORY, MessageId, NOBODY, ScopeId, Slots, Stamp};

/// For so long nobody starts after a loss in a log that counts for longer than is waited for: a queue in which callers wait asks every 5 s,
/// hears of it, and says what it was granted in its next message.
pub(super) const SETTLING: i64 = 6_000_000;

/// What a queue was granted before data was lost.
///
/// ```
/// use outgate::ledger::{Again, Ask, Ledger, Log, Message, MessageId, Remembered, Run, Slots, Stamp, Term};
///
/// let (mut ledger, at) = (Ledger::new(), Stamp::from_micros); // what it held is lost
/// let logs = [Log::new("calls", [Term::new(5, 60_000_000)])];
/// let mut ask = Ask::new(logs.clone(), vec![Run::new(1, [1])]);
/// ask.remembered = Remembered::new(0, at(0), [at(90_000_000)]);
/// let told = ledger.apply(at(91_000_000), &Message::new("up", MessageId::new(1, "", 1), ask)).unwrap().grant().unwrap();
/// let (loss, survived) = *told.loss.unwrap();
/// assert_eq!((loss, survived, told.next), (at(91_000_000), 0, at(97_000_000)));
///
/// let mut ask = Ask::new(logs, vec![Run::new(1, [1])]);
/// ask.again = Some(Again::new(at(0), loss, vec![Slots::new(1, at(90_000_000), [5])]));
/// let told = ledger.apply(at(92_000_000), &Message::new("up", MessageId::new(1, "", 2), ask)).unwrap().grant().unwrap();
/// assert_eq!((told.loss, told.next), (None, at(150_000_000))); // they count as they did
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Again {
    /// When the last loss was seen of which the queue had heard before, and for which it has said this; zero where there was none.
    pub heard: Stamp,
    /// When the loss was seen that this is said for, as [`Grant::loss`](super::Grant::loss) told.
    pub loss: Stamp,
    /// What was granted to the queue before it was told, ascending, and was not handed back; none where it was said before. Starts close to
    /// each other may be one, at the latest of them.
    pub steps: Vec<Slots>,
}

impl Again {
    /// What was granted before the answer that told of a loss, of a queue that had heard of another before.
    #[must_use]
    pub const fn new(heard: Stamp, loss: Stamp, steps: Vec<Slots>) -> Self {
        Self { heard, loss, steps }
    }

    /// Whether each names units of so many logs, in their order.
    pub(super) fn is_sound(&self, logs: usize) -> bool {
        self.steps.iter().all(|step| step.charges.len() == logs)
            && self.steps.windows(2).all(|pair| pair[0].start <= pair[1].start)
    }
}

impl Ask {
    /// When the last loss was seen that the queue has heard of, and for which it has said what it was granted.
    pub(super) fn heard(&self) -> Stamp {
        self.again.as_ref().map_or(Stamp::NEVER, |again| again.heard)
    }

    /// Whether it says again what it was granted.
    pub(super) fn says_again(&self) -> bool {
        self.again.as_ref().is_some_and(|again| !again.steps.is_empty())
    }
}

impl Ledger {
    /// The last loss in the scopes of an ask that its queue has not heard of, with the number of the last message of its stream that is
    /// still remembered: what that and those before it were granted is there. Zero where logs alone were lost.
    pub(super) fn loss_to_tell(&self, now: Stamp, id: &MessageId, ask: &Ask) -> Option<Box<(Stamp, u64)>> {
        if id.sender == NOBODY {
            return None;
        }
        let losses = ask.scopes().filter_map(|scope| self.loss_of(now, scope));
        let heard = ask.again.as_ref().map_or(Stamp::NEVER, |again| again.loss);
        let news = losses.filter(|loss| loss.lost > heard);
        let told = news.reduce(Loss::and)?;
        Some(Box::new((told.lost, if told.is_of_logs { 0 } else { self.replays.last_of(now, id) })))
    }

    /// Whether a slot of this start was booked in a scope before a loss that its queue has not heard of: it may not be there, and what is there
    /// may be another's.
    pub(super) fn may_be_lost(&self, now: Stamp, scope: Option<ScopeId>, start: Stamp, ask: &Ask) -> bool {
        self.loss_of(now, scope).is_some_and(|loss| loss.lost > ask.heard() && start < loss.settles)
    }

    /// Enters again what a queue was granted before a loss, in each log that has lost it: what still counts, and was not forgotten by hand. Of
    /// more than the largest quota the newest.
    pub(super) fn enter_again(&mut self, now: Stamp, ask: &Ask) {
        let Some(again) = ask.again.as_ref().filter(|again| !again.steps.is_empty()) else { return };
        for (at, log) in ask.logs.iter().enumerate() {
            let Some(loss) = self.loss_of(now, log.scope) else { continue };
            if loss.lost <= again.heard || loss.lost > again.loss {
                continue;
            }
            let (mut left, mut steps) = (log.largest_quota(), Vec::new());
            for Slots { count, start, charges, .. } in again.steps.iter().rev() {
                let start = (*start).min(now.plus(MAX_MEMORY));
                let units = charges[at].saturating_mul(*count).min(left);
                if units > 0 && start > loss.forgotten && start.plus(log.retention()) > now {
                    left -= units;
                    steps.push((start, units));
                }
            }
            if !steps.is_empty() {
                steps.reverse();
                self.scope_mut(log.scope).logs.entry(&log.unit).insert(&steps, log.retention());
            }
        }
    }
}
