//! A process, what it says, and what it is answered. Times are ticks.

use std::hash::{Hash, Hasher};
use std::mem;
use std::time::Duration;

use super::rules::{Flaw, Rules};
use super::{HORIZON, LATE, QUOTA, SPAN, WINDOW};
use crate::ledger::{
    Ask, Ledger, Log, Message, MessageId, Refused, Remembered, Reply, Run, SlidingLog, Slots, Stamp, Term,
};

/// Microseconds of a tick.
const TICK: i64 = 100_000;
/// When the first tick is, on the store's clock.
const BEGAN: i64 = 1_000 * TICK;
/// A process takes another name by adding this.
const NEXT_NAME: u64 = 100;
/// More callers than any message asks for.
const MANY: u32 = 9;

/// A queue, as far as a store can tell.
#[derive(Clone)]
pub(super) struct Process {
    pub(super) sender: u64,
    pub(super) number: u64,
    pub(super) previous: u64,
    pub(super) counted: Vec<Stamp>,
    /// The last message that a store has remembered, and the log time that was told with its answer.
    remembers: (u64, Stamp),
    /// The message that is not answered.
    pub(super) said: Option<Said>,
    /// What a store has answered to it, and when.
    pub(super) answer: Option<(Answer, i64)>,
    /// Slots of callers.
    pub(super) held: Vec<i64>,
    /// Slots that nobody wants.
    pub(super) surplus: Vec<i64>,
    /// Slots of calls that were sent.
    pub(super) used: Vec<i64>,
    /// Which store it speaks to.
    pub(super) store: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Said {
    pub(super) sender: u64,
    pub(super) number: u64,
    pub(super) previous: u64,
    pub(super) callers: u32,
    pub(super) back: Vec<i64>,
    pub(super) counted: Vec<Stamp>,
    remembers: (u64, Stamp),
    /// The newest slot that it was granted and has not handed back; none: zero.
    newest: Stamp,
}

#[derive(Clone, Hash)]
pub(super) enum Answer {
    Granted { starts: Vec<i64>, counted: Vec<Stamp>, told: Stamp, is_remembered: bool },
    AnotherName,
}

impl Process {
    /// One that has said nothing, of this name.
    pub(super) const fn new(sender: u64) -> Self {
        Self {
            sender,
            number: 0,
            previous: 0,
            counted: Vec::new(),
            remembers: (0, Stamp::NEVER),
            said: None,
            answer: None,
            held: Vec::new(),
            surplus: Vec::new(),
            used: Vec::new(),
            store: 0,
        }
    }

    /// The next message, for so many callers. One who waits for its slot gives up where it is for none.
    pub(super) fn say(&mut self, callers: u32) -> Said {
        self.number += 1;
        self.surplus.extend(self.held.pop_if(|_| callers == 0));
        let mut back = mem::take(&mut self.surplus);
        back.sort_unstable();
        let newest = self.held.iter().chain(&self.used).max().map_or(Stamp::NEVER, |&start| stamp(start));
        let Self { sender, number, previous, remembers, ref counted, .. } = *self;
        let said = Said { sender, number, previous, callers, back, counted: counted.clone(), remembers, newest };
        self.said = Some(said.clone());
        said
    }

    /// The last message, once more.
    pub(super) fn say_again(&mut self, rules: &Rules) -> Said {
        let said = self.said.as_mut().unwrap();
        if rules.flaw == Some(Flaw::NewNumber) {
            self.number += 1;
            (said.number, said.previous) = (self.number, 0);
            self.answer = None;
        }
        said.clone()
    }

    /// Sends the calls whose slots have started, and says how many.
    pub(super) fn call(&mut self, now: i64) -> usize {
        let started: Vec<i64> = self.held.extract_if(.., |start| *start <= now).collect();
        self.used.extend(&started);
        self.used.sort_unstable();
        started.len()
    }

    /// Slots that it knows of, or will by the answer to what it said.
    pub(super) fn slots(&self, now: i64, store: &Ledger) -> Vec<i64> {
        let mut slots = [&self.held[..], &self.surplus, &self.used].concat();
        let Some(said) = &self.said else { return slots };
        match store.replays.recall(stamp(now), &said.id()) {
            Ok(Some(reply)) => slots.extend(starts(reply, said.callers)),
            _ => slots.extend(&said.back),
        }
        slots
    }

    /// Puts all that is so of it into a hash, but for how it is called.
    pub(super) fn hash<H: Hasher>(&self, stores: &[Ledger], state: &mut H) {
        let Self { sender, number, previous, counted, remembers, said, answer, held, surplus, used, store } = self;
        (sender / NEXT_NAME, number, previous, counted, remembers, said, answer, held).hash(state);
        (surplus, used, store).hash(state);
        for (store, name) in stores.iter().flat_map(|store| [(store, *sender), (store, sender % NEXT_NAME)]) {
            let last = store.replays.last(name, "");
            last.map(|(number, reply)| (number, Answer::of(Ok(reply.clone()), MANY))).hash(state);
        }
    }

