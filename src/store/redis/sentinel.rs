//! A primary that Sentinels name, of whose replicas one may be made primary in its place at any time.
//!
//! Replication is asynchronous, and a primary does not know that it was replaced: for 10 s or more it goes on to accept what is written.
//! So no answer counts before all replicas that may take over have what was written. Then nothing that counts is lost when
//! one of them does, and nothing counts that the old primary answers from then on: the new one follows it no more, so it never has
//! that. Nobody needs to have heard of the change for this; it matters only for how soon calls go on.
//!
//! Where a replica lacks something it is asked itself, and the Sentinels are: it was made primary, or it has gone.

mod followers;
mod in_vain;
mod known;
mod listen;
mod looking;
mod news;
mod primary;
pub(super) mod role;
mod sentinels;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Client;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use self::in_vain::InVain;
use self::known::Known;
use self::listen::Listener;
use self::primary::{Missed, Primary};
use self::sentinels::Sentinels;
use super::call::Call;
use super::health::Health;
use super::link::{CONNECT_TIMEOUT, Failure, in_runtime, reached_within, served_within, tuned, unreachable};
use super::one_at_a_time::OneAtATime;
use super::trial;
use crate::error::StoreError;
use crate::ledger::Reply;

/// For how long at least nothing is asked after a first failure, of the primary or of the Sentinels.
const AGAIN: Duration = Duration::from_millis(20);
/// That grows up to this, and while a server is silent the Sentinels are asked so often whether they name another one.
const SILENCE: Duration = Duration::from_millis(300);

/// A primary that Sentinels name, for all clones of a store.
pub(super) struct Sentinel {
    sentinels: Sentinels,
    /// To each server everything is as to this, but for where it is.
    like: Client,
    prefix: Box<str>,
    response_timeout: Duration,
    known: Mutex<Known>,
    /// Held by the one call that looks up who is the primary; the others wait for its outcome.
    looking: OneAtATime,
    /// Changes when the primary may be another one.
    alarm: watch::Sender<()>,
    listener: Mutex<Listener>,
    /// Whether any answer counts. Of the server itself its link tells.
    health: Health,
    in_vain: Mutex<InVain>,
}

impl Sentinel {
    /// The primary of a name.
    pub(super) fn new(
        name: &str,
        sentinels: Vec<Client>,
        like: Client,
        prefix: &str,
        response_timeout: Duration,
    ) -> Self {
        Self {
            sentinels: Sentinels::new(name, sentinels),
            like: tuned(like),
            prefix: prefix.into(),
            response_timeout,
            known: Mutex::default(),
            looking: OneAtATime::within(2 * reached_within(response_timeout) + response_timeout),
            alarm: watch::Sender::new(()),
            listener: Mutex::default(),
            health: Health::default(),
            in_vain: InVain::new(response_timeout).into(),
        }
    }

    /// Calls a script on the primary, and on the next one if that is replaced meanwhile.
    pub(super) async fn call(self: &Arc<Self>, call: Call<'_>) -> Result<Reply, Failure> {
        in_runtime()?;
        self.listen();
        let mut failure = None;
        let answer = self.answer(call, &mut failure);
        let answer = timeout(served_within(self.response_timeout), answer).await;
        answer.unwrap_or_else(|_| {
            let error = failure.unwrap_or_else(StoreError::late);
            self.known().doubt(&error, Instant::now());
            self.stands_still(&error);
            Err(error.into())
        })
    }

    async fn answer(&self, mut call: Call<'_>, failure: &mut Option<StoreError>) -> Result<Reply, Failure> {
        let mut alarm = self.alarm.subscribe();
        loop {
            alarm.mark_unchanged();
            let error = match self.primary().await {
                Ok(primary) => match self.asked(&primary, call).await {
                    Ok(answer) => {
                        self.goes_on();
                        return Ok(answer);
                    }
                    Err(Missed::Failed(failure)) if !failure.passes => {
                        // What refuses to be connected to may be another server by now, at the address of one that has gone.
                        if !primary.link.is_connected() {
                            self.doubt(&primary, &failure.error);
                        }
                        return Err(failure);
                    }
                    Err(missed) => {
                        let error = missed.into_error();
                        self.doubt(&primary, &error);
                        self.missed(&error);
                        if !call.may_repeat() {
                            return Err(error.into());
                        }
                        call = call.again();
                        error
                    }
                },
                Err(failure) if failure.passes => {
                    self.missed(&failure.error);
                    failure.error
                }
                Err(failure) => return Err(failure),
            };
            *failure = Some(error);
            self.rest(&mut alarm).await;
        }
    }

