//! Random histories of one home: several senders, logs, terms, costs and horizons, hand-backs, holds, reports and leaps in
//! time.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::desk::EPOCH;
use super::law::Law;
use crate::ledger::Stamp;
use crate::ledger::Term;
use crate::ledger::{
    Ask, Grant, HandBack, Hold, Home, Incident, Learned, Lesson, Log, LogUsage, MessageId, Report, Run, Slots,
};
use crate::store::clock::ManualClock;
use crate::{Store, StoreError, StoreErrorKind};

const STEPS: usize = 150;

/// A history, which is the same for the same seed whatever store it is told to.
#[derive(Clone, Debug)]
pub(super) struct History<'a> {
    pub(super) law: Law,
    pub(super) store: &'a dyn Store,
    pub(super) clock: &'a ManualClock,
    pub(super) home: Home,
    pub(super) seed: u64,
    /// How far from the usual epoch the store's clock stands, in microseconds.
    pub(super) shift: i64,
    /// Every message is sent twice: at once, and the last one again after every step.
    pub(super) twice: bool,
}

/// What a store said, in stamps relative to the beginning.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    Granted { now: i64, next: i64, answers: Vec<(u32, i64, bool)> },
    Done,
    Held { until: i64, first: bool },
    Learned(Learned),
    Outdated,
    Usage(Vec<LogUsage>),
}

/// What came of a history.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) said: Vec<Said>,
    /// Each log, and the starts in it that were granted and never handed back, with their units.
    pub(super) logs: Vec<(Log, Vec<(i64, u64)>)>,
}

/// A message that was sent, what it was answered, when, and for how long it is remembered.
#[derive(Debug)]
struct Sent {
    message: Message,
    said: Said,
    until: i64,
}

#[derive(Clone, Debug)]
enum Message {
    Ask(Ask),
    HandBack(HandBack),
    Hold(MessageId, Hold),
    Lesson(MessageId, Log, Lesson),
}

/// A history that is being told.
struct Teller<'a> {
    history: &'a History<'a>,
    rng: Rng,
    logs: Vec<Log>,
    number: u64,
    held: Vec<(Arc<[Log]>, Slots)>,
    last: Option<Sent>,
    said: Vec<Said>,
}

impl History<'_> {
    /// Tells it from the beginning. `between` runs after every step.
    pub(super) async fn tell(&self, mut between: impl AsyncFnMut()) -> Told {
        self.clock.set(Stamp::from_micros(EPOCH + self.shift));
        let mut rng = Rng::with_seed(self.seed);
        let logs = random_logs(&mut rng);
        let mut teller = Teller { history: self, rng, logs, number: 0, held: Vec::new(), last: None, said: Vec::new() };
        for _ in 0..STEPS {
            teller.step().await;
            between().await;
            teller.repeat_the_last().await;
        }
        teller.told()
    }
}

