//! Changing what is throttled, while calls wait.

use std::sync::Arc;

use tokio::time::Instant;

use crate::client::registry::Registry;
use crate::client::throttle::Throttle;
use crate::config::name::shown;
use crate::config::plan::Registered;
use crate::config::upstream::Upstream;
use crate::counts::Counts;
use crate::error::{ConfigError, Error};
use crate::ledger::Log;
use crate::queue::Queue;

impl Throttle {
    /// Replaces the upstream of this name: its limits, which requests belong to it, and all else that is said of it. Every clone of this
    /// throttle, and every middleware, sees it at once.
    ///
    /// Callers who wait keep their places, and are served by the new limits; what was booked for them by the old ones goes back first, so
    /// that no call starts by those any more. They stay with the upstream they wait for, wherever requests like theirs go from now on. A
    /// call that the new limits can never admit gets [`Error::CostExceedsQuota`]. Calls in flight are settled in the logs that they were
    /// charged in, and keep their seats.
    ///
    /// What a log counts goes on counting, where its scope and its unit stay what they are, also if the store loses its data later: a lowered
    /// quota holds from the first call on. Only a longer window knows nothing of calls that a shorter one has forgotten; an upstream that begins to
    /// [share](Upstream::shares) limits, or to name a scope where each value of [`Call::scope`](crate::Call::scope) had the whole quota, begins with
    /// other logs, and so does a unit whose entries [stand for more or for less](crate::Limit::of); and where the logs of a call are others than
    /// before, as by a limit for each merchant beside those there were, what was granted before is not said again if the store loses its data.
    /// Pauses go on, and so do lowered rates, estimates, and breakers that are told the same. It concerns this throttle alone: each process is told by itself. The closures of an upstream that
    /// the throttle was built with are kept for as long as the throttle.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use outgate::{Limit, Throttle, Upstream};
    ///
    /// let stripe = |calls| Upstream::new("stripe").host("api.stripe.com").limit(Limit::per_second(calls));
    /// let throttle = Throttle::builder().upstream(stripe(25)).build()?;
    /// throttle.update(stripe(100))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// A mistake in the configuration, as [`build`](crate::ThrottleBuilder::build) would tell it, or a name that no upstream has. Nothing has
    /// changed then.
    pub fn update(&self, upstream: Upstream) -> Result<(), ConfigError> {
        self.update_all([upstream])
    }

