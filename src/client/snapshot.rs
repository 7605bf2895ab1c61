//! Why calls wait: every queue of a process at this moment, as the process itself knows it.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use outgate::snapshot::WaitsFor;
//! use outgate::{Limit, Throttle, Upstream};
//!
//! let up = Upstream::new("gateway").limit(Limit::per_hour(1));
//! let throttle = Throttle::builder().upstream(up).build()?;
//! let _first = throttle.acquire("gateway").await?;
//! let second = throttle.acquire("gateway");
//! let second = tokio::spawn(async move { second.await });
//! tokio::task::yield_now().await;
//!
//! for upstream in throttle.snapshot().upstreams {
//!     for queue in &upstream.queues {
//!         println!("{}: {} wait, the first {:?} for {:?}", upstream.name, queue.callers, queue.oldest, queue.waits_for);
//!         assert_eq!((queue.callers, queue.in_flight, queue.waits_for), (1, 1, Some(WaitsFor::Limit)));
//!     }
//! }
//! # second.abort();
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use tokio::time::Instant;

pub use crate::client::observing::Observed;
use crate::client::throttle::Throttle;
use crate::config::plan::Registered;
use crate::ledger::PauseLeft;
pub use crate::queue::glance::{QueueSnapshot, WaitsFor};

/// What a process knows of its callers at one moment: made by [`Throttle::snapshot`].
///
/// ```
/// fn waiting(throttle: &outgate::Throttle) -> usize {
///     let snapshot = throttle.snapshot();
///     snapshot.upstream("gateway").map_or(0, |gateway| gateway.callers)
/// }
/// # let _ = waiting;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Every upstream, in the order in which they were registered.
    pub upstreams: Vec<UpstreamSnapshot>,
}

/// The callers of one upstream.
///
/// ```
/// use outgate::snapshot::UpstreamSnapshot;
///
/// fn show(upstream: &UpstreamSnapshot) {
///     println!("{}: {} callers wait in {} queues", upstream.name, upstream.callers, upstream.queues.len());
/// }
/// # let _ = show;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpstreamSnapshot {
    /// The upstream.
    pub name: Arc<str>,
    /// Callers that wait, of all scopes together.
    pub callers: usize,
    /// The pause of the whole upstream, where this process began it, or was told so. One that the store told of is in each queue.
    pub paused: Option<PauseLeft>,
    /// Its queues in which somebody waits, a call is in flight, or which are paused: who has waited longest comes first.
    pub queues: Vec<QueueSnapshot>,
}

impl Throttle {
    /// Why calls of this process wait: every queue in use, without a store call.
    ///
    /// What other processes do shows only as far as the last answer told of it; [`usage`](Self::usage) asks. Each queue is looked at
    /// for itself, one after another, so that nobody waits for the look at all of them.
    ///
    /// ```
    /// fn show(throttle: &outgate::Throttle) {
    ///     for upstream in throttle.snapshot().upstreams {
    ///         println!("{}: {} callers wait", upstream.name, upstream.callers);
    ///     }
    /// }
    /// # let _ = show;
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> crate::snapshot::Snapshot {
        let now = Instant::now();
        let registry = self.upstreams().get();
        let all = &registry.upstreams;
        let mut upstreams: Vec<_> = all.iter().map(|of| UpstreamSnapshot::new(of, now)).collect();
        let places = registry.places();
        for queue in self.queues().all(|_, _| true).into_iter().filter(|queue| !queue.is_line()) {
            let at = places.of(queue.registered());
            if let Some((to, of)) = at.and_then(|at| upstreams.get_mut(at).zip(all.get(at)))
                && let Some(seen) = queue.glance(now)
            {
                let scope_name = seen.scope.and_then(|scope| of.name_of(scope));
                to.queues.push(QueueSnapshot { scope_name, ..seen });
            }
        }
        for upstream in &mut upstreams {
            upstream.queues.sort_by_key(|queue| std::cmp::Reverse(queue.oldest));
        }
        Snapshot { upstreams }
    }
}

impl Snapshot {
    /// One upstream.
    #[must_use]
    pub fn upstream(&self, name: &str) -> Option<&UpstreamSnapshot> {
        self.upstreams.iter().find(|upstream| *upstream.name == *name)
    }
}

impl UpstreamSnapshot {
    fn new(of: &Registered, now: Instant) -> Self {
        let paused = of.crowd.paused(now).map(|(until, reason)| PauseLeft::new(until - now, reason));
        Self { name: Arc::clone(&of.upstream.name), callers: of.crowd.waiting(), paused, queues: Vec::new() }
    }
}
