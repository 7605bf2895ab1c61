//! An upstream whose scopes lie in several places of the store: which scope lies where, and what the places are called.

use std::sync::Arc;

use crc16::{State, XMODEM};

use super::Upstream;
use crate::config::charges::Charges;
use crate::error::ConfigError;
use crate::ledger::ScopeId;

/// More shards than any cluster has use for: what is said of the whole upstream is said to each.
const MOST: u32 = 512;
/// Bits of the number of a slot of a Cluster.
const SLOT_BITS: u32 = 14;

impl Upstream {
    /// Spreads its scopes over so many parts of the store, 1 to 512, each of which has keys, and on a Redis Cluster a slot, of its own: for an
    /// upstream whose calls are more than one node carries. The slots are spread evenly, so that eight shards for each node will do.
    ///
    /// A scope lies in one shard, with all of its logs, so each of its limits holds as ever. No limit can hold for several shards: all limits count
    /// by the same scope, by [`scope_by`](Self::scope_by), and none is shared with other upstreams. Callers without a value share one shard.
    ///
    /// What concerns the whole upstream concerns all shards: each process that is told of a pause tells every shard at once, one message each,
    /// and so does who [releases](crate::Throttle::release) or [slows down](crate::Throttle::slow_down). Refusals in a row are counted by each
    /// shard, and after the [longest pause](Self::max_pause) one call of each looks whether it still holds.
    ///
    /// All processes say the same number. Where it grows, or shrinks, the scopes that come to lie elsewhere, about as many as the shards that were
    /// added are of all, begin with empty logs and without a pause: twice their quota may be sent in the window in which the number changes. The others
    /// keep theirs.
    ///
    /// # Default
    ///
    /// All scopes lie together, as in one shard.
    ///
    /// ```
    /// use outgate::{Limit, Scope, Throttle, Upstream};
    ///
    /// // On three nodes.
    /// let shop = Upstream::new("shop").scope_by(Scope::header("x-merchant")).limit(Limit::per_second(10)).shards(24);
    /// let throttle = Throttle::builder().upstream(shop).build()?;
    /// # drop(throttle);
    /// # Ok::<(), outgate::ConfigError>(())
    /// ```
    #[must_use]
    pub const fn shards(mut self, shards: u32) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Whose logs its calls are charged in, as the store knows it: one name for each shard.
    pub(crate) fn ledgers(&self) -> Vec<Arc<str>> {
        names_of(self.ledger(), self.shards.unwrap_or(1))
    }

    /// What is wrong with the number of shards.
    pub(crate) fn check_shards(&self, charges: &Charges) -> Result<(), ConfigError> {
        let Some(shards) = self.shards else { return Ok(()) };
        let wrong = |reason: String| Err(ConfigError::new(&self.name, "shards", reason));
        if !(1..=MOST).contains(&shards) {
            return wrong(format!("{shards} is not between 1 and 512"));
        }
        if self.ledger() != &self.name {
            return wrong(format!("its limits are shared as {:?}, which lie in one place", self.ledger()));
        }
        let mut scopes = charges.sharers();
        let only = scopes.next().filter(|_| scopes.next().is_none());
        match only {
            Some(scope) if !scope.is_upstream() => Ok(()),
            Some(_) => wrong("a limit of the whole upstream counts all calls in one place: say `scope_by`".to_owned()),
            None => wrong("its limits count by several scopes, so that no scope lies in one shard alone".to_owned()),
        }
    }
}

/// The shard of a scope: always the same for the same number of shards. Where that grows, as few scopes as can be change theirs.
///
/// This is Lamping and Veach's jump consistent hash, in integers.
pub(crate) fn shard_of(scope: Option<ScopeId>, shards: usize) -> usize {
    let (mut key, mut shard, mut next) = (scope.map_or(0, ScopeId::first_half), 0, 0);
    let shards = if scope.is_some() { shards as u64 } else { 1 };
    while next < shards {
        shard = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        next = ((shard + 1) << 31) / ((key >> 33) + 1);
    }
    usize::try_from(shard).unwrap_or(0)
}

/// What the store calls the shards: the first as the upstream, the n-th `upstream#n`, or `upstream#n.m`, where `m` has it lie where there is room.
///
/// The first 2ⁿ lie in 2ⁿ equal parts of the slots, one in each: nodes mostly have such parts. So each further one lies in the empty half of the part
/// of one before it. The names are the same for any number of shards.
fn names_of(upstream: &Arc<str>, shards: u32) -> Vec<Arc<str>> {
    let (mut names, mut slots) = (vec![Arc::clone(upstream)], vec![slot_of(upstream)]);
    for shard in 1..shards {
        let bits = shard.ilog2() + 1;
        let beside = slots[(shard - (1 << (bits - 1))) as usize];
        let empty = (beside >> (SLOT_BITS - bits)) ^ 1;
        let plain = format!("{upstream}#{shard}");
        let mut state = State::<XMODEM>::new();
        state.update(plain.as_bytes());
        let mut more = std::iter::once(String::new()).chain((1..).map(|more: u32| format!(".{more}")));
        if let Some(more) = more.find(|more| slot_behind(state, more) >> (SLOT_BITS - bits) == empty) {
            slots.push(slot_behind(state, &more));
            names.push((plain + &more).into());
        }
    }
    names
}

/// The slot of a Redis Cluster in which the keys of a name lie.
fn slot_of(name: &str) -> u32 {
    slot_behind(State::new(), name)
}

/// The same of a name that goes on so.
fn slot_behind(mut state: State<XMODEM>, more: &str) -> u32 {
    state.update(more.as_bytes());
    u32::from(state.get()) % (1 << SLOT_BITS)
}

#[cfg(test)]
mod tests;