    /// The same of several upstreams at once: those that [share](Upstream::shares) limits can only change them together.
    ///
    /// ```
    /// use outgate::{ConfigError, Limit, Throttle, Upstream};
    ///
    /// fn slower(throttle: &Throttle) -> Result<(), ConfigError> {
    ///     let account = [Limit::per_second(50)];
    ///     throttle.update_all([
    ///         Upstream::new("files").host("files.example.com").shares("account", account.clone()),
    ///         Upstream::new("mail").host("mail.example.com").shares("account", account),
    ///     ])
    /// }
    /// # let _ = slower;
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Throttle::update`]: where one is wrong none has changed.
    pub fn update_all(&self, upstreams: impl IntoIterator<Item = Upstream>) -> Result<(), ConfigError> {
        // Whoever makes them may change others.
        let upstreams: Vec<_> = upstreams.into_iter().collect();
        let replaced = self.upstreams().change(|registry, number| {
            let (mut all, mut replaced) = (registry.upstreams.clone(), Vec::new());
            for (place, upstream) in upstreams.into_iter().enumerate() {
                upstream.check(place)?;
                let name = Arc::clone(&upstream.name);
                let Some(at) = all.iter().position(|known| known.upstream.name == name) else {
                    return Err(ConfigError::new(&name, "name", "no upstream has this name: one is added by `add`"));
                };
                let upstream = upstream.or_without_store(self.without_store());
                let new = Registered::replacing(&all[at], *number, upstream)?;
                *number += 1;
                let before = std::mem::replace(&mut all[at], Arc::clone(&new));
                if replaced.iter().any(|(_, new): &(_, Arc<Registered>)| Arc::ptr_eq(new, &before)) {
                    return Err(ConfigError::new(&name, "name", "two upstreams have this name"));
                }
                replaced.push((before, new));
            }
            Ok((Registry::new(all)?.warning_of_hidden(), replaced))
        })?;
        for (before, new) in replaced {
            // Held until what they remember is taken over: callers who come meanwhile have those forgotten that are closed.
            let granted = self.queues().remembering(&before);
            new.handover.closed(self.queues().retire(&before));
            self.remember(granted, &new);
            self.remember(self.queues().remembering(&before), &new);
            before.counts.replaced_by(&new.counts);
            tracing::info!(upstream = &*new.upstream.name, "replaced");
        }
        #[cfg(feature = "metrics")]
        self.keep_gauges();
        Ok(())
    }

    /// The queues of new limits remember what those of the old were granted, whose logs they share: else nobody would say it again, if the store
    /// lost it.
    fn remember(&self, granted: Vec<Arc<Queue>>, new: &Arc<Registered>) {
        let now = Instant::now();
        for queue in granted {
            let logs = new.charges.logs_of(queue.scopes());
            if logs.iter().map(Log::name).eq(queue.logs.iter().map(Log::name))
                && let Ok(next) = self.queue_of(new, queue.scopes(), now)
            {
                next.take_over(&queue, now);
            }
        }
    }

    /// Adds an upstream, after all others: a request that matches one of those belongs to that.
    ///
    /// ```
    /// use outgate::{Limit, Throttle, Upstream};
    ///
    /// let throttle = Throttle::builder().build()?;
    /// throttle.add(Upstream::new("mail").host("mail.example.com").limit(Limit::per_second(5)))?;
    /// throttle.remove("mail")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A mistake in the configuration, as [`build`](crate::ThrottleBuilder::build) would tell it, or a name that another upstream has. Nothing
    /// has changed then.
    pub fn add(&self, upstream: Upstream) -> Result<(), ConfigError> {
        self.upstreams().change(|registry, number| {
            upstream.check(registry.upstreams.len())?;
            let mut all = registry.upstreams.clone();
            let upstream = upstream.or_without_store(self.without_store());
            all.push(Registered::added(*number, upstream)?);
            *number += 1;
            Ok((Registry::new(all)?.warning_of_hidden(), ()))
        })?;
        #[cfg(feature = "metrics")]
        self.keep_gauges();
        Ok(())
    }

    /// Removes the upstream of this name. Requests that belonged to it belong to another that they match, or to none.
    ///
    /// Callers who wait for it get [`Error::UnknownUpstream`]: nothing of theirs was sent, unless it was refused and
    /// [waits to be sent again](Upstream::retry_refused), and whoever calls again goes where such calls go now. Calls in flight are
    /// settled as if it were there, and what was learned of it stays in the store for as long as it would. Its closures are kept as
    /// [`update`](Self::update) says.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownUpstream`].
    pub fn remove(&self, upstream: &str) -> Result<(), Error> {
        let unknown = || Error::UnknownUpstream { name: shown(upstream) };
        let removed = self.upstreams().change(|registry, _| {
            let removed = Arc::clone(registry.find(upstream).ok_or_else(unknown)?);
            let all = registry.upstreams.iter().filter(|of| !of.is_same(&removed)).cloned().collect();
            // Fewer upstreams cannot contradict each other.
            Registry::new(all).map(|registry| (registry, removed)).map_err(|_| unknown())
        })?;
        drop(self.queues().retire(&removed));
        self.queues().forget(&removed);
        removed.counts.gone();
        // Callers who leave now tell those with which the upstream was registered first.
        #[cfg(feature = "metrics")]
        removed.crowd.counts().gone();
        removed.counts.replaced_by(&Counts::default());
        tracing::info!(upstream, "removed");
        Ok(())
    }
}
