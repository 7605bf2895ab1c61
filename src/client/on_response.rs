//! What follows from what an upstream said: for this process at once, for the cluster as soon as the store knows.

use std::sync::Arc;
use std::time::SystemTime;

use reqwest::Response;
use tokio::time::Instant;

use crate::client::permit::Permit;
use crate::client::refusal;
use crate::client::retry::is_safe_after;
use crate::client::throttle::Throttle;
use crate::client::url::Target;
use crate::config::plan::Registered;
use crate::error::Error;
use crate::feedback::{Feedback, Refusal};
use crate::ledger::{Pause, Report, ScopeId, Stamp};
use crate::queue::news::{Said, Whom};
use crate::queue::reports::{self, memory};

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
        self.take_note(said(registered, scope, feedback, None)).await.map_err(unavailable)
    }

    /// Settle: takes note of a response, in the background where the store has to be told. Says whether the same call may be
    /// sent again: it was refused for a limit, and not executed.
    pub(crate) fn learn_from(&self, permit: &Permit, target: &Target, response: &Response) -> bool {
        let Ok(registered) = self.registered(permit.upstream()) else { return false };
        registered.budget.pay_in();
        if !target.is_spoken_for_by(response) {
            tracing::debug!(upstream = permit.upstream(), "redirected to another host, which says nothing of this one");
            return false;
        }
        let (dialect, status) = (&registered.upstream.dialect, response.status());
        let feedback = if registered.upstream.learns || Feedback::may_refuse(status) {
            Feedback::read_as(dialect, status, response.headers(), SystemTime::now())
        } else {
            // What it says of the quota is nobody's business here.
            Feedback::default()
        };
        let refusal = feedback.refusal();
        if let Some(breaker) = &registered.breaker {
            breaker.judge(permit.scope(), permit.pass(), status, refusal, Instant::now());
        }
        let may_send_again =
            feedback.not_executed() && refusal.is_some_and(is_safe_after) && target.is_answered_by(response);
        if refusal.is_none() && !registered.upstream.learns {
            return false;
        }
        self.take_note_in_background(said(registered, permit.scope(), &feedback, Some(permit.stamp())));
        may_send_again
    }
}

/// What a response said of the calls of a scope: `started` is when its call did, where that is known.
fn said(registered: &Registered, scope: Option<ScopeId>, feedback: &Feedback, started: Option<Stamp>) -> Said {
    let upstream = &registered.upstream;
    let whom = |scope| Whom::new(Arc::clone(&upstream.name), registered.key(scope));
    let pause = refusal::pause(upstream, feedback, fastrand::f64())
        .map(|(of_all, pause)| (whom(scope.filter(|_| !of_all)), Pause { started, ..pause }));
    let log = registered.logs.first().filter(|_| upstream.learns);
    let report = log.map(|log| {
        let (late, quotas) = (registered.stale_after, reports::reports(&upstream.limits, feedback));
        let refused = feedback.refusal() == Some(Refusal::Quota);
        (log.clone().of(scope), Report { started, late, quotas, refused, memory: memory(upstream) })
    });
    Said { whom: whom(scope), ticket: None, pause, report }
}
