//! What a gateway has made, and for whom.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use http::{Request, StatusCode};
use outgate::testing::{Judge, Shape};

use crate::limits::{MERCHANT, OF_MERCHANT};
use crate::order::is_broken;

/// What is checked beside the limits of all: each merchant's limit, and that nothing is made twice.
#[derive(Clone)]
pub(crate) struct Ledger(Arc<Mutex<Record>>);

pub(crate) struct Record {
    started: Instant,
    merchants: HashMap<String, Judge>,
    /// What was answered to each `Idempotency-Key`.
    answers: HashMap<String, String>,
    /// How often each order was made.
    made: HashMap<u32, u32>,
    /// Calls whose key had been seen.
    pub(crate) seen_again: u32,
    /// Calls beyond a merchant's limit.
    pub(crate) refused: u32,
    /// Calls that failed, as the gateway could not make their orders.
    pub(crate) failed: u32,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Record {
            started: Instant::now(),
            merchants: HashMap::new(),
            answers: HashMap::new(),
            made: HashMap::new(),
            seen_again: 0,
            refused: 0,
            failed: 0,
        })))
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    /// The answer to a call.
    pub(crate) fn answer(&mut self, request: &Request<()>) -> (StatusCode, String) {
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let number = request.uri().path().rsplit('/').next().and_then(|number| number.parse().ok());
        let (Some(key), Some(merchant), Some(number)) = (header("idempotency-key"), header(MERCHANT), number) else {
            return (StatusCode::BAD_REQUEST, "no key, merchant or number".to_owned());
        };
        if !self.admits(merchant) {
            self.refused += 1;
            return (StatusCode::TOO_MANY_REQUESTS, format!("{merchant} calls too often"));
        }
        if let Some(answer) = self.answers.get(key) {
            self.seen_again += 1;
            return (StatusCode::OK, answer.clone());
        }
        if is_broken(number) {
            self.failed += 1;
            return (StatusCode::INTERNAL_SERVER_ERROR, "out of order".to_owned());
        }
        *self.made.entry(number).or_default() += 1;
        let answer = format!("receipt {}", self.answers.len() + 1);
        self.answers.insert(key.to_owned(), answer.clone());
        (StatusCode::OK, answer)
    }

    fn admits(&mut self, merchant: &str) -> bool {
        let now = i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX);
        let fresh = || Judge::new().limit(OF_MERCHANT.into(), 1_000_000, Shape::SlidingLog);
        self.merchants.entry(merchant.to_owned()).or_insert_with(fresh).admit(now, 1).admitted
    }

    /// How often an order was made.
    pub(crate) fn times(&self, number: u32) -> u32 {
        self.made.get(&number).copied().unwrap_or_default()
    }
}