impl Teller<'_> {
    async fn step(&mut self) {
        match self.rng.u8(0..20) {
            0..9 => self.ask().await,
            9..12 => self.hand_back().await,
            12 => self.hold().await,
            13 => self.learn().await,
            14 => {
                let answer = self.history.store.usage(&self.history.home, &self.logs).await;
                self.note(answer.map(Said::Usage));
            }
            _ => {
                let leap = if self.rng.u8(0..4) == 0 { 1_500_000 } else { 60_000 };
                let now = self.history.clock.now().as_micros() + self.rng.i64(0..leap);
                self.history.clock.set(Stamp::from_micros(now));
            }
        }
    }

    async fn hold(&mut self) {
        let (id, wait) = (self.id(), self.rng.i64(0..400_000));
        let hold = Hold::new(Duration::from_micros(wait.unsigned_abs()));
        let answer = self.history.store.hold(&self.history.home, id, &hold).await;
        let said = self.note(answer.map(|incident| self.held(incident)));
        self.sent(Message::Hold(id, hold), said, wait).await;
    }

    fn id(&mut self) -> MessageId {
        self.number += 1;
        MessageId::new(self.rng.u64(1..5), self.number)
    }

    fn held(&self, incident: Incident) -> Said {
        let wait = i64::try_from(incident.wait.as_micros()).unwrap_or(i64::MAX);
        let now = self.history.clock.now().as_micros() - EPOCH - self.history.shift;
        Said::Held { until: now + wait, first: incident.first }
    }

    /// An upstream reports how much is left: true or not.
    async fn learn(&mut self) {
        let log = self.logs[self.rng.usize(0..self.logs.len())].clone();
        let rng = &mut self.rng;
        let mut report = |term: &Term| {
            let window = Duration::from_micros(term.span.unsigned_abs());
            Report::new(*term, window, rng.u32(0..25), Duration::from_micros(rng.u64(0..400_000)))
        };
        let reports = log.terms.iter().map(&mut report).collect();
        let started = Some(self.history.clock.now()).filter(|_| self.rng.bool());
        let lesson = Lesson { started, reports, ..Lesson::default() };
        let id = self.id();
        let answer = self.history.store.learn(&self.history.home, id, &log, &lesson).await;
        let said = self.note(answer.map(Said::Learned));
        // Who learned nothing may learn more later.
        let acted = matches!(said, Said::Learned(learned) if learned.foreign > 0);
        let shortest = lesson.reports.iter().map(|report| report.term.span).min().unwrap_or(0);
        self.sent(Message::Lesson(id, log, lesson), said, if acted { shortest } else { 0 }).await;
    }

    async fn ask(&mut self) {
        self.number += 1;
        let rng = &mut self.rng;
        let some: Vec<Log> = self.logs.iter().filter(|_| rng.bool()).cloned().collect();
        let mut logs: Arc<[Log]> = if some.is_empty() { self.logs.clone().into() } else { some.into() };
        let mut back = Vec::new();
        if !self.held.is_empty() && rng.u8(0..4) == 0 {
            (logs, back) = self.some_held();
        }
        let rng = &mut self.rng;
        let runs = (0..rng.usize(0..4)).map(|_| random_run(rng, &logs)).collect();
        let mut ask = Ask::new(self.history.home.clone(), rng.u64(1..5), self.number, Arc::clone(&logs), runs);
        ask.horizon = Duration::from_micros(rng.u64(0..500_000));
        ask.insist = rng.u8(0..3) == 0;
        if rng.u8(0..4) == 0 {
            ask.ahead = Duration::from_micros(rng.u64(0..300_000));
        }
        ask.back = back;
        let answer = self.history.store.book(&ask).await;
        if let Ok(grant) = &answer {
            let costs = ask.runs.iter().flat_map(|run| vec![Arc::clone(&run.costs); run.callers as usize]);
            let answers = grant.answers.iter().flat_map(|answer| vec![*answer; answer.callers as usize]);
            let granted = costs.zip(answers).filter(|(_, answer)| answer.granted);
            self.held.extend(granted.map(|(costs, answer)| (Arc::clone(&logs), Slots::new(1, answer.start, costs))));
        }
        let said = self.note(answer.map(|grant| self.relative(&grant)));
        let granted = matches!(&said, Said::Granted { answers, .. } if answers.iter().any(|(_, _, granted)| *granted));
        let acted = granted || (!ask.back.is_empty() && said != Said::Outdated);
        let memory = if acted { ask.retention() } else { 0 };
        self.sent(Message::Ask(ask), said, memory).await;
    }

    async fn hand_back(&mut self) {
        if self.held.is_empty() {
            return;
        }
        self.number += 1;
        let (logs, slots) = self.some_held();
        let message = HandBack::new(self.history.home.clone(), self.rng.u64(1..5), self.number, logs, slots);
        let answer = self.history.store.hand_back(&message).await;
        let said = self.note(answer.map(|()| Said::Done));
        let memory = message.retention();
        self.sent(Message::HandBack(message), said, memory).await;
    }

    /// Takes some slots of the same logs from those that are held.
    fn some_held(&mut self) -> (Arc<[Log]>, Vec<Slots>) {
        // Mostly of the newest, which is where it matters that older ones still count.
        let oldest = if self.rng.u8(0..4) == 0 { 0 } else { self.held.len().saturating_sub(20) };
        let first = self.rng.usize(oldest..self.held.len());
        let logs = Arc::clone(&self.held[first].0);
        let count = self.rng.usize(1..20).min(self.held.len() - first);
        let same = self.held[first..first + count].iter().take_while(|(of, _)| Arc::ptr_eq(of, &logs)).count();
        let slots = self.held.drain(first..first + same).map(|(_, slots)| slots).collect();
        (logs, slots)
    }

    /// Sends what was just sent at once again, if this is a history of such mishaps.
    ///
    /// An ask that granted nothing (memory 0) need not be remembered: later it may fare better.
    async fn sent(&mut self, message: Message, said: Said, memory: i64) {
        let now = self.history.clock.now().as_micros();
        self.last = Some(Sent { message, said, until: now + 1 });
        self.repeat_the_last().await;
        self.last = self.last.take().map(|sent| Sent { until: now + memory, ..sent });
    }

    async fn repeat_the_last(&mut self) {
        let Some(sent) = self.last.take_if(|_| self.history.twice) else {
            return;
        };
        if self.history.clock.now().as_micros() >= sent.until {
            return;
        }
        let again = match &sent.message {
            Message::Ask(ask) => self.history.store.book(ask).await.map(|grant| self.relative(&grant)),
            Message::HandBack(message) => self.history.store.hand_back(message).await.map(|()| Said::Done),
            Message::Hold(id, hold) => {
                self.history.store.hold(&self.history.home, *id, hold).await.map(|incident| self.held(incident))
            }
            Message::Lesson(id, log, lesson) => {
                self.history.store.learn(&self.history.home, *id, log, lesson).await.map(Said::Learned)
            }
        };
        let again = self.history.law.answered(again);
        let what = format!("seed {}, sent again: {:?}", self.history.seed, sent.message);
        self.history.law.equal(&timeless(&again), &timeless(&sent.said), &what);
        self.last = Some(sent);
    }

    fn note(&mut self, answer: Result<Said, StoreError>) -> Said {
        let said = match answer {
            Err(error) if error.kind() == StoreErrorKind::Outdated => Said::Outdated,
            answer => self.history.law.answered(answer),
        };
        self.said.push(said.clone());
        said
    }

    fn relative(&self, grant: &Grant) -> Said {
        let relative = |stamp: Stamp| stamp.as_micros() - EPOCH - self.history.shift;
        let answers = grant.answers.iter().map(|one| (one.callers, relative(one.start), one.granted)).collect();
        Said::Granted { now: relative(grant.now), next: relative(grant.next), answers }
    }

    fn told(self) -> Told {
        let entries = |log: &Log| {
            let units = |(logs, slots): &(Arc<[Log]>, Slots)| {
                let index = logs.iter().position(|of| of.name == log.name)?;
                Some((slots.start.as_micros(), u64::from(slots.costs[index])))
            };
            self.held.iter().filter_map(units).collect()
        };
        Told { logs: self.logs.iter().map(|log| (log.clone(), entries(log))).collect(), said: self.said }
    }
}

