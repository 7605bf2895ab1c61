//! What follows from what an upstream said: for this process at once, for the cluster as soon as the store knows.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::Instant;

use crate::client::answer::{Answer, Head};
use crate::client::clock::hear_clock;
use crate::client::permit::Permit;
use crate::client::refusal;
use crate::client::retry::is_safe_after;
use crate::client::throttle::Throttle;
use crate::client::together::all;
use crate::config::call::Call;
use crate::config::charges::Scopes;
use crate::config::plan::Registered;
use crate::config::settle_by::SettleBy;
use crate::error::Error;
use crate::feedback::{Feedback, GRPC_STATUS, Quota, Refusal, is_from_cache};
use crate::ledger::{Evidence, Log, Pause, QuotaReport, Report, Stamp};
use crate::queue::news::{Said, Whom};
use crate::queue::reports::{is_for_part, reports, told_by};
use crate::queue::shard::Shard;

/// Less than this part of a quota is little: that may be why a call was refused.
const LITTLE: u64 = 4;

impl Throttle {
    /// Takes note of what an upstream said: after a refusal nobody in the cluster sends for a while, then slowly; and what
    /// others use of the quota is [learned](crate::Upstream::learn_from_responses), where that is asked for.
    ///
    /// The middleware does so for every response by its status and headers. This is for verdicts that stand in bodies, and
    /// for calls made without the middleware. Returns when the store has been told. A wait is honoured for
    /// [`max_pause`](crate::Upstream::max_pause) at most.
    ///
    /// ```
    /// # async fn shown(throttle: outgate::Throttle) -> Result<(), Box<dyn std::error::Error>> {
    /// use outgate::Feedback;
    /// use std::time::Duration;
    ///
    /// let permit = throttle.acquire("gateway").await?;
    /// // the call was refused, for so long
    /// throttle.report("gateway", &Feedback::refused(Duration::from_secs(20))).await?;
    /// # drop(permit);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::UnknownUpstream`], [`Error::StoreUnavailable`]: outside of a runtime at once, unless the store answers at once.
    pub async fn report(&self, upstream: &str, feedback: &Feedback) -> Result<(), Error> {
        let registered = self.registered(upstream)?;
        self.report_at(&registered, &Call::new(), feedback).await
    }

    /// The same for the calls of one scope value: a token, a merchant, as for [`Call::scope`](crate::Call::scope).
    ///
    /// ```
    /// # async fn shown(throttle: outgate::Throttle, response: reqwest::Response) -> Result<(), Box<dyn std::error::Error>> {
    /// throttle.report_in("gateway", "m-17", &outgate::Feedback::from(&response)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Throttle::report`].
    pub async fn report_in(&self, upstream: &str, scope: impl AsRef<[u8]>, feedback: &Feedback) -> Result<(), Error> {
        let registered = self.registered(upstream)?;
        self.report_at(&registered, &Call::new().scope(scope), feedback).await
    }

    /// What a response says that came just now, read by the upstream's [`Dialect`](crate::feedback::Dialect): to [`report`](Self::report) what a program
    /// knows better than its headers say, such as whom it is about.
    ///
    /// ```
    /// # async fn shown(throttle: outgate::Throttle, response: reqwest::Response) -> Result<(), Box<dyn std::error::Error>> {
    /// let feedback = throttle.read("gateway", response.status(), response.headers())?;
    /// if feedback.is_limited() && response.text().await?.contains("platform") {
    ///     throttle.report("gateway", &feedback).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::UnknownUpstream`].
    pub fn read(&self, upstream: &str, status: StatusCode, headers: &HeaderMap) -> Result<Feedback, Error> {
        let registered = self.registered(upstream)?;
        Ok(Feedback::read_as(&registered.upstream.dialect, status, headers, SystemTime::now()))
    }

