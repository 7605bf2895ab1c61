//! How many calls start in a second.

use std::collections::BTreeMap;
use std::sync::Arc;

use outgate::RedisStore;
use outgate::ledger::{Log, Term, TermUsage};
use outgate::processes::Description;
use outgate::store::StoreError;

use super::{CALLS, Known, MANY, common_name, ledger_of, usage};

/// In microseconds.
const SECOND: i64 = 1_000_000;
/// Scopes whose calls are counted.
const MOST_LOGS: usize = 100;

/// Calls of the last second: the upstream's own where it counts them, else those of all that share limits with it.
pub(super) async fn calls_of(
    store: &RedisStore,
    Known { found, scopes, .. }: &Known,
    description: &Description,
) -> Result<u64, StoreError> {
    let of_calls = description.logs.iter().filter(|(_, log)| *log.unit == *CALLS && !log.terms.is_empty());
    let of_calls = of_calls.filter_map(|(kind, log)| Some((description.kinds.get(*kind)?, log)));
    let (common, own): (Vec<_>, Vec<_>) = of_calls.partition(|(kind, _)| common_name(found, kind).is_some());
    let of_calls = if own.is_empty() { common } else { own };
    let everybodys = of_calls.iter().find(|(kind, _)| kind.is_everybody);
    let Some((kind, log)) = everybodys.or(of_calls.first()) else { return Ok(0) };
    // What counts no more may be gone.
    let kept = log.terms.iter().map(|term| term.span).max().unwrap_or(SECOND).clamp(1, SECOND);
    let scopes: Vec<_> = if kind.is_everybody {
        vec![kind.without_value()]
    } else {
        let scopes = scopes.iter().filter(|scope| scope.kind == kind.name).take(MOST_LOGS);
        scopes.map(|scope| Some(scope.scope)).collect()
    };
    // Those of one shard together.
    let mut by_shard: BTreeMap<Arc<str>, Vec<Log>> = BTreeMap::new();
    for scope in scopes {
        // What counts within this very moment is booked, and starts later.
        let log = Log::new(CALLS, [Term::new(MANY, kept), Term::new(MANY, 1)]).of(scope);
        by_shard.entry(ledger_of(found, Some(description), scope)).or_default().push(log);
    }
    let mut calls = 0;
    for (ledger, logs) in by_shard {
        let (used, _) = usage(store, &ledger, logs, Vec::new()).await?;
        calls += used.iter().filter_map(|log| started(&log.terms)).sum::<u64>();
    }
    Ok(per_second(calls, kept))
}

/// Those of all that count that are not booked.
fn started(terms: &[TermUsage]) -> Option<u64> {
    let [all, booked] = terms else { return None };
    Some(all.used.saturating_sub(booked.used).into())
}

/// Calls of a second, of those that started within so long.
fn per_second(used: u64, kept: i64) -> u64 {
    used * SECOND.unsigned_abs() / kept.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_a_shorter_window_are_those_of_a_second() {
        assert_eq!(per_second(100, 600_000), 166);
        assert_eq!(per_second(100, 629_000), 158);
        assert_eq!(per_second(7, SECOND), 7);
    }
}
