//! Re-entry: after a loss of data who was granted starts in a log that counts them for long says them again, and they are entered as before.
//!
//! `lua/again.lua` says the same in Redis.

use super::loss::{Loss, SHORT};
use super::{Ask, Ledger, Log, MAX_MEMORY, MessageId, ScopeId, Slots, Stamp};

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

    /// When the last loss was seen that the queue has heard of.
    pub(super) fn says_for(&self) -> Stamp {
        self.again.as_ref().map_or(Stamp::NEVER, |again| again.loss)
    }

    /// Whether its queue remembers that it was granted anything that counts.
    pub(super) fn remembers(&self) -> bool {
        let mut counting = self.logs.iter().enumerate().filter(|(_, log)| log.retention() > 0);
        counting.any(|(at, _)| self.remembered.granted(at).is_some())
    }

    /// Whether it is remembered though it may change nothing. Of what counts for long its queue names an entry for as long, but a message only
    /// for a minute: were none of the last minute there, whoever books after a loss would hide it.
    pub(super) fn must_be_remembered(&self, now: Stamp) -> bool {
        let is_old = self.remembered.number == 0 || self.remembered.told.plus(MAX_MEMORY / 2) <= now;
        self.retention() > SHORT && self.remembers() && is_old
    }

    /// Whether it says again what it was granted.
    pub(crate) fn says_again(&self) -> bool {
        self.again.as_ref().is_some_and(|again| !again.steps.is_empty())
    }
}

impl Ledger {
    /// The last loss in the scopes of an ask that its queue has not heard of, with the number of the last message of its stream that is
    /// still remembered: what that and those before it were granted is there. Zero where logs alone were lost.
    pub(super) fn loss_to_tell(&self, now: Stamp, id: &MessageId, ask: &Ask) -> Option<Box<(Stamp, u64)>> {
        if id.is_nobodys() {
            return None;
        }
        let losses = ask.scopes().filter_map(|scope| self.loss_of(now, scope));
        let news = losses.filter(|loss| loss.lost > ask.says_for());
        let told = news.reduce(Loss::and)?;
        Some(Box::new((told.lost, if told.is_of_logs { 0 } else { self.replays.last_of(now, id) })))
    }

