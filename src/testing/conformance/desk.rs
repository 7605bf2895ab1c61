//! Some logs of a store under check, and the few words in which the laws speak of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::law::Law;
use crate::Store;
use crate::ledger::SeatLimit;
use crate::ledger::{Answer, Ask, Body, Grant, Learned, Log, LogUsage, Message, MessageId, Pause, Paused, Reason};
use crate::ledger::{QuotaReport, Reply, Report, Run, ScopeId, Slots, Stamp, Term};
use crate::store::StoreErrorKind;
use crate::testing::history::plain;

/// When every check begins: far from zero, so that no digit of a real stamp is spared.
pub(super) const EPOCH: i64 = 1_795_170_949_790_213;

/// An upstream that nobody has called before.
pub(super) fn fresh_upstream(law: Law) -> Arc<str> {
    format!("conformance-law-{}-{:016x}", law.number, fastrand::u64(..)).into()
}

/// A stamp some microseconds after the beginning.
pub(super) const fn at(micros: i64) -> Stamp {
    Stamp::from_micros(EPOCH + micros)
}

/// A log of one term of the whole upstream.
pub(super) fn log(unit: &str, quota: u32, span: i64) -> Log {
    Log::new(unit, [Term::new(quota, span)])
}

/// The answer that grants some callers a start.
pub(super) const fn granted(callers: u32, start: Stamp) -> Answer {
    Answer::granted(callers, start)
}

/// What an ask is told, as far as the laws speak of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Granting {
    pub(super) now: Stamp,
    pub(super) answers: Vec<Answer>,
    pub(super) next: Stamp,
    pub(super) paused: Option<(Stamp, Reason)>,
    pub(super) contenders: u32,
}

impl Granting {
    pub(super) fn new(now: Stamp, answers: Vec<Answer>, next: Stamp) -> Self {
        Self { now, answers, next, paused: None, contenders: 0 }
    }
}

/// Speaks of some logs of an upstream, and numbers what it says.
#[derive(Debug)]
pub(super) struct Desk<'a> {
    law: Law,
    store: &'a dyn Store,
    pub(super) upstream: Arc<str>,
    pub(super) logs: Arc<[Log]>,
    pub(super) horizon: Duration,
    number: u64,
    /// What each sender was told last of the periods that it is counted in.
    counted: HashMap<u64, Vec<Stamp>>,
}

impl<'a> Desk<'a> {
    /// Speaks of these logs of a fresh upstream.
    pub(super) fn new(law: Law, store: &'a dyn Store, logs: impl Into<Arc<[Log]>>) -> Self {
        Self::at(law, store, fresh_upstream(law), logs)
    }

    /// Speaks of logs of an upstream that others may call.
    pub(super) fn at(law: Law, store: &'a dyn Store, upstream: Arc<str>, logs: impl Into<Arc<[Log]>>) -> Self {
        let (horizon, logs) = (Duration::from_millis(250), logs.into());
        Self { law, store, upstream, logs, horizon, number: 0, counted: HashMap::new() }
    }

    /// The number of the last message.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// The next message of a sender about a body of its own, unsent.
    pub(super) fn message(&mut self, sender: u64, stream: &str, body: impl Into<Body>) -> Message {
        self.number += 1;
        Message::new(Arc::clone(&self.upstream), MessageId::new(sender, stream, self.number), body)
    }

    /// The next ask of a sender, unsent.
    pub(super) fn ask(&mut self, sender: u64, runs: Vec<Run>) -> Message {
        self.asking(sender, runs, |_| ())
    }

    /// The next ask of a sender with something else said in it, unsent.
    pub(super) fn asking(&mut self, sender: u64, runs: Vec<Run>, change: impl FnOnce(&mut Ask)) -> Message {
        let mut ask = Ask::new(Arc::clone(&self.logs), runs);
        ask.horizon = self.horizon;
        ask.counted = self.counted.get(&sender).cloned().unwrap_or_default();
        change(&mut ask);
        self.message(sender, "queue", ask)
    }

    /// The next message of a sender that hands slots back, unsent.
    pub(super) fn returning(&mut self, sender: u64, slots: Slots) -> Message {
        self.asking(sender, Vec::new(), |ask| ask.back = vec![slots])
    }

    /// Asks for one run of callers.
    pub(super) async fn book(&mut self, sender: u64, run: Run) -> Granting {
        let ask = self.ask(sender, vec![run]);
        self.send(&ask).await
    }

