//! What follows from what an upstream said: for this process at once, for the cluster as soon as the store knows.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, SystemTime};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use reqwest::Response;
use tokio::runtime::Handle;
use tokio::select;
use tokio::time::{Instant, sleep, timeout};

use crate::client::permit::Permit;
use crate::client::refusal;
use crate::client::retry::is_safe_after;
use crate::client::throttle::Throttle;
use crate::client::url::Target;
use crate::config::plan::Registered;
use crate::error::{Error, StoreError};
use crate::feedback::{Feedback, Refusal};
use crate::ledger::ScopeId;
use crate::ledger::Stamp;
use crate::ledger::{Body, Message, MessageId, Pause, Reply, Report};
use crate::queue::one_by_one::Turn;
use crate::queue::reports::{self, memory};
use crate::queue::resend::PATIENCE;
use crate::queue::table::Key;

impl Throttle {
    /// Takes note of what an upstream said: after a refusal nobody in the cluster sends for a while, then slowly; and what
    /// others use of the quota is [learned](crate::Upstream::learn_from_responses), where that is asked for.
    ///
    /// The middleware does so for every response by its status and headers. This is for verdicts that stand in bodies, and
    /// for calls made without the middleware. Returns when the store has been told. A wait is believed for
    /// [`max_pause`](crate::Upstream::max_pause) at most.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownUpstream`], [`Error::StoreUnavailable`].
    pub async fn report(&self, upstream: &str, feedback: &Feedback) -> Result<(), Error> {
        let registered = self.registered(upstream)?;
        self.report_at(registered, None, feedback).await
    }

    /// The same for the calls of one scope value: a token, a merchant.
    ///
    /// # Errors
    ///
    /// As for [`Throttle::report`].
    pub async fn report_in(&self, upstream: &str, scope: impl AsRef<[u8]>, feedback: &Feedback) -> Result<(), Error> {
        let registered = self.registered(upstream)?;
        self.report_at(registered, Some(ScopeId::of(scope.as_ref())), feedback).await
    }

    async fn report_at(
        &self,
        registered: &Registered,
        scope: Option<ScopeId>,
        feedback: &Feedback,
    ) -> Result<(), Error> {
        let upstream = &registered.upstream.name;
        let unavailable = |source| Error::StoreUnavailable { upstream: Arc::clone(upstream), source };
        let first = match refusal::pause(&registered.upstream, feedback, fastrand::f64()) {
            Some((of_all, pause)) => {
                let whom = registered.key(scope.filter(|_| !of_all));
                self.withhold(whom, &pause);
                let _turn = self.turn(whom).await.map_err(unavailable)?;
                let mut id = self.process().next_message(stream(whom));
                self.pause(registered, whom, &mut id, &pause).await.map_err(unavailable)?
            }
            None => false,
        };
        self.learn(registered, scope, feedback, None, first).await.map_err(unavailable)
    }