    /// Whether an ask is granted nothing yet: others may not have said what they were granted before a loss, or its own queue has not, and
    /// hears of it by the answer.
    pub(super) fn withholds(&self, now: Stamp, ask: &Ask, tells_loss: bool) -> bool {
        let is_settling = |log: &Log| {
            let loss = self.loss_of(now, log.scope).filter(|loss| loss.lost > Stamp::NEVER);
            // Nothing is waited for any more where all was forgotten by hand.
            log.retention() > SHORT && loss.is_some_and(|loss| now < loss.settles.min(loss.lost.plus(SETTLING)))
        };
        (tells_loss && ask.remembers()) || ask.logs.iter().any(is_settling)
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
            steps.reverse();
            if let Some(&(first, _)) = steps.first() {
                // Its queue may remember an earlier entry than it says: what lies close together is one step, and another may be too deep.
                let since = ask.remembered.granted(at).map_or(first, |newest| first.min(newest));
                let scope = self.scope_mut(log.scope);
                let entries = scope.logs.entry(&log.unit);
                entries.insert(&steps, log.retention());
                if log.retention() > SHORT || entries.life().is_known(now) {
                    entries.live_on(now, log.retention(), Some(since));
                }
                scope.constrain(|of, _| of.loss.iter_mut().for_each(|loss| loss.is_said = true));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ledger::{Grant, Message, Remembered, Run, Term};

    const SECOND: i64 = 1_000_000;
    const MINUTE: i64 = 60 * SECOND;

    const fn at(micros: i64) -> Stamp {
        Stamp::from_micros(1_000 * SECOND + micros)
    }

    fn calls(span: i64) -> Log {
        Log::new("calls", [Term::new(100, span)])
    }

    /// An ask for some callers, of a queue whose newest start was then, by a message before its last; zero callers: it only says so.
    fn ask(logs: &[Log], newest: i64, callers: u32) -> Ask {
        let runs = if callers > 0 { vec![Run::new(callers, vec![1; logs.len()])] } else { Vec::new() };
        Ask { remembered: Remembered::new(8, at(newest), vec![at(newest); logs.len()]), ..Ask::new(logs, runs) }
    }

    /// What the store answers to message `number` of the process `sender`.
    fn told(ledger: &mut Ledger, now: i64, (sender, number): (u64, u64), ask: Ask) -> Grant {
        let message = Message::new("up", MessageId::new(sender, "", number), ask);
        ledger.apply(at(now), &message).unwrap().grant().unwrap()
    }

    fn granted(grant: &Grant, asked: u32) -> u32 {
        grant.answers(asked).filter(|answer| answer.verdict.is_granted()).map(|answer| answer.callers).sum()
    }

    #[test]
    fn who_has_not_said_what_it_was_granted_is_granted_nothing_by_the_answer_that_tells_it_so() {
        let logs = [calls(MINUTE)];
        for now in [5_800_000, 6_100_000] {
            let mut ledger = Ledger::new();
            assert!(told(&mut ledger, 0, (2, 9), ask(&logs, -SECOND, 0)).loss.is_some());
            let grant = told(&mut ledger, now, (1, 9), ask(&logs, -2 * SECOND, 100));
            let (seen, _) = *grant.loss.clone().unwrap();
            assert_eq!((granted(&grant, 100), grant.within), (0, Duration::ZERO), "{now}");
            let steps = vec![Slots::new(60, at(-2 * SECOND), [1])];
            let again = Some(Again::new(Stamp::NEVER, seen, steps));
            let says = Ask { again, counted: grant.counted, ..ask(&logs, -2 * SECOND, 100) };
            let grant = told(&mut ledger, now.max(SETTLING), (1, 10), says);
            assert_eq!((granted(&grant, 100), grant.loss), (40, None), "{now}: it has said it");
        }
    }

    #[test]
    fn who_books_far_ahead_books_nothing_before_others_may_have_said_what_they_were_granted() {
        let (logs, mut ledger) = ([calls(MINUTE)], Ledger::new());
        for (now, number) in [(0, 9), (SETTLING - 1, 10)] {
            let far = Ask { horizon: Duration::from_secs(9), ..ask(&logs, -2 * SECOND, 100) };
            let again = (now > 0).then(|| Again::new(at(0), at(0), Vec::new()));
            assert_eq!(granted(&told(&mut ledger, now, (1, number), Ask { again, ..far }), 100), 0, "{now}");
        }
    }

    #[test]
    fn a_loss_that_a_short_window_sees_hides_none_of_a_long_one() {
        let (short, long) = ([calls(SECOND)], [calls(SECOND), Log::new("files", [Term::new(100, 60 * MINUTE)])]);
        let mut ledger = Ledger::new();
        assert_eq!(told(&mut ledger, 0, (2, 9), ask(&short, -SECOND / 10, 1)).loss, None);
        let grant = told(&mut ledger, SECOND / 10, (1, 9), ask(&long, -SECOND / 5, 1));
        assert_eq!(grant.loss, Some(Box::new((at(SECOND / 10), 0))));
        assert_eq!(grant.next, at(SECOND / 10 + SETTLING));
        // What was forgotten by hand is no loss.
        let (mut ledger, now) = (Ledger::new(), at(0));
        ledger.scope_mut(None).constrain(|of, _| of.loss = Some(Loss::forgotten(None, now, now, 0)));
        assert_eq!(told(&mut ledger, SECOND / 10, (1, 9), ask(&long, -SECOND / 5, 1)).loss, None);
    }

    #[test]
    fn who_has_its_message_is_told_that_its_log_is_gone() {
        let (logs, mut ledger) = ([calls(60 * MINUTE)], Ledger::new());
        told(&mut ledger, -10 * SECOND, (2, 1), Ask::new(&logs[..], vec![Run::new(60, [1])]));
        ledger.lose_logs(None);
        // So is the last message of another process.
        let (seen, _) = *told(&mut ledger, 0, (1, 9), ask(&logs, -5 * SECOND, 0)).loss.unwrap();
        let steps = vec![Slots::new(1, at(-5 * SECOND), [1])];
        let says = Ask { again: Some(Again::new(Stamp::NEVER, seen, steps)), ..ask(&logs, -5 * SECOND, 0) };
        told(&mut ledger, 1_000, (1, 10), says);
        let remembered = Remembered::new(1, at(-10 * SECOND), [at(-10 * SECOND)]);
        let grant = told(&mut ledger, 2 * SECOND, (2, 2), Ask { remembered, ..Ask::new(logs, Vec::new()) });
        assert_eq!(grant.loss, Some(Box::new((seen, 0))));
    }

    #[test]
    fn what_is_said_again_later_than_it_started_is_no_other_loss() {
        let logs = ["calls", "tokens"].map(|unit| Log::new(unit, [Term::new(100, 60 * MINUTE)]));
        for (newest, step) in [([-50, -60], (-50, [2, 1])), ([-60, -50], (-50, [1, 2])), ([-59, -59], (-50, [2, 2]))] {
            let mut ledger = Ledger::new();
            let asks = |again| {
                let remembered = Remembered::new(0, at(0), newest.map(|start| at(start * SECOND)));
                Ask { remembered, again, ..Ask::new(&logs[..], vec![Run::new(9, [1, 1])]) }
            };
            let (seen, _) = *told(&mut ledger, SECOND, (1, 1), asks(None)).loss.unwrap();
            let steps = vec![Slots::new(1, at(step.0 * SECOND), step.1)];
            told(&mut ledger, SECOND + 1, (1, 2), asks(Some(Again::new(Stamp::NEVER, seen, steps.clone()))));
            // Another says its own, of later.
            let others = Ask::new(&logs[..], Vec::new());
            let remembered = Remembered::new(0, at(0), [at(-SECOND); 2]);
            let again = Some(Again::new(Stamp::NEVER, seen, vec![Slots::new(1, at(-SECOND), [1, 1])]));
            told(&mut ledger, SECOND + 2, (2, 1), Ask { remembered, again, ..others });
            let has_said = || asks(Some(Again::new(seen, seen, Vec::new())));
            assert_eq!(told(&mut ledger, 2 * SECOND, (1, 3), has_said()).loss, None, "{newest:?}");
            let grant = told(&mut ledger, SECOND + SETTLING, (1, 4), has_said());
            assert_eq!((granted(&grant, 9), grant.loss), (9, None), "{newest:?}");
        }
    }

    /// Two processes that were granted fifty each of a hundred a minute, as of now; and what each remembers by its first message.
    fn two_of_fifty() -> (Ledger, impl Fn(u64) -> Ask) {
        let (logs, mut ledger) = ([calls(MINUTE)], Ledger::new());
        for sender in [1, 2] {
            told(&mut ledger, 0, (sender, 1), Ask::new(&logs[..], vec![Run::new(50, [1])]));
        }
        let asks = move |number| {
            let remembered = Remembered::new(number, at(0), [at(0)]);
            Ask { remembered, ..Ask::new(&logs[..], vec![Run::new(50, [1])]) }
        };
        (ledger, asks)
    }

    fn says(seen: Stamp, ask: Ask) -> Ask {
        Ask { again: Some(Again::new(Stamp::NEVER, seen, vec![Slots::new(50, at(0), [1])])), ..ask }
    }

    #[test]
    fn what_was_said_again_and_is_lost_again_is_said_once_more() {
        let (mut ledger, asks) = two_of_fifty();
        ledger.lose_logs(None);
        let (first, _) = *told(&mut ledger, SECOND, (1, 2), asks(1)).loss.unwrap();
        told(&mut ledger, SECOND + 1, (1, 3), says(first, asks(1)));
        ledger.lose_logs(None);
        // It has not heard of the first loss.
        let (second, _) = *told(&mut ledger, 3 * SECOND, (2, 2), asks(1)).loss.unwrap();
        assert_eq!(second, at(3 * SECOND));
        for sender in [1, 2] {
            told(&mut ledger, 4 * SECOND, (sender, 4), says(second, asks(1)));
        }
        assert_eq!(granted(&told(&mut ledger, 12 * SECOND, (2, 5), says(second, asks(4))), 50), 0);
        // One that finds the log empty right after another has, and before that has said anything, finds the same loss.
        let (mut ledger, asks) = two_of_fifty();
        ledger.lose_logs(None);
        let (first, _) = *told(&mut ledger, SECOND, (1, 2), asks(1)).loss.unwrap();
        assert_eq!(told(&mut ledger, SECOND + 5_000, (2, 2), asks(1)).loss.unwrap().0, first);
    }

    #[test]
    fn a_loss_that_the_store_has_forgotten_is_told_it_by_who_has_heard_of_it() {
        let (mut ledger, asks) = two_of_fifty();
        ledger.lose_logs(None);
        let (seen, _) = *told(&mut ledger, SECOND, (1, 2), asks(1)).loss.unwrap();
        told(&mut ledger, SECOND + 1, (1, 3), says(seen, asks(1)));
        ledger.scope_mut(None).constrain(|of, _| of.loss = None);
        let heard = || Ask { again: Some(Again::new(seen, seen, Vec::new())), ..asks(3) };
        let grant = told(&mut ledger, 2 * SECOND, (1, 4), heard());
        assert_eq!((granted(&grant, 50), grant.next, grant.loss), (0, seen.plus(SETTLING), None));
        let (again, survived) = *told(&mut ledger, 3 * SECOND, (2, 2), asks(1)).loss.unwrap();
        assert_eq!((again, survived), (seen, 0), "the same, of all that it was granted");
        told(&mut ledger, 4 * SECOND, (2, 3), says(seen, asks(1)));
        assert_eq!(granted(&told(&mut ledger, 8 * SECOND, (1, 5), heard()), 50), 0, "a hundred count");
    }

    #[test]
    fn a_loss_that_the_store_has_forgotten_hides_none_that_is_seen_beside_it() {
        let (logs, mut ledger) = ([calls(MINUTE), Log::new("files", [Term::new(100, 60 * MINUTE)])], Ledger::new());
        told(&mut ledger, 0, (1, 1), Ask::new(&logs[..], vec![Run::new(1, [1, 1])]));
        // Of the first log an entry is missing, and the other is as it was.
        let remembered = Remembered::new(1, at(0), [at(SECOND), at(0)]);
        let heard = Some(Again::new(at(SECOND), at(SECOND), Vec::new()));
        let grant =
            told(&mut ledger, 2 * SECOND, (1, 2), Ask { remembered, again: heard, ..Ask::new(logs, Vec::new()) });
        assert_eq!(grant.loss, Some(Box::new((at(2 * SECOND), 0))));
    }

    #[test]
    fn who_has_its_message_is_told_so_after_a_failover_that_lost_those_of_others() {
        let (logs, mut ledger) = ([calls(60 * MINUTE)], Ledger::new());
        told(&mut ledger, -10 * SECOND, (2, 1), Ask::new(&logs[..], vec![Run::new(60, [1])]));
        let (seen, _) = *told(&mut ledger, 0, (1, 9), ask(&logs, -5 * SECOND, 1)).loss.unwrap();
        // It says what it was granted by its next message, for which the one before is there.
        let again = Some(Again::new(Stamp::NEVER, seen, vec![Slots::new(1, at(-5 * SECOND), [1])]));
        let remembered = Remembered::new(9, at(0), [at(-5 * SECOND)]);
        told(&mut ledger, 1_000, (1, 10), Ask { remembered, again, ..ask(&logs, 0, 1) });
        let remembered = Remembered::new(1, at(-10 * SECOND), [at(-10 * SECOND)]);
        let grant = told(&mut ledger, 2 * SECOND, (2, 2), Ask { remembered, ..Ask::new(logs, Vec::new()) });
        assert_eq!(grant.loss, Some(Box::new((seen, 1))));
    }
}