    /// Waits until something may be asked again, or another primary is heard of.
    async fn rest(&self, alarm: &mut watch::Receiver<()>) {
        let until = self.known().rests_until();
        if let Some(until) = until {
            let _ = timeout_at(until, alarm.changed()).await;
        }
    }

    /// The answer of a primary, unless another one may have taken its place before it comes.
    async fn asked(&self, primary: &Primary, call: Call<'_>) -> Result<Reply, Missed> {
        let mut alarm = self.alarm.subscribe();
        let patience = self.response_timeout / 4;
        tokio::select! {
            biased;
            answer = primary.call(call, patience) => answer,
            _ = alarm.changed() => Err(Missed::Alone),
        }
    }

    /// Tries what the scripts need on the primary.
    pub(super) async fn tried(self: &Arc<Self>, prefix: &str) -> Result<(), StoreError> {
        let primary = self.reached().await?;
        primary::tried(&primary.link).await?;
        trial::run(&primary.link, prefix).await?;
        primary::tried_replicas(&primary.link, &self.like, self.response_timeout).await;
        self.goes_on();
        self.listen();
        Ok(())
    }

    /// The primary, as soon as one is to be believed.
    pub(super) async fn reached(&self) -> Result<Arc<Primary>, StoreError> {
        in_runtime()?;
        let (mut alarm, began, mut has_missed) = (self.alarm.subscribe(), Instant::now(), false);
        loop {
            alarm.mark_unchanged();
            let outcome = self.primary().await;
            // One that is named may have to wait until a replica of it is given up.
            let longest = if self.known().primary.is_some() { in_vain::PATIENCE } else { CONNECT_TIMEOUT };
            match outcome {
                Err(failure) if failure.passes && began.elapsed() < longest + self.response_timeout => {
                    self.missed(&failure.error);
                    has_missed = true;
                }
                outcome => {
                    if has_missed && outcome.is_ok() {
                        self.in_vain().end();
                        self.health.is_up(false);
                    }
                    return outcome.map_err(|failure| failure.error);
                }
            }
            self.rest(&mut alarm).await;
        }
    }

    /// An answer counted.
    fn goes_on(&self) {
        self.known().answered();
        self.in_vain().end();
        self.health.is_up(true);
    }

    /// Nothing counted, which may pass before anybody need hear of it: a replica lags behind, or another one is made primary.
    fn missed(&self, error: &StoreError) {
        let now = Instant::now();
        let lasts = {
            let mut in_vain = self.in_vain();
            in_vain.see(now);
            in_vain.lasts(now)
        };
        if lasts >= self.response_timeout {
            self.stands_still(error);
        }
    }

    /// Nothing has counted for long, unless it is the server that is down.
    fn stands_still(&self, error: &StoreError) {
        let is_told = self.known().primary.as_ref().is_some_and(|primary| primary.link.health.is_said_to_be_down());
        if !is_told {
            self.health.is_down(error);
        }
    }

    /// It may be another one by now.
    fn doubt(&self, primary: &Arc<Primary>, error: &StoreError) {
        let mut known = self.known();
        if known.primary.as_ref().is_some_and(|known| Arc::ptr_eq(known, primary)) {
            known.doubt(error, Instant::now());
        }
    }

    /// It probably is.
    fn alarmed(&self) {
        let mut known = self.known();
        known.forget();
        // Whoever looks has looked before this, or is told of it.
        self.alarm.send_replace(());
    }

    /// Hears of changes at once. As long as nobody does, answers tell.
    fn listen(self: &Arc<Self>) {
        self.listener().called(|| listen::listen(Arc::downgrade(self)));
    }

    /// Traces what is not well, at once and then every minute.
    fn complain(&self, code: &str, warn: impl FnOnce()) {
        if self.health.is_due(code, "") {
            warn();
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_vain(&self) -> MutexGuard<'_, InVain> {
        self.in_vain.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listener(&self) -> MutexGuard<'_, Listener> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Missed {
    fn into_error(self) -> StoreError {
        match self {
            Self::Alone => {
                unreachable("the store's answer does not count: a replica that may take over has not got it")
            }
            Self::Failed(failure) => failure.error,
        }
    }
}