    /// How many of some callers are granted a start now, where it is known that log time is as late, and by how much that is told to be ahead of
    /// the store's clock.
    pub(super) async fn grant_of(&mut self, sender: u64, callers: u32, known: Option<Stamp>) -> (u32, i64) {
        let ask = Message { known, ..self.ask(sender, vec![Run::new(callers, [1]).max_wait(Duration::ZERO)]) };
        let grant = self.grant(&ask).await;
        let of = |answer: Answer| if answer.verdict.is_granted() { answer.callers } else { 0 };
        (grant.answers(callers).map(of).sum(), grant.corrected)
    }

    /// Sends an ask, for the first time or again.
    pub(super) async fn send(&mut self, ask: &Message) -> Granting {
        let grant = self.grant(ask).await;
        self.counted.insert(ask.id.sender, grant.counted.clone());
        let Grant { now, answers, next, paused, contenders, .. } = grant;
        Granting { now, answers, next, paused, contenders }
    }

    /// All that an ask is answered, in one form.
    pub(super) async fn grant(&self, ask: &Message) -> Grant {
        self.wants(plain(ask, self.apply(ask).await, Stamp::from_micros(0)).grant())
    }

    /// Sends a message that is refused.
    pub(super) async fn refused(&self, message: &Message) -> Option<StoreErrorKind> {
        self.store.apply(message).await.err().map(|error| error.kind())
    }

    /// Hands slots back in a message of its own.
    pub(super) async fn hand_back(&mut self, sender: u64, slots: Slots) {
        let message = self.returning(sender, slots);
        self.send(&message).await;
    }

    /// Sends a message that need not be an ask.
    pub(super) async fn apply(&self, message: &Message) -> Reply {
        self.law.answered(self.store.apply(message).await)
    }

    /// The next message of a sender that pauses a scope, unsent.
    pub(super) fn pausing(&mut self, sender: u64, scope: Option<ScopeId>, pause: Pause) -> Message {
        self.message(sender, "news", Body::Pause { scope, pause })
    }

    /// Pauses the scope of the first log.
    pub(super) async fn pause(&mut self, wait: Duration) -> Paused {
        let message = self.pausing(1, self.logs[0].scope, Pause::new(wait));
        self.paused(&message).await
    }

    /// Sends a pause, for the first time or again.
    pub(super) async fn paused(&self, message: &Message) -> Paused {
        self.wants(self.apply(message).await.paused())
    }

    /// The next message of a sender that reports what is left of the first log, unsent.
    pub(super) fn reporting(&mut self, sender: u64, report: Report) -> Message {
        let log = self.logs[0].clone();
        self.message(sender, "news", Body::Report { log, report })
    }

    /// The upstream reports what is left of the first log.
    pub(super) async fn report(&mut self, quota: QuotaReport) -> Learned {
        let message = self.reporting(1, Report { quotas: vec![quota], ..Report::default() });
        self.learned(&message).await
    }

    /// Sends a report, for the first time or again.
    pub(super) async fn learned(&self, message: &Message) -> Learned {
        self.wants(self.apply(message).await.learned())
    }

    pub(super) async fn usage(&self) -> Vec<LogUsage> {
        let body = Body::usage(Arc::clone(&self.logs));
        let message = Message::new(Arc::clone(&self.upstream), MessageId::nobodys(), body);
        self.wants(self.apply(&message).await.usage())
    }

    /// Seats of each limit that anybody holds.
    pub(super) async fn seats_taken(&self, limits: &Arc<[SeatLimit]>) -> Vec<u32> {
        let body = Body::Usage { logs: [].into(), seats: Arc::clone(limits) };
        let message = Message::new(Arc::clone(&self.upstream), MessageId::nobodys(), body);
        let reply = self.apply(&message).await;
        self.wants(if let Reply::Usage { seats, .. } = reply { Some(seats) } else { None })
    }

    /// Units that count now by the first term of each log.
    pub(super) async fn used(&self) -> Vec<u32> {
        self.usage().await.iter().filter_map(|log| log.terms.first()).map(|term| term.used).collect()
    }

    #[track_caller]
    fn wants<T>(&self, answer: Option<T>) -> T {
        self.law.some(answer, "a message is given the answer of another kind")
    }
}
