//! Random histories, told to a store.

use std::collections::HashMap;
use std::sync::Arc;

use super::Subject;
use super::desk::fresh_upstream;
use super::law::Law;
use crate::ledger::{Body, Grant, Message, Paused, Reply, Stamp};
use crate::store::StoreErrorKind;
use crate::testing::history::{Heard, History, plain};

/// What a store said, in stamps since the beginning.
pub(super) type Said = Vec<Heard>;

/// How a history is told.
pub(super) struct Telling<'a> {
    pub(super) law: Law,
    pub(super) subject: &'a dyn Subject,
    pub(super) seed: u64,
    /// How far from the usual one the store's clock stands, in microseconds.
    pub(super) shift: i64,
    /// Every message is sent twice, and the last one again before the next.
    pub(super) twice: bool,
}

/// A message, what it was answered, and until when that is remembered for certain.
struct Last {
    message: Message,
    heard: Heard,
    until: Stamp,
}

impl<'a> Telling<'a> {
    pub(super) fn new(law: Law, subject: &'a dyn Subject, seed: u64) -> Self {
        Self { law, subject, seed, shift: 0, twice: false }
    }

    /// Tells a calm history of a fresh upstream, and demands that this law holds. `between` runs before every message.
    pub(super) async fn tell(&self, between: impl AsyncFnMut()) -> Said {
        self.tell_of(fresh_upstream(self.law), between).await
    }

    /// The same of an upstream that others may call.
    pub(super) async fn tell_of(&self, upstream: Arc<str>, mut between: impl AsyncFnMut()) -> Said {
        let (clock, mut said, mut last) = (self.subject.clock(), Vec::new(), None::<Last>);
        let mut remembered = HashMap::new();
        let mut history = History::new(upstream, self.seed).calm().ahead_by(self.shift);
        while let Some((now, message)) = history.next_message() {
            clock.set(now);
            between().await;
            if let Some(last) = last.take().filter(|last| self.twice && last.until > history.now()) {
                let again = Message { latest: None, ..last.message };
                let heard = self.send(&again).await;
                self.alike(&heard, &last.heard, &again);
            }
            let heard = self.send(&message).await;
            let is_nobodys = message.id.is_nobodys() && matches!(message.body, Body::Ask(_));
            if self.twice && !is_nobodys {
                let again = self.send(&message).await;
                self.alike(&again, &heard, &message);
                // A copy is remembered no longer for it.
                let until = remembered_until(history.now(), &message, &heard);
                let until = *remembered.entry(message.id.clone()).or_insert(until);
                last = Some(Last { until, heard: heard.clone(), message: message.clone() });
            }
            said.push(heard.clone().map(|reply| plain(&message, reply, history.epoch())));
            history.hear(heard);
        }
        let what = |breach: &str| format!("{breach}, seed {}", self.seed);
        for breach in history.record().breaches() {
            let others = format!("law {} is broken as well: ", breach.law);
            let other = if breach.law == self.law.number { "" } else { &others };
            self.law.holds(false, &what(&format!("{other}{}", breach.what)));
        }
        said
    }

    async fn send(&self, message: &Message) -> Heard {
        match self.subject.store().apply(message).await {
            Err(error) if matches!(error.kind(), StoreErrorKind::Outdated | StoreErrorKind::Duplicate) => {
                Err(error.kind())
            }
            answer => Ok(self.law.answered(answer)),
        }
    }

    /// A message that comes again is answered as before, but for what time changes.
    fn alike(&self, again: &Heard, before: &Heard, message: &Message) {
        let what = format!("seed {}, sent again: {message:?}", self.seed);
        self.law.equal(&again.clone().map(timeless), &before.clone().map(timeless), &what);
    }
}

/// An answer without the time when it was given.
fn timeless(reply: Reply) -> Reply {
    match reply {
        Reply::Grant(grant) => Reply::Grant(Grant { now: Stamp::NEVER, paused: None, ..grant }),
        Reply::Paused(paused) => Reply::Paused(Paused { now: Stamp::NEVER, ..paused }),
        Reply::Done(_) => Reply::Done(Stamp::NEVER),
        other => other,
    }
}

/// Until when an answer given at `now` is remembered at least: what has changed nothing may fare better when it comes again.
fn remembered_until(now: Stamp, message: &Message, heard: &Heard) -> Stamp {
    match (&message.body, heard) {
        (Body::Ask(ask), Ok(Reply::Grant(grant))) if grant.remembered => now.plus(ask.retention()),
        (_, Ok(Reply::Paused(paused))) => paused.until,
        (Body::Report { report, .. }, Ok(Reply::Learned(learned))) if learned.outside > 0 => {
            now.plus(report.quotas.iter().map(|quota| quota.term.span).min().unwrap_or(0))
        }
        _ => now,
    }
}
