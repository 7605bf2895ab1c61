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
use crate::ledger::{Evidence, Pause, Report, ScopeId, Stamp};
use crate::queue::news::{Said, Whom};
use crate::queue::reports::{reports, told_by};

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
        let said = said(registered, scope, feedback, Call { started: None, units: 1, status: 0 });
        self.take_note(said).await.map_err(unavailable)
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
        if refusal.is_none() && !status.is_server_error() && permit.looks() {
            self.end_pause_in_background(permit);
        }
        if refusal.is_none() && !registered.upstream.learns {
            return false;
        }
        let call = Call { started: permit.stamp(), units: permit.units(), status: status.as_u16() };
        self.take_note_in_background(said(registered, permit.scope(), &feedback, call));
        may_send_again
    }
}

/// A call that was answered: when it started, where that is known; what it was charged, and the response's status, or 0.
#[derive(Clone, Copy)]
struct Call {
    started: Option<Stamp>,
    units: u32,
    status: u16,
}

/// What a response said of the calls of a scope.
fn said(registered: &Registered, scope: Option<ScopeId>, feedback: &Feedback, call: Call) -> Said {
    let (upstream, Call { started, units, status }) = (&registered.upstream, call);
    let whom = |scope| Whom::new(Arc::clone(&upstream.name), registered.key(scope));
    let is_quota = feedback.refusal() == Some(Refusal::Quota);
    let reports = if upstream.learns { reports(&upstream.limits, feedback) } else { Vec::new() };
    let pause = refusal::pause(upstream, feedback, fastrand::f64()).map(|(of_all, pause)| {
        let paused = scope.filter(|_| !of_all);
        // What a report explains is outside use, and says nothing of the limits.
        let log = registered.logs.first().filter(|_| is_quota && reports.is_empty() && paused == scope);
        let windows = || upstream.limits.iter().map(|limit| (limit.window_term(), limit.window())).collect();
        let evidence = log.map(|log| Evidence::new(log.clone().of(scope), units, windows())).map(Box::new);
        let recovery = refusal::recovery(upstream, feedback, !reports.is_empty());
        (whom(paused), Pause { recovery, started, status, evidence, ..pause })
    });
    let log = registered.logs.first().filter(|_| upstream.learns);
    let report = log.map(|log| {
        let late = registered.stale_after;
        if let Some(header) = told_by(feedback).filter(|_| !reports.is_empty()) {
            registered.learn_from(header);
        }
        (log.clone().of(scope), Report { started, late, quotas: reports })
    });
    Said { whom: whom(scope), ticket: None, pause, report }
}