    /// Waits for those who tell the store of the same scope, as long as a message is waited for.
    async fn turn(&self, whom: Key) -> Result<Turn<'_>, StoreError> {
        let turn = self.tellings().turn(whom);
        // A timer that finds no runtime panics; without one nobody else waits.
        if Handle::try_current().is_err() {
            return Ok(turn.await);
        }
        timeout(PATIENCE, turn).await.map_err(|_| StoreError::late())
    }

    /// Settle: takes note of a response, in the background where the store has to be told. Says whether the same call may be
    /// sent again: it was refused for a limit, and not executed.
    pub(crate) fn hear(&self, permit: &Permit, target: &Target, response: &Response) -> bool {
        let Ok(registered) = self.registered(permit.upstream()) else { return false };
        registered.budget.pay_in();
        if !target.is_spoken_for_by(response) {
            tracing::debug!(upstream = permit.upstream(), "redirected to another host, which says nothing of this one");
            return false;
        }
        let dialect = &registered.upstream.dialect;
        let feedback = Feedback::read_as(dialect, response.status(), response.headers(), SystemTime::now());
        let refusal = feedback.refusal();
        if let Some(breaker) = &registered.breaker {
            breaker.hear(permit.scope(), permit.pass(), response.status(), refusal, Instant::now());
        }
        let may_send_again =
            feedback.not_executed() && refusal.is_some_and(is_safe_after) && target.is_answered_by(response);
        if refusal.is_none() && !registered.upstream.learns {
            return false;
        }
        let (throttle, registered, scope) = (self.clone(), Arc::clone(registered), permit.scope());
        let started = Some(permit.stamp());
        let mut telling = Box::pin(async move { throttle.tell(&registered, scope, &feedback, started).await });
        // Once by hand, so that this process is silent before the response is seen; the rest whatever becomes of the caller.
        if telling.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            if let Ok(runtime) = Handle::try_current() {
                runtime.spawn(telling);
            } else {
                tracing::warn!(upstream = permit.upstream(), "no runtime to tell the store on");
            }
        }
        may_send_again
    }

    /// Tells the store of a hold, again and again while it lasts and the store does not answer, and then of what was learned.
    async fn tell(&self, registered: &Registered, scope: Option<ScopeId>, feedback: &Feedback, started: Option<Stamp>) {
        let upstream = &*registered.upstream.name;
        let mut first = false;
        if let Some((of_all, mut pause)) = refusal::pause(&registered.upstream, feedback, fastrand::f64()) {
            let whom = registered.key(scope.filter(|_| !of_all));
            pause.started = started;
            let since = Instant::now();
            self.withhold(whom, &pause);
            let turn = self.tellings().turn(whom).await;
            // The same message until it is answered, which acts once however often it is sent.
            let mut id = self.process().next_message(stream(whom));
            let is_over = |at: Duration| pause.waits.iter().all(|wait| *wait <= at);
            let mut pauses = ExponentialBuilder::default().with_max_delay(Duration::from_secs(5)).with_jitter().build();
            loop {
                match self.pause(registered, whom, &mut id, &after(&pause, since.elapsed())).await {
                    Ok(begun) => break first = begun,
                    Err(error) => tracing::warn!(upstream, %error, "the pause is not known to the others yet"),
                }
                let wait = pauses.next().unwrap_or(Duration::from_secs(5));
                if is_over(since.elapsed() + wait) {
                    return;
                }
                // Another refusal shows that the pause is too long.
                select! {
                    () = sleep(wait) => {}
                    () = turn.wanted() => {}
                }
            }
        }
        if let Err(error) = self.learn(registered, scope, feedback, started, first).await {
            tracing::debug!(upstream, %error, "not learned from");
        }
    }

    /// Lets nobody of this process send for a while.
    fn withhold(&self, whom: Key, pause: &Pause) {
        self.queues().pause(whom, pause.waits.first().copied().unwrap_or_default(), pause.cause);
    }

    /// Tells the store that nobody sends for a while. Says whether that is news.
    async fn pause(
        &self,
        registered: &Registered,
        whom: Key,
        id: &mut MessageId,
        pause: &Pause,
    ) -> Result<bool, StoreError> {
        let body = Body::Pause { scope: whom.1, pause: pause.clone() };
        let paused = self.tell_store(registered, id, body).await?.paused().ok_or_else(StoreError::senseless)?;
        let wait = paused.wait();
        tracing::warn!(upstream = &*registered.upstream.name, ?wait, cause = pause.cause.words(), "refused, all pause");
        self.queues().pause(whom, wait, pause.cause);
        Ok(paused.first)
    }

    /// Sends a message, once more under another name where that is wanted.
    async fn tell_store(&self, registered: &Registered, id: &mut MessageId, body: Body) -> Result<Reply, StoreError> {
        let known = registered.time.known();
        let mut message = Message { known, ..Message::new(Arc::clone(&registered.upstream.name), id.clone(), body) };
        let answer = self.store().apply(&message).await;
        let Some(next) = answer.as_ref().err().and_then(|error| self.process().renamed(id, error)) else {
            return answer;
        };
        id.clone_from(&next);
        message.id = next;
        self.store().apply(&message).await
    }

    /// Tells the store what an upstream reported of its quotas, and of the first refusal of an incident.
    async fn learn(
        &self,
        registered: &Registered,
        scope: Option<ScopeId>,
        feedback: &Feedback,
        started: Option<Stamp>,
        first: bool,
    ) -> Result<(), StoreError> {
        let upstream = &registered.upstream;
        let Some(log) = registered.logs.first().filter(|_| upstream.learns) else { return Ok(()) };
        let refused = first && feedback.refusal() == Some(Refusal::Quota);
        let quotas = reports::reports(&upstream.limits, feedback);
        if quotas.is_empty() && !refused {
            return Ok(());
        }
        let report = Report { started, late: registered.stale_after, quotas, refused, memory: memory(upstream) };
        let whom = registered.key(scope);
        let Some((mut telling, mut report)) = self.lessons().begin(whom, report) else { return Ok(()) };
        loop {
            let turn = self.turn(whom).await?;
            let mut id = self.process().next_message(stream(whom));
            let body = Body::Report { log: log.clone().of(scope), report: report.clone() };
            let learned = self.tell_store(registered, &mut id, body).await?;
            let learned = learned.learned().ok_or_else(StoreError::senseless)?;
            drop(turn);
            if learned.outside > 0 {
                tracing::debug!(upstream = &*upstream.name, units = learned.outside, "others use the same quota");
            } else if report.refused && learned.widened > 0 {
                tracing::warn!(
                    upstream = &*upstream.name,
                    thousandths = learned.widened,
                    "refused within the limits, guard widened"
                );
            }
            match telling.next() {
                Some(next) => report = next,
                None => return Ok(()),
            }
        }
    }
}

/// The stream of what is told of a scope.
fn stream((_, scope): Key) -> Arc<str> {
    scope.map_or_else(|| "!".into(), |scope| format!("{scope}!").into())
}

/// The rest of a pause, some time after it began.
fn after(pause: &Pause, elapsed: Duration) -> Pause {
    let mut rest = pause.clone();
    rest.waits.iter_mut().for_each(|wait| *wait = wait.saturating_sub(elapsed));
    rest
}
