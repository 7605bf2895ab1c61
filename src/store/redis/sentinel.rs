//! A primary that Sentinels name, of whose replicas one may be made primary in its place at any time.
//!
//! Replication is asynchronous, and a primary does not know that it was replaced: for 10 s or more it goes on to accept what is written.
//! So no answer counts before all replicas that may take over have what was written. Then nothing that counts is lost when
//! one of them does, and nothing counts that the old primary answers from then on: the new one follows it no more, so it never has
//! that. Nobody needs to have heard of the change for this; it matters only for how soon calls go on.
//!
//! Where a replica lacks something it is asked itself, and the Sentinels are: it was made primary, or it has gone.

mod followers;
mod known;
mod listen;
mod news;
mod primary;
pub(super) mod role;
mod sentinels;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use self::known::Known;
use self::news::News;
use self::primary::{Missed, Primary};
use self::sentinels::Sentinels;
use super::address::Address;
use super::call::Call;
use super::complaints::Complaints;
use super::link::{CONNECT_TIMEOUT, Failure, in_runtime, unreachable};
use super::trial;
use crate::error::{StoreError, StoreErrorKind};
use crate::ledger::Reply;

/// How long a call waits until it is tried again.
const AGAIN: Duration = Duration::from_millis(20);
/// While a server is silent the Sentinels are asked so often whether they name another one.
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
    looking: tokio::sync::Mutex<()>,
    /// Changes when the primary may be another one.
    alarm: watch::Sender<()>,
    listener: Mutex<Option<JoinHandle<()>>>,
    complaints: Mutex<Complaints>,
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
            like,
            prefix: prefix.into(),
            response_timeout,
            known: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
            alarm: watch::Sender::new(()),
            listener: Mutex::default(),
            complaints: Mutex::default(),
        }
    }

    /// Calls a script on the primary, and on the next one if that is replaced meanwhile.
    pub(super) async fn call(self: &Arc<Self>, call: Call<'_>) -> Result<Reply, Failure> {
        in_runtime()?;
        self.listen();
        let mut failure = None;
        let answer = self.answer(call, &mut failure);
        let answer = timeout(CONNECT_TIMEOUT + self.response_timeout, answer).await;
        answer.unwrap_or_else(|_| {
            self.doubt();
            Err(failure.unwrap_or_else(StoreError::late).into())
        })
    }

    async fn answer(&self, call: Call<'_>, failure: &mut Option<StoreError>) -> Result<Reply, Failure> {
        loop {
            let error = match self.primary().await {
                Ok(primary) => match self.asked(&primary, call).await {
                    Ok(answer) => return Ok(answer),
                    Err(Missed::Failed(failure)) if !failure.passes => return Err(failure),
                    Err(missed) => {
                        self.doubt();
                        let error = missed.into_error();
                        if !call.may_repeat() {
                            return Err(error.into());
                        }
                        error
                    }
                },
                Err(error) if error.kind() == StoreErrorKind::Unreachable => error,
                Err(error) => return Err(error.into()),
            };
            *failure = Some(error);
            sleep(AGAIN + AGAIN.mul_f64(fastrand::f64())).await;
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
        self.listen();
        Ok(())
    }

    /// The primary, as soon as one is to be believed.
    pub(super) async fn reached(&self) -> Result<Arc<Primary>, StoreError> {
        in_runtime()?;
        let deadline = Instant::now() + CONNECT_TIMEOUT + self.response_timeout;
        loop {
            match self.primary().await {
                Err(error) if error.kind() == StoreErrorKind::Unreachable && Instant::now() < deadline => {
                    sleep(AGAIN).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// The primary that is to be believed.
    async fn primary(&self) -> Result<Arc<Primary>, StoreError> {
        if let Some(primary) = self.known().believed() {
            return Ok(primary);
        }
        let looks = self.known().looks;
        // Whoever looks may be polled no more.
        let Ok(_looking) = timeout(2 * CONNECT_TIMEOUT, self.looking.lock()).await else {
            return Err(unreachable("the Sentinels cannot be asked: another call has not got through"));
        };
        if let Some(outcome) = self.known().outcome(looks) {
            return outcome;
        }
        let mut alarm = self.alarm.subscribe();
        let outcome = tokio::select! {
            outcome = self.look() => outcome,
            _ = alarm.changed() => Err(unreachable("the primary has just been replaced")),
        };
        self.known().looked(&outcome, Instant::now());
        outcome
    }

    /// Asks the Sentinels who is the primary, and whether that one is to be believed.
    async fn look(&self) -> Result<Arc<Primary>, StoreError> {
        let news = self.sentinels.news().await;
        let primary = match &news {
            Ok(news) => self.named(&news.primary)?,
            Err(error) => {
                let known = self.known().primary.clone().ok_or_else(|| error.clone())?;
                self.complain("no Sentinel", || {
                    let error = error as &dyn std::error::Error;
                    tracing::warn!(error, "no Sentinel answers: store goes on with the primary that it knows");
                });
                known
            }
        };
        let news = news.ok();
        tokio::select! {
            excused = primary.review(&self.like, news.as_ref(), self.response_timeout) => {
                for replica in excused? {
                    self.complain(&replica.to_string(), || {
                        tracing::warn!(%replica, "store goes on without a replica, which lacks what is granted until it follows again");
                    });
                }
                Ok(primary)
            }
            error = self.another(&primary.address) => Err(error),
        }
    }

    /// Waits until the Sentinels name another one.
    async fn another(&self, than: &Address) -> StoreError {
        loop {
            sleep(SILENCE).await;
            if let Ok(News { primary, .. }) = self.sentinels.news().await
                && primary != *than
            {
                return unreachable("the primary has just been replaced");
            }
        }
    }

    /// The server at an address that Sentinels name as the primary.
    fn named(&self, address: &Address) -> Result<Arc<Primary>, StoreError> {
        let mut known = self.known();
        if let Some(primary) = known.primary.as_ref().filter(|primary| primary.address == *address) {
            return Ok(Arc::clone(primary));
        }
        let client = address.client(&self.like)?;
        let primary = Arc::new(Primary::new(address.clone(), client, &self.prefix, self.response_timeout));
        if let Some(before) = known.primary.replace(Arc::clone(&primary)) {
            before.link.retire();
            tracing::info!(primary = %address, before = %before.address, "store has another primary");
        }
        Ok(primary)
    }

    /// It may be another one by now.
    fn doubt(&self) {
        self.known().is_believed = false;
    }

    /// It probably is.
    fn alarmed(&self) {
        {
            let mut known = self.known();
            (known.is_believed, known.looked_at) = (false, None);
        }
        self.alarm.send_replace(());
    }

    /// Hears of changes at once. As long as nobody does, answers tell.
    fn listen(self: &Arc<Self>) {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        // It ends with the runtime in which it was begun.
        if listener.as_ref().is_none_or(JoinHandle::is_finished) {
            *listener = Some(tokio::spawn(listen::listen(Arc::downgrade(self))));
        }
    }

    /// Traces what is not well, at once and then every minute.
    fn complain(&self, code: &str, warn: impl FnOnce()) {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        if complaints.is_due(code, "", Instant::now()) {
            warn();
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            listener.abort();
        }
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