    async fn report_at(&self, registered: &Registered, call: &Call, feedback: &Feedback) -> Result<(), Error> {
        let upstream = &registered.upstream.name;
        let unavailable = |source| Error::StoreUnavailable { upstream: Arc::clone(upstream), source };
        let mut scopes = registered.charges.scopes(call, None);
        if call.scope.is_none() {
            // Of nobody in particular: it was charged as a call without a value, and is about all callers of the upstream.
            scopes.all.get_or_insert_with(|| [scopes.narrowest].into());
            scopes.narrowest = registered.charges.whole(&scopes);
        }
        if feedback.refusal().is_some() {
            registered.counts.refusal_reported();
        }
        let answered = Answered { scopes: &scopes, charges: Some(&[]), started: None, status: 0, is_known: true };
        let said = said(registered, feedback, answered).into_iter();
        all(said.map(|said| self.take_note(said))).await.map_err(unavailable)
    }

    /// Settle: takes note of a response, in the background where the store has to be told. Says whether the same call may be
    /// sent again: it was refused for a limit, and not executed.
    pub(crate) fn learn_from(&self, permit: &Permit, answer: &Answer<'_>) -> bool {
        // Whose logs it was charged in: others may have taken their place.
        let registered = permit.registered();
        registered.budget.pay_in();
        if !answer.speaks {
            let upstream = permit.upstream();
            tracing::debug!(upstream, "redirected to another upstream, which says nothing of this one");
            if answer.status.is_success() {
                // To be redirected is to be served, where it ended well: some redirect whom they refuse to a page that says so.
                judge(permit, answer.status, None);
                permit.tell_served();
            }
            return false;
        }
        settle_by(permit, answer);
        if answer.head.is_none() {
            hear_clock(registered, permit, answer.headers);
        }
        let (dialect, status) = (&registered.upstream.dialect, answer.status);
        let may_refuse = Feedback::may_refuse(status, answer.headers);
        if is_from_cache(status, answer.headers) {
            // The upstream has not seen it: that says neither that it serves nor that it lets us in.
            return false;
        }
        if !may_refuse && !registered.upstream.learns && registered.breaker.is_none() {
            permit.tell_served();
            return false;
        }
        let feedback = if registered.upstream.learns || may_refuse {
            let age = answer.head.map_or(Duration::ZERO, |head| head.age);
            Feedback::read_later(dialect, status, answer.headers, (SystemTime::now(), age))
        } else {
            // What it says of the quota is nobody's business here.
            Feedback::default()
        };
        let refusal = feedback.refusal();
        let meant = meant(status, answer.headers);
        if !answer.head.is_some_and(|head| head.is_judged) {
            judge(permit, meant, refusal);
        }
        if refusal.is_some() {
            permit.tell_refused();
        } else if !may_refuse || shows_service(meant) {
            permit.tell_served();
        }
        if refusal.is_none() && !registered.upstream.learns {
            return false;
        }
        let (scopes, charges) = (permit.scopes(), permit.charges());
        let is_known = !matches!(meant, StatusCode::UNAUTHORIZED | StatusCode::PROXY_AUTHENTICATION_REQUIRED);
        let answered = Answered { scopes, charges, started: permit.stamp(), status: status.as_u16(), is_known };
        for said in said(registered, &feedback, answered) {
            self.take_note_in_background(said);
        }
        feedback.not_executed() && refusal.is_some_and(is_safe_after) && answer.is_direct
    }
}

/// Whether an error that is no refusal is that of an upstream that serves. Whom it shuts out it may tell so by what is said to a bad
/// request, too, or to who is not allowed.
fn shows_service(status: StatusCode) -> bool {
    let may_shut_out = [
        StatusCode::BAD_REQUEST,
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::IM_A_TEAPOT,
    ];
    !status.is_server_error() && !may_shut_out.contains(&status)
}

/// Has the breaker, where there is one, take note of a response, or of its head.
fn judge(permit: &Permit, status: StatusCode, refusal: Option<Refusal>) {
    if let Some(breaker) = &permit.registered().breaker {
        breaker.judge(permit.scope(), permit.pass(), status, refusal, Instant::now());
    }
}

