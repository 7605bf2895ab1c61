//! Refuses the calls of a scope whose responses are 401 or 403, until one shows that they are no longer.

mod failures_in_a_row;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::StatusCode;
use tokio::time::Instant;

pub(crate) use self::failures_in_a_row::Pass;
use self::failures_in_a_row::Row;
use crate::config::backoff::Backoff;
use crate::error::Error;
use crate::feedback::Refusal;
use crate::ledger::ScopeId;

/// One upstream's breaker: for each of its scopes closed, open, or open with a probe under way.
#[derive(Debug)]
pub(crate) struct Breaker {
    upstream: Arc<str>,
    /// It opens after so many.
    limit: u32,
    backoff: Backoff,
    rows: Mutex<Rows>,
}

/// The rows of the scopes that have one. Those of scopes that nobody uses are forgotten as new ones come.
#[derive(Debug, Default)]
struct Rows {
    rows: HashMap<Option<ScopeId>, Row>,
    /// How many it takes to look for old ones again: twice as many as were left the last time.
    sweep_at: usize,
}

impl Breaker {
    pub(crate) fn new(upstream: Arc<str>, limit: u32, backoff: Backoff) -> Self {
        Self { upstream, limit, backoff, rows: Mutex::default() }
    }

    /// The pass for one call of a scope, unless it is open. A pass is asked for again once its call has waited in queue.
    pub(crate) fn admit(&self, scope: Option<ScopeId>, pass: Pass, now: Instant) -> Result<Pass, Error> {
        let mut rows = self.lock();
        let Some(row) = rows.rows.get_mut(&scope).filter(|row| !row.is_forgotten(now)) else { return Ok(pass) };
        let pauses = || self.backoff.waits(fastrand::f64());
        row.admit(pass, now, pauses).map_err(|retry_after| Error::Unauthorized {
            upstream: Arc::clone(&self.upstream),
            in_a_row: row.length,
            retry_after,
        })
    }