    /// Whether it waits for the answer to this.
    pub(super) fn awaits(&self, said: &Said) -> bool {
        self.said.as_ref().is_some_and(|last| (last.sender, last.number) == (said.sender, said.number))
    }

    /// Whether it would find out that a store has lost its memory.
    pub(super) const fn remembers(&self) -> bool {
        self.remembers.0 > 0 && self.said.is_none()
    }

    /// Whether any of its calls may go.
    pub(super) fn can_call(&self, now: i64) -> bool {
        self.held.iter().any(|&start| start <= now)
    }

    pub(super) fn hear(&mut self, now: i64) {
        let (said, answer) = (self.said.take(), self.answer.take());
        match answer.unwrap().0 {
            Answer::Granted { starts, counted, told, is_remembered } => {
                self.held.extend(starts);
                self.held.sort_unstable();
                self.counted = counted;
                self.previous = said.filter(|_| is_remembered).map_or(0, |said| said.number);
                if is_remembered {
                    self.remembers = (self.previous, told);
                }
                self.put_back_late(now);
            }
            // What it had booked is nobody's.
            Answer::AnotherName => {
                self.sender += NEXT_NAME;
                (self.previous, self.remembers) = (0, (0, Stamp::NEVER));
                self.held.clear();
                self.surplus.clear();
                self.counted.clear();
            }
        }
    }

    /// Slots that are too late to be used go back.
    pub(super) fn put_back_late(&mut self, now: i64) {
        self.surplus.extend(self.held.extract_if(.., |start| *start + LATE < now));
    }
}

impl Said {
    pub(super) fn id(&self) -> MessageId {
        MessageId::new(self.sender, "", self.number).after(self.previous)
    }

    pub(super) fn written(&self, rules: &Rules) -> Message {
        let span = if rules.flaw == Some(Flaw::NoGuard) { WINDOW } else { SPAN };
        let runs = if self.callers > 0 { vec![Run::new(self.callers, [1])] } else { Vec::new() };
        let mut ask = Ask::new([Log::new("calls", [Term::new(QUOTA, span * TICK)])], runs);
        ask.horizon = Duration::from_micros(HORIZON.unsigned_abs() * TICK.unsigned_abs());
        ask.back = self.back.iter().map(|&start| Slots::new(1, stamp(start), [1])).collect();
        ask.counted.clone_from(&self.counted);
        let newest = Some(self.newest).filter(|newest| *newest > Stamp::NEVER);
        let (number, told) = self.remembers;
        // A store that forgets messages would be found out by what processes remember.
        let is_silent = matches!(rules.flaw, Some(Flaw::ActsAgain | Flaw::ActsLate | Flaw::SaysNothing));
        ask.remembered = if is_silent {
            Remembered::default()
        } else {
            Remembered::new(number, told, newest.into_iter().collect::<Vec<_>>())
        };
        Message::new("up", self.id(), ask)
    }
}

impl Answer {
    pub(super) fn of(reply: Result<Reply, Refused>, callers: u32) -> Self {
        let Ok(reply) = reply else { return Self::AnotherName };
        let starts = starts(&reply, callers);
        let grant = reply.grant().unwrap();
        Self::Granted { starts, counted: grant.counted, told: grant.now, is_remembered: grant.remembered }
    }
}

pub(super) fn starts(reply: &Reply, callers: u32) -> Vec<i64> {
    let grant = reply.clone().grant().unwrap();
    let granted = grant.answers(callers).filter(|answer| answer.verdict.is_granted());
    granted.flat_map(|answer| std::iter::repeat_n(ticks(answer.start), answer.callers as usize)).collect()
}

/// What a log holds, from the newest back.
pub(super) fn entries(log: &SlidingLog) -> impl Iterator<Item = i64> {
    (1..).map_while(|newest| log.nth_newest(newest)).map(ticks)
}

pub(super) fn stamp(tick: i64) -> Stamp {
    Stamp::from_micros(BEGAN + tick * TICK)
}

pub(super) fn ticks(stamp: Stamp) -> i64 {
    assert_eq!(stamp.as_micros() % TICK, 0, "all that happens happens at a tick");
    (stamp.as_micros() - BEGAN) / TICK
}

impl Hash for Said {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { sender, number, previous, callers, back, counted, remembers, newest } = self;
        (sender / NEXT_NAME, number, previous, callers, back, counted, remembers, newest).hash(state);
    }
}