/// The status of a response, or the one that HTTP has for what a gRPC server says beside a 200: that it failed, or whom it shuts out.
fn meant(status: StatusCode, headers: &HeaderMap) -> StatusCode {
    match headers.get(&GRPC_STATUS).filter(|_| status.is_success()).map(HeaderValue::as_bytes) {
        // Canceled.
        Some(b"1") => StatusCode::REQUEST_TIMEOUT,
        // Invalid argument.
        Some(b"3") => StatusCode::BAD_REQUEST,
        // Permission denied.
        Some(b"7") => StatusCode::FORBIDDEN,
        // Unauthenticated.
        Some(b"16") => StatusCode::UNAUTHORIZED,
        // Unknown, deadline exceeded, internal, unavailable, data loss.
        Some(b"2" | b"4" | b"13" | b"14" | b"15") => StatusCode::INTERNAL_SERVER_ERROR,
        _ => status,
    }
}

/// Takes note of the head of a response that says later whether it is a refusal. Says whether it was judged: that of a breaker's probe is, as a
/// stream may last for hours, and would shut all others out.
#[cfg(feature = "tower")]
pub(crate) fn read_head(permit: &Permit, status: StatusCode, headers: &HeaderMap) -> bool {
    hear_clock(permit.registered(), permit, headers);
    let is_judged = permit.pass().is_probe();
    if is_judged {
        judge(permit, status, None);
    }
    is_judged
}

/// Settles a call by what its response says that it used. What the program has said itself since the head came stays, unless the trailers say
/// something else than the head.
fn settle_by(permit: &Permit, answer: &Answer<'_>) {
    let settles = &permit.registered().upstream.settles;
    let settler = if settles.is_empty() { return } else { permit.settler() };
    for by in settles {
        let Some(used) = used_by(permit, by, answer.status, answer.headers) else { continue };
        let said_before = |head: Head<'_>| used_by(permit, by, answer.status, head.headers) == Some(used);
        if !answer.head.is_some_and(|head| settler.is_settled(&by.unit) && said_before(head)) {
            settler.settle(&by.unit, used);
        }
    }
}

/// The same by a head alone, whose response is lost: what it says to be less may not be all that the call used.
#[cfg(feature = "tower")]
pub(crate) fn settle_by_head(permit: &Permit, status: StatusCode, headers: &HeaderMap) {
    let settles = &permit.registered().upstream.settles;
    let settler = if settles.is_empty() { return } else { permit.settler() };
    for by in settles {
        let used = used_by(permit, by, status, headers).filter(|_| !settler.is_settled(&by.unit));
        if let Some(used) = used.filter(|&used| settler.takes_less(&by.unit, used)) {
            settler.settle(&by.unit, used);
        }
    }
}

/// What a response says that its call used of a unit.
fn used_by(permit: &Permit, by: &SettleBy, status: StatusCode, headers: &HeaderMap) -> Option<u64> {
    // A closure of the program's: where it panics, the response is still heard, which may be a refusal.
    let used = catch_unwind(AssertUnwindSafe(|| by.used(status, headers)));
    let used = used.unwrap_or_else(|_| {
        let (upstream, unit) = (permit.upstream(), &*by.unit);
        tracing::warn!(upstream, unit, "settle_by panicked: the call keeps its charge");
        None
    });
    used.map(|used| used.min(permit.registered().upstream.most_settled(&by.unit)))
}

/// A call that was answered: whose logs it was charged in, and what, where they hold it; when it started, where that is known; and the
/// response's status, or 0; and whether it knows who calls.
#[derive(Clone, Copy)]
struct Answered<'a> {
    scopes: &'a Scopes,
    charges: Option<&'a [u32]>,
    started: Option<Stamp>,
    status: u16,
    is_known: bool,
}