/// An answer without the time when it was given, which alone may differ when a message comes again.
fn timeless(said: &Said) -> Said {
    match said {
        Said::Granted { next, answers, .. } => Said::Granted { now: 0, next: *next, answers: answers.clone() },
        said => said.clone(),
    }
}

pub(super) fn random_logs(rng: &mut Rng) -> Vec<Log> {
    let term = |rng: &mut Rng| {
        // As many short spans as long ones, so that logs of all lengths come up.
        let most = 1_000 << rng.u32(1..11);
        Term::new(rng.u32(1..25), rng.i64(1_000..most))
    };
    let terms = |rng: &mut Rng| (0..rng.usize(1..4)).map(|_| term(rng)).collect::<Vec<_>>();
    (0..rng.usize(1..4)).map(|name| Log::new(format!("log{name}"), terms(rng))).collect()
}

/// Callers of the same costs, none of them more than the logs could ever grant at once.
pub(super) fn random_run(rng: &mut Rng, logs: &[Log]) -> Run {
    let costs: Vec<u32> = logs.iter().map(|log| rng.u32(1..6).min(log.largest_cost())).collect();
    let run = Run::new(rng.u32(1..10), costs);
    if rng.u8(0..3) == 0 { run.max_wait(Duration::from_micros(rng.u64(0..300_000))) } else { run }
}
