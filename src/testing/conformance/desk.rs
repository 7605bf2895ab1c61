//! One home of a store under check, and the few words in which the laws speak to it.

use std::sync::Arc;
use std::time::Duration;

use super::law::Law;
use crate::Store;
use crate::ledger::Stamp;
use crate::ledger::Term;
use crate::ledger::{
    Answer, Ask, Grant, HandBack, Hold, Home, Incident, Learned, Lesson, Log, LogUsage, MessageId, Report, Run, Slots,
};

/// When every history begins: far from zero, so that no digit of a real stamp is spared.
pub(super) const EPOCH: i64 = 1_795_170_949_790_213;

/// A home that nobody has used before.
pub(super) fn fresh_home(law: Law) -> Home {
    Home::new("conformance", Some(&format!("law-{}-{:016x}", law.number, fastrand::u64(..))))
}

/// A stamp some microseconds after the beginning.
pub(super) const fn at(micros: i64) -> Stamp {
    Stamp::from_micros(EPOCH + micros)
}

/// A log of one term.
pub(super) fn log(name: &str, quota: u32, span: i64) -> Log {
    Log::new(name, [Term::new(quota, span)])
}

/// The answer that grants some callers a start.
pub(super) const fn granted(callers: u32, start: Stamp) -> Answer {
    Answer::new(callers, start, true)
}

/// Speaks to one home, and numbers what it says.
#[derive(Debug)]
pub(super) struct Desk<'a> {
    law: Law,
    store: &'a dyn Store,
    pub(super) home: Home,
    pub(super) logs: Arc<[Log]>,
    number: u64,
    pub(super) horizon: Duration,
}

impl<'a> Desk<'a> {
    /// A desk at a fresh home with these logs.
    pub(super) fn new(law: Law, store: &'a dyn Store, logs: impl Into<Arc<[Log]>>) -> Self {
        Self::at(law, store, fresh_home(law), logs)
    }

    /// A desk at a home that others may use.
    pub(super) fn at(law: Law, store: &'a dyn Store, home: Home, logs: impl Into<Arc<[Log]>>) -> Self {
        Self { law, store, home, logs: logs.into(), number: 0, horizon: Duration::from_millis(250) }
    }

    /// The next message of a sender, unsent.
    pub(super) fn ask(&mut self, sender: u64, runs: Vec<Run>) -> Ask {
        self.number += 1;
        let mut ask = Ask::new(self.home.clone(), sender, self.number, Arc::clone(&self.logs), runs);
        ask.horizon = self.horizon;
        ask
    }

    /// The next message of a sender that hands slots back, unsent.
    pub(super) fn returning(&mut self, sender: u64, slots: Vec<Slots>) -> HandBack {
        self.number += 1;
        HandBack::new(self.home.clone(), sender, self.number, Arc::clone(&self.logs), slots)
    }

    /// Asks for one run of callers.
    pub(super) async fn book(&mut self, sender: u64, run: Run) -> Grant {
        let ask = self.ask(sender, vec![run]);
        self.send(&ask).await
    }

    /// Sends an ask, for the first time or again.
    pub(super) async fn send(&self, ask: &Ask) -> Grant {
        self.law.answered(self.store.book(ask).await)
    }

    /// Hands slots back in one message.
    pub(super) async fn hand_back(&mut self, sender: u64, slots: Slots) {
        let message = self.returning(sender, vec![slots]);
        self.send_back(&message).await;
    }

    /// Sends a message that hands back, for the first time or again.
    pub(super) async fn send_back(&self, message: &HandBack) {
        self.law.answered(self.store.hand_back(message).await);
    }

    /// The next message of a sender that tells something.
    pub(super) fn id(&mut self, sender: u64) -> MessageId {
        self.number += 1;
        MessageId::new(sender, self.number)
    }

    pub(super) async fn hold(&mut self, wait: Duration) {
        let id = self.id(1);
        self.send_hold(id, &Hold::new(wait)).await;
    }

    /// Sends a hold, for the first time or again.
    pub(super) async fn send_hold(&self, id: MessageId, hold: &Hold) -> Incident {
        self.law.answered(self.store.hold(&self.home, id, hold).await)
    }

    /// The upstream reports what is left of the first log.
    pub(super) async fn learn(&mut self, report: Report) -> Learned {
        let lesson = Lesson { reports: vec![report], ..Lesson::default() };
        let id = self.id(1);
        self.send_lesson(id, &lesson).await
    }

    /// Sends a lesson about the first log, for the first time or again.
    pub(super) async fn send_lesson(&self, id: MessageId, lesson: &Lesson) -> Learned {
        self.law.answered(self.store.learn(&self.home, id, &self.logs[0], lesson).await)
    }

    pub(super) async fn usage(&self) -> Vec<LogUsage> {
        self.law.answered(self.store.usage(&self.home, &self.logs).await)
    }

    /// Units that count now by the first term of each log.
    pub(super) async fn used(&self) -> Vec<u32> {
        self.usage().await.iter().filter_map(|log| log.terms.first()).map(|term| term.used).collect()
    }
}