    /// Takes note of a response.
    pub(crate) fn judge(
        &self,
        scope: Option<ScopeId>,
        pass: &Pass,
        status: StatusCode,
        refusal: Option<Refusal>,
        now: Instant,
    ) {
        if refusal.is_some() || status.is_server_error() {
            // Refused for a limit, or failed, a call is not judged by who makes it. Where nobody need wait for that, the next probe does.
            let has_failed = status.is_server_error() || matches!(refusal, Some(Refusal::Overload | Refusal::Lock));
            if let Some(row) = self.lock().rows.get_mut(&scope).filter(|_| has_failed) {
                row.try_again(pass, now, || self.backoff.waits(fastrand::f64()));
            }
            return;
        }
        let upstream = &*self.upstream;
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            let mut rows = self.lock();
            let row = rows.row(scope, now);
            let was_open = row.is_open();
            if !row.add(pass, now, self.limit, || self.backoff.waits(fastrand::f64())) {
                return;
            }
            let (in_a_row, pause) = (row.length, row.pause(now));
            drop(rows);
            if was_open {
                tracing::debug!(upstream, in_a_row, ?pause, "unauthorized still, the breaker stays open");
            } else {
                tracing::warn!(upstream, in_a_row, ?pause, "unauthorized, the breaker opens");
            }
        } else {
            let row = self.lock().rows.remove(&scope);
            if row.is_some_and(|row| row.is_open()) {
                tracing::info!(upstream, "authorized again, the breaker closes");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rows {
    /// The row of a scope, new if need be.
    fn row(&mut self, scope: Option<ScopeId>, now: Instant) -> &mut Row {
        if self.rows.len() >= self.sweep_at && !self.rows.contains_key(&scope) {
            self.rows.retain(|_, row| !row.is_forgotten(now));
            self.sweep_at = (self.rows.len() * 2).max(64);
        }
        let row = self.rows.entry(scope).or_insert_with(|| Row::new(now));
        if row.is_forgotten(now) {
            *row = Row::new(now);
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Statuses, and what the headers make of them.
    type Responses = &'static [(u16, Option<Refusal>)];

    fn breaker() -> Breaker {
        Breaker::new("up".into(), 2, Backoff::new().jitter(0.0))
    }

    #[expect(clippy::unnecessary_wraps, reason = "as the breaker takes it")]
    fn scope(name: impl std::fmt::Display) -> Option<ScopeId> {
        Some(ScopeId::of(name.to_string().as_bytes()))
    }

    impl Breaker {
        /// A response to a call that is no probe.
        fn answered(&self, scope: Option<ScopeId>, status: u16, refusal: Option<Refusal>, now: Instant) {
            self.judge(scope, &Pass::default(), StatusCode::from_u16(status).unwrap(), refusal, now);
        }

        fn is_open(&self, scope: Option<ScopeId>, now: Instant) -> bool {
            self.admit(scope, Pass::default(), now).is_err()
        }
    }

    #[test]
    fn which_responses_in_a_row_open_it() {
        const QUOTA: Option<Refusal> = Some(Refusal::Quota);
        let cases: [(Responses, bool); 14] = [
            (&[(401, None)], false),
            (&[(401, None), (401, None)], true),
            (&[(403, None), (403, None)], true),
            (&[(401, None), (403, None)], true),
            (&[(401, None), (200, None), (401, None)], false),
            (&[(401, None), (404, None), (401, None)], false),
            (&[(401, None), (500, None), (401, None)], true),
            (&[(401, None), (302, None), (403, None)], false),
            (&[(400, None), (407, None), (429, QUOTA)], false),
            (&[(403, QUOTA), (403, QUOTA), (403, QUOTA)], false),
            (&[(403, QUOTA), (403, None), (403, QUOTA)], false),
            (&[(401, None), (403, QUOTA), (401, None)], true),
            (&[(401, None), (401, None), (429, QUOTA)], true),
            (&[(401, None), (401, None), (200, None)], false),
        ];
        let now = Instant::now();
        for (responses, opens) in cases {
            let (breaker, scope) = (breaker(), scope("a"));
            for (status, refusal) in responses {
                breaker.answered(scope, *status, *refusal, now);
            }
            assert_eq!(breaker.is_open(scope, now), opens, "{responses:?}");
        }
    }

    #[test]
    fn the_error_tells_how_many_they_were_and_when_the_next_is_let_through() {
        let (breaker, scope, now) = (breaker(), scope("s3cret"), Instant::now());
        (0..2).for_each(|_| breaker.answered(scope, 401, None, now));
        let error = breaker.admit(scope, Pass::default(), now + Duration::from_millis(250)).unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_millis(750)));
        let told = "up: the last 2 responses were 401 or 403, no call is sent for 750ms, and then one to see";
        assert_eq!(error.to_string(), told);
        assert!(!format!("{error:?}").contains("s3cret"));
    }

    #[test]
    fn a_probe_that_is_refused_for_a_limit_says_nothing() {
        let (breaker, scope, now) = (breaker(), scope("a"), Instant::now());
        (0..2).for_each(|_| breaker.answered(scope, 401, None, now));
        let due = now + Duration::from_secs(1);
        let probe = breaker.admit(scope, Pass::default(), due).unwrap();
        breaker.judge(scope, &probe, StatusCode::TOO_MANY_REQUESTS, Some(Refusal::Quota), due);
        drop(probe);
        let probe = breaker.admit(scope, Pass::default(), due).unwrap();
        assert!(breaker.is_open(scope, due), "it is still open, for all but one");
        breaker.judge(scope, &probe, StatusCode::OK, None, due);
        assert!(!breaker.is_open(scope, due));
    }

    #[test]
    fn scopes_do_not_affect_each_other() {
        let (breaker, now) = (breaker(), Instant::now());
        (0..2).for_each(|_| breaker.answered(scope("a"), 401, None, now));
        (0..2).for_each(|_| breaker.answered(scope("b"), 200, None, now));
        assert_eq!(["a", "b", "c"].map(|name| breaker.is_open(scope(name), now)), [true, false, false]);
        assert!(!breaker.is_open(None, now));
    }

    #[test]
    fn only_scopes_with_a_row_are_stored_and_old_ones_are_forgotten() {
        let (breaker, now) = (breaker(), Instant::now());
        let stored = || breaker.lock().rows.len();
        (0..1_000).for_each(|name| breaker.answered(scope(name), 200, None, now));
        assert_eq!(stored(), 0);
        (0..1_000).for_each(|name| breaker.answered(scope(name), 401, None, now));
        assert_eq!(stored(), 1_000);
        breaker.answered(scope(0), 200, None, now);
        assert_eq!(stored(), 999);
        let later = now + Duration::from_secs(3_601);
        (2_000..4_000).for_each(|name| breaker.answered(scope(name), 401, None, later));
        assert_eq!(stored(), 2_000);
    }

    #[test]
    fn a_row_that_is_forgotten_begins_anew() {
        let (breaker, scope, now) = (breaker(), scope("a"), Instant::now());
        breaker.answered(scope, 401, None, now);
        let later = now + Duration::from_secs(3_601);
        breaker.answered(scope, 401, None, later);
        assert!(!breaker.is_open(scope, later));
        breaker.answered(scope, 401, None, later);
        assert!(breaker.is_open(scope, later));
    }
}
