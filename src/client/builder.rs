//! What a throttle is made of.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crate::client::registry::{Current, Registry};
use crate::client::throttle::Throttle;
use crate::client::unmatched::Unmatched;
use crate::config::plan::Registered;
use crate::config::upstream::Upstream;
use crate::error::ConfigError;
use crate::ledger::MAX_WEIGHT;
use crate::queue::process::Process;
use crate::store::{MemoryStore, Store, WithoutStore};

/// Collects what a throttle is made of.
///
/// # Default
///
/// * store: a [`MemoryStore`] of its own, for one process
/// * horizon: 250 ms
/// * weight: 1
/// * unmatched: [`Unmatched::Warn`]
/// * without store: [`WithoutStore::Wait`]
///
/// ```
/// use outgate::store::WithoutStore;
/// use outgate::{Limit, MemoryStore, Throttle, Unmatched, Upstream};
/// use std::time::Duration;
///
/// let hosts = ["a.example.com", "b.example.com"];
/// let throttle = Throttle::builder()
///     .store(MemoryStore::new())
///     .upstream(Upstream::new("gateway").host("api.gateway.example").limit(Limit::per_second(100)))
///     .upstreams(hosts.map(|host| Upstream::new(host).host(host).limit(Limit::per_second(1))))
///     .unmatched(Unmatched::Refuse)
///     .without_store(WithoutStore::Refuse)
///     .horizon(Duration::from_millis(100))
///     .weight(2)
///     .build()?;
/// # drop(throttle);
/// # Ok::<(), outgate::ConfigError>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until it is built: write `.build()?` behind it"]
pub struct ThrottleBuilder {
    store: Option<Arc<dyn Store>>,
    /// The same, where it is in memory.
    memory: Option<MemoryStore>,
    upstreams: Vec<Upstream>,
    horizon: Option<Duration>,
    weight: Option<u32>,
    unmatched: Unmatched,
    without_store: WithoutStore,
}

impl ThrottleBuilder {
    /// Keeps the logs here: a `RedisStore` makes one throttle of all processes that share it.
    pub fn store(mut self, store: impl Store) -> Self {
        self.memory = (&store as &dyn Any).downcast_ref().cloned();
        self.store = Some(Arc::new(store));
        self
    }

    /// Registers an upstream. A request belongs to the first that it matches: register what is narrower first. A warning names an upstream to
    /// which no request can belong so.
    pub fn upstream(mut self, upstream: Upstream) -> Self {
        self.upstreams.push(upstream);
        self
    }

    /// Registers several upstreams.
    pub fn upstreams(mut self, upstreams: impl IntoIterator<Item = Upstream>) -> Self {
        self.upstreams.extend(upstreams);
        self
    }

    /// How far ahead of now slots are booked: 10 ms to 10 s. A process that crashes wastes at most what it booked within
    /// it; a shorter one means more store calls.
    pub const fn horizon(mut self, horizon: Duration) -> Self {
        self.horizon = Some(horizon);
        self
    }

    /// For how many processes this one counts where those that share a store divide limits among themselves: 1 to 100. One of weight 4
    /// gets four times as much as one of weight 1 while both want more than there is, as on a larger machine it should. Calls in flight
    /// are the same for all.
    ///
    /// ```
    /// # use outgate::Throttle;
    /// let throttle = Throttle::builder().weight(4).build()?;
    /// # Ok::<(), outgate::ConfigError>(())
    /// ```
    pub const fn weight(mut self, weight: u32) -> Self {
        self.weight = Some(weight);
        self
    }

    /// What happens to a request that belongs to no upstream.
    pub const fn unmatched(mut self, unmatched: Unmatched) -> Self {
        self.unmatched = unmatched;
        self
    }

    /// What becomes of calls while the store cannot answer, unless their [upstream](Upstream::without_store) says otherwise.
    pub const fn without_store(mut self, policy: WithoutStore) -> Self {
        self.without_store = policy;
        self
    }

    /// The throttle.
    ///
    /// # Errors
    ///
    /// A mistake in the configuration, which names the upstream and the field.
    pub fn build(self) -> Result<Throttle, ConfigError> {
        let horizon = self.horizon.unwrap_or(Duration::from_millis(250));
        if horizon < Duration::from_millis(10) || horizon > Duration::from_secs(10) {
            return Err(ConfigError::new("", "horizon", format!("{horizon:?} is not between 10 ms and 10 s")));
        }
        let weight = self.weight.unwrap_or(1);
        if !(1..=MAX_WEIGHT).contains(&weight) {
            return Err(ConfigError::new("", "weight", format!("{weight} is not between 1 and {MAX_WEIGHT}")));
        }
        let upstreams = self
            .upstreams
            .into_iter()
            .enumerate()
            .map(|(index, up)| {
                let up = up.or_without_store(self.without_store);
                Registered::new(index, up)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let upstreams = Current::new(Registry::new(upstreams)?.warning_of_hidden());
        let (store, memory): (Arc<dyn Store>, _) = if let Some(store) = self.store {
            (store, self.memory)
        } else {
            let memory = MemoryStore::new();
            (Arc::new(memory.clone()), Some(memory))
        };
        #[cfg(feature = "metrics")]
        let store = crate::counts::counted(store);
        let process = Process::new(store, horizon).map_err(|error| {
            ConfigError::new("", "sender", format!("the operating system gives no randomness for a name: {error}"))
        })?;
        let process = process.weighing(weight).in_memory(memory);
        let throttle = Throttle::new(upstreams, process, self.unmatched, self.without_store);
        #[cfg(feature = "metrics")]
        throttle.keep_gauges();
        Ok(throttle)
    }
}
