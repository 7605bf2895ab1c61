//! Places for messages about scopes: few are under way at once, so that where many are refused callers of others do not wait behind all of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::News;
use super::errand::Errand;

/// How many messages about scopes of one upstream, or of one shard of it, may be under way at once. One of a holder that was late may be, beside
/// them.
const AT_ONCE: usize = 16;

/// Who wants a place, in order: of each ledger the first few have one, as a server that is silent holds up no other.
#[derive(Debug, Default)]
pub(super) struct Places {
    claims: BTreeMap<Arc<str>, BTreeMap<u64, Errand>>,
    /// How many there were.
    claimed: u64,
}

impl News {
    /// A message of this errand wants a place, and is the last to.
    pub(crate) fn claim_place(&mut self, errand: &Errand) -> u64 {
        self.places.claimed += 1;
        let claim = self.places.claimed;
        self.places.beside(errand).insert(claim, errand.clone());
        claim
    }

    /// Whether the claim of an errand is among the first, but for those of holders that are gone or have not come round.
    pub(crate) fn has_place(&mut self, claim: u64, errand: &Errand, now: Instant) -> bool {
        // It may have been passed over meanwhile.
        self.places.beside(errand).entry(claim).or_insert_with(|| errand.clone());
        loop {
            let Some(claims) = self.places.claims.get(errand.whom.ledger()) else { return false };
            let first = || claims.iter().take(AT_ONCE);
            let passed: Vec<_> = first().filter(|(_, by)| !self.is_polled(by, now)).map(|(claim, _)| *claim).collect();
            if passed.is_empty() {
                return first().any(|(of, _)| *of == claim);
            }
            for claim in passed {
                self.free_place(claim, errand);
            }
        }
    }

    /// The place of an errand beside this one is needed no more, or nobody wants it any more.
    pub(crate) fn free_place(&mut self, claim: u64, errand: &Errand) {
        let all = &mut self.places.claims;
        let Some(claims) = all.get_mut(errand.whom.ledger()) else { return };
        claims.remove(&claim);
        if claims.is_empty() {
            all.remove(errand.whom.ledger());
        }
    }

    /// The claims that have a place, beside an errand.
    pub(crate) fn placed(&self, errand: &Errand) -> impl Iterator<Item = u64> {
        self.places.claims.get(errand.whom.ledger()).into_iter().flat_map(|claims| claims.keys().take(AT_ONCE)).copied()
    }

    fn is_polled(&self, errand: &Errand, now: Instant) -> bool {
        self.entries.get(&errand.whom).is_some_and(|entry| entry.is_told_by(errand) && !entry.needs_holder(now))
    }
}

impl Places {
    /// Those that want a place beside an errand.
    fn beside(&mut self, errand: &Errand) -> &mut BTreeMap<u64, Errand> {
        self.claims.entry(Arc::clone(errand.whom.ledger())).or_default()
    }
}
