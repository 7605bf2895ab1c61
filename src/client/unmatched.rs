//! What happens to a request that belongs to no upstream.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use reqwest::Url;

use crate::config::host;
use crate::error::Error;

/// So many hosts are named in warnings: a crawler meets millions.
const MOST_NAMED: usize = 1_000;

/// What happens to a request that belongs to no upstream: set by
/// [`ThrottleBuilder::unmatched`](crate::ThrottleBuilder::unmatched).
///
/// ```
/// use outgate::{Throttle, Unmatched};
///
/// let strict = Throttle::builder().unmatched(Unmatched::Refuse).build()?;
/// # drop(strict);
/// # Ok::<(), outgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unmatched {
    /// It passes in silence.
    Pass,
    /// It passes, and a warning is traced for its host: one for each host and port, of which the first 1,000 are named.
    #[default]
    Warn,
    /// It is refused with [`Error::Unmatched`].
    Refuse,
}

/// Meets the requests that belong to no upstream.
#[derive(Debug)]
pub(crate) struct Strangers {
    unmatched: Unmatched,
    /// Hashes of the hosts that were named.
    named: Mutex<HashSet<u64>>,
    hasher: RandomState,
    /// Whether no more are named.
    is_full: AtomicBool,
}

impl Strangers {
    pub(crate) fn new(unmatched: Unmatched) -> Self {
        let (named, hasher, is_full) = (Mutex::default(), RandomState::new(), AtomicBool::new(false));
        Self { unmatched, named, hasher, is_full }
    }

    /// Lets a request pass, or refuses it.
    pub(crate) fn meet(&self, url: &Url) -> Result<(), Error> {
        match self.unmatched {
            Unmatched::Pass => Ok(()),
            Unmatched::Warn => {
                self.warn(url);
                Ok(())
            }
            Unmatched::Refuse => Err(Error::Unmatched { host: host::with_port(url) }),
        }
    }

    fn warn(&self, url: &Url) {
        if self.is_full.load(Ordering::Relaxed) {
            return;
        }
        let hash = self.hasher.hash_one((host::name(url), url.port()));
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if named.contains(&hash) {
            return;
        }
        if named.len() < MOST_NAMED {
            named.insert(hash);
            drop(named);
            tracing::warn!(
                host = &*host::with_port(url),
                "belongs to no upstream by its host, path and method: not throttled"
            );
        } else if !self.is_full.swap(true, Ordering::Relaxed) {
            *named = HashSet::new();
            drop(named);
            tracing::warn!("more hosts belong to no upstream, and are not named");
        }
    }
}
