use std::{collections::HashMap, fmt, sync::Arc};

use http::Request;

use super::{Judge, Verdict};

/// A limit for each key by itself, in units of its own.
#[derive(Clone)]
pub(super) struct KeyedLimit {
    fresh: Judge,
    charge: Charge,
    judges: HashMap<String, Judge>,
}

/// Whose call it is, and how many units it takes.
pub(super) type Charge = Arc<dyn Fn(&Request<()>) -> (String, u64) + Send + Sync>;

impl KeyedLimit {
    /// For each key what this judge says.
    pub(super) fn new(fresh: Judge, charge: Charge) -> Self {
        Self { fresh, charge, judges: HashMap::new() }
    }

    pub(super) fn reset(&mut self) {
        self.judges.clear();
    }

    /// What it says of a call, and the charge to count if all others say yes.
    pub(super) fn ask(&mut self, now: i64, request: &Request<()>) -> (Verdict, (String, u64)) {
        let (key, units) = (self.charge)(request);
        let verdict = self.judge(&key).ask(now, units);
        (verdict, (key, units))
    }

    pub(super) fn count(&mut self, now: i64, (key, units): &(String, u64)) {
        self.judge(key).count(now, *units);
    }

    fn judge(&mut self, key: &str) -> &mut Judge {
        self.judges.entry(key.to_owned()).or_insert_with(|| self.fresh.clone())
    }
}

impl fmt::Debug for KeyedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLimit").field("judges", &self.judges).finish_non_exhaustive()
    }
}