/// What a response said: of the scope that few share, and of each further log that it reports of; where it pauses the whole upstream, to each
/// shard of it.
fn said(registered: &Registered, feedback: &Feedback, call: Answered<'_>) -> Vec<Said> {
    let (upstream, charges, scope) = (&registered.upstream, &registered.charges, call.scopes.narrowest);
    let feedback = &*if upstream.has_whole_hosts() { Cow::Borrowed(feedback) } else { feedback.to_part_of_host() };
    // What is said of nobody in particular was of a call without a value.
    let (home, shards) = (registered.shard(charges.fewest(call.scopes)), registered.shards());
    let whom_in = |shard: &Shard, scope| {
        let whom = Whom::new(Arc::clone(&upstream.name), registered.key(scope));
        whom.within(&shard.ledger, shard.ledger == registered.home().ledger)
    };
    let whom = |scope| whom_in(home, scope);
    let releases = registered.crowd.releases();
    let is_quota = feedback.refusal() == Some(Refusal::Quota);
    let logs = charges.logs_of(call.scopes);
    let unlearned = |quota: &Quota, why| registered.unlearned.tell(&upstream.name, quota, why);
    // Who is not known is told of a quota of everybody who is not.
    let learns = upstream.learns && call.is_known;
    let mut reported = if learns { reports(&upstream.limits, charges, feedback, unlearned) } else { BTreeMap::new() };
    let has_reports = !reported.is_empty();
    // What is told is rounded, and comes from another moment or another counter than the refusal.
    let has_little = |quota: &QuotaReport| u64::from(quota.remaining) * LITTLE < u64::from(quota.term.quota);
    let is_explained = reported.values().flatten().any(has_little);
    let report = |log: usize, quotas| {
        let log: &Log = &logs[log];
        (log.clone(), Report { started: call.started, late: registered.stale_after, quotas })
    };
    // What it says of the log that refusals are evidence of comes with the pause.
    let first = charges.evidence().filter(|_| learns);
    let first = first.map(|log| report(log, reported.remove(&log).unwrap_or_default()));
    let pause = refusal::pause((upstream, charges), feedback, fastrand::f64()).map(|(of_all, pause)| {
        let paused = scope.filter(|_| !of_all);
        // What a report explains, as little is left, is outside use, and says nothing of the limits; nor does what the spent quota of a part
        // explains, nor a call that no log holds, nor one that only happened beside a spent quota.
        let is_unexplained = !is_explained && !feedback.is_inferred() && !is_for_part(&upstream.limits, feedback);
        let is_evidence = is_quota && is_unexplained && paused == scope;
        let log = if paused == scope { charges.evidence() } else { charges.calls_of_all() };
        let log = log.filter(|&log| logs[log].scope == paused);
        let evidence = log.zip(call.charges).map(|(log, charged)| {
            let units = if is_evidence { charged.get(log).copied().unwrap_or(1) } else { 0 };
            let since_reset = |term| home.calendars.since_reset(&logs[log], (log, term), call.started?);
            let of = Evidence::new(logs[log].clone(), units, charges.windows_of(upstream, log, since_reset));
            Box::new(Evidence { calls: is_evidence.into(), ..of })
        });
        let recovery = refusal::recovery(upstream, feedback, has_reports);
        (whom(paused), Pause { recovery, started: call.started, status: call.status, evidence, ..pause })
    });
    if let Some(header) = told_by(&upstream.limits, feedback).filter(|_| has_reports) {
        registered.learn_from(header);
    }
    let elsewhere: Vec<Said> = pause
        .iter()
        .filter(|(paused, _)| !paused.is_scope())
        .flat_map(|(_, pause)| {
            shards.iter().filter(|shard| shard.ledger != home.ledger).map(|shard| {
                let started = call.started.and_then(|started| home.time.of_other(&shard.time, started, Instant::now()));
                let (whom, pause) = (whom_in(shard, None), Pause { started, evidence: None, ..pause.clone() });
                Said { whom: whom.clone(), ticket: None, pause: Some((whom, pause)), report: None, releases }
            })
        })
        .collect();
    let first = Said { whom: whom(scope), ticket: None, pause, report: first, releases };
    let further = reported.into_iter().map(|(log, quotas)| {
        let (log, report) = report(log, quotas);
        Said {
            whom: whom(log.scope).about(&log.unit),
            ticket: None,
            pause: None,
            report: Some((log, report)),
            releases,
        }
    });
    std::iter::once(first).chain(further).chain(elsewhere).collect()
}
