//! The last message of each stream, and what it was answered: one that comes twice acts once.

use std::collections::HashMap;
use std::sync::Arc;

use super::{LEAP, MAX_MEMORY, Message, MessageId, Refused, Reply, ScopeHasher, Stamp};

/// How many streams it takes to look for those that are forgotten.
const MANY: usize = 64;

/// The last message of each stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Replays {
    last: HashMap<(u64, Arc<str>), Replay, ScopeHasher>,
    sweep_at: usize,
}

/// A message and its answer, remembered for a while.
#[derive(Clone, Debug)]
struct Replay {
    number: u64,
    until: Stamp,
    reply: Reply,
}

impl Replays {
    /// The answer to a message that has come before. Refuses one that comes after a later one of its stream, and one whose
    /// sender knows of another last message, if of any.
    pub(super) fn recall(&self, now: Stamp, id: &MessageId) -> Result<Option<&Reply>, Refused> {
        if id.is_nobodys() || self.last.is_empty() {
            return Ok(None);
        }
        match self.last.get(&(id.sender, Arc::clone(&id.stream))).filter(|last| last.until > now) {
            Some(last) if last.number > id.number => Err(Refused::Outdated),
            Some(last) if last.number == id.number => Ok(Some(&last.reply)),
            // One that is less was remembered before what the sender knows of, which was lost.
            Some(last) if id.previous > 0 && last.number > id.previous => Err(Refused::Duplicate),
            _ => Ok(None),
        }
    }

    /// The number of the last message of a stream; zero where none is remembered.
    pub(super) fn last_of(&self, now: Stamp, id: &MessageId) -> u64 {
        let last = self.last.get(&(id.sender, Arc::clone(&id.stream)));
        last.filter(|last| last.until > now).map_or(0, |last| last.number)
    }

    /// Remembers a message and its answer for so many microseconds, a minute at most.
    pub(super) fn remember(&mut self, now: Stamp, message: &Message, memory: i64, reply: Reply) {
        let id = &message.id;
        if id.is_nobodys() {
            return;
        }
        if self.last.len() >= self.sweep_at.max(MANY) {
            self.sweep(now);
        }
        let key = (id.sender, Arc::clone(&id.stream));
        // Not for less long than the message before: a late copy of that must not act.
        let before = self.last.get(&key).map_or(now, |last| last.until);
        // And for as long as the clock may leap ahead before that is taken back; not as long as a leap that was.
        let before = before.min(now.plus(MAX_MEMORY + LEAP));
        let until = now.plus(memory.min(MAX_MEMORY) + LEAP).max(before);
        self.last.insert(key, Replay { number: id.number, until, reply });
    }

    /// Forgets what nobody asks for any more.
    pub(super) fn sweep(&mut self, now: Stamp) {
        self.last.retain(|_, last| last.until > now);
        self.last.shrink_to(self.last.len() * 2);
        self.sweep_at = self.last.len() * 2;
    }

    /// The last message of a stream, and what it was answered.
    #[cfg(test)]
    pub(super) fn last(&self, sender: u64, stream: &str) -> Option<(u64, &Reply)> {
        self.last.get(&(sender, stream.into())).map(|last| (last.number, &last.reply))
    }

    /// Whether nothing is remembered.
    pub(super) fn is_spent(&self, now: Stamp) -> bool {
        self.last.values().all(|last| last.until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Ask, Grant, NOBODY};

    const fn at(micros: i64) -> Stamp {
        Stamp::from_micros(micros)
    }

    fn message(sender: u64, stream: &str, number: u64, previous: u64) -> Message {
        Message::new("up", MessageId::new(sender, stream, number).after(previous), Ask::new([], Vec::new()))
    }

    fn reply(micros: i64) -> Reply {
        Reply::Grant(Grant::all_now(at(micros)))
    }

    #[test]
    fn each_stream_has_a_last_message() {
        let mut replays = Replays::default();
        replays.remember(at(0), &message(1, "a", 5, 0), 100, reply(7));
        let recall = |replays: &Replays, now, sender, stream: &str, number, previous| {
            replays.recall(at(now), &message(sender, stream, number, previous).id).map(<Option<&Reply>>::cloned)
        };
        let cases = [
            ((50, 1, "a", 5, 0), Ok(Some(reply(7)))),
            ((50, 1, "a", 4, 0), Err(Refused::Outdated)),
            ((50, 1, "a", 6, 0), Ok(None)),
            ((50, 1, "a", 6, 5), Ok(None)),
            ((50, 1, "a", 6, 4), Err(Refused::Duplicate)),
            ((50, 1, "b", 4, 3), Ok(None)),
            ((50, 2, "a", 4, 3), Ok(None)),
            ((100, 1, "a", 4, 3), Err(Refused::Outdated)),
            ((100 + LEAP, 1, "a", 4, 3), Ok(None)),
            ((50, NOBODY, "a", 4, 3), Ok(None)),
        ];
        for ((now, sender, stream, number, previous), expected) in cases {
            assert_eq!(
                recall(&replays, now, sender, stream, number, previous),
                expected,
                "{now} {sender} {stream} {number}"
            );
        }
        replays.remember(at(50), &message(1, "a", 6, 5), 10, reply(8));
        assert_eq!(
            recall(&replays, 99 + LEAP, 1, "a", 5, 0),
            Err(Refused::Outdated),
            "not for less long than the one before"
        );
        replays.remember(at(0), &message(NOBODY, "a", 6, 5), 10, reply(8));
        assert!(replays.is_spent(at(100 + LEAP)) && !replays.is_spent(at(99 + LEAP)));
    }

    #[test]
    fn what_is_forgotten_takes_no_room() {
        let mut replays = Replays::default();
        for sender in 1..1_000 {
            replays.remember(at(LEAP * i64::try_from(sender).unwrap()), &message(sender, "a", 1, 0), 1, reply(0));
        }
        assert!(replays.last.len() <= MANY, "{}", replays.last.len());
    }
}
