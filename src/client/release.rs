//! What people decide about an upstream: that a pause is over, that calls come slower for a while, or that what counted counts no more.

use std::sync::Arc;
use std::time::Duration;

use crate::client::throttle::Throttle;
use crate::client::together::all;
use crate::config::plan::Registered;
use crate::error::Error;
use crate::ledger::{Body, ScopeId};

/// Millionths of a quota.
const FULL: f64 = 1_000_000.0;
/// Quotas are lowered to this part at least.
const LEAST: f64 = 0.001;
/// Nobody slows down for longer.
const LONGEST: Duration = Duration::from_secs(31 * 86_400);

impl Throttle {
    /// Ends every pause of an upstream and of its scopes, and the rates that [refusals](crate::Upstream::recovery) or
    /// [`slow_down`](Self::slow_down) lowered, in every process that shares the store.
    ///
    /// Returns when the store knows. Who waits in another process goes on within two seconds after a pause, and by a lowered rate within
    /// thirty, where its slot was further away. Refusals of calls that started before the release are ignored, even if they are answered
    /// later; what [`report`](Throttle::report) is given counts as of now.
    ///
    /// ```
    /// # async fn shown(throttle: outgate::Throttle) -> Result<(), Box<dyn std::error::Error>> {
    /// throttle.release("gateway").await?; // the provider said on the phone that it is over
    /// throttle.release_in("gateway", "m-17").await?; // or of one merchant
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::UnknownUpstream`]; [`Error::StoreUnavailable`], after which it may or may not have happened: call it again.
    pub async fn release(&self, upstream: &str) -> Result<(), Error> {
        self.release_of(&*self.registered(upstream)?, None).await
    }

    /// The same for one scope value alone: a token, a merchant. A pause of the whole upstream stays. The value is as for
    /// [`Call::scope`](crate::Call::scope): that of the upstream's [`scope_by`](crate::Upstream::scope_by), else of the last scope that a limit
    /// [names](crate::Limit::each). For a value that nobody uses nothing happens.
    ///
    /// # Errors
    ///
    /// As for [`Throttle::release`].
    pub async fn release_in(&self, upstream: &str, scope: impl AsRef<[u8]>) -> Result<(), Error> {
        let registered = self.registered(upstream)?;
        self.release_of(&registered, registered.scope_of(scope.as_ref())).await
    }

    /// Lowers every quota of an upstream by a factor for a while, in every process that shares the store, but not how many calls may be
    /// [in flight](crate::Limit::in_flight): of 100 calls a second, `slow_down("up", 0.5, …)` leaves 50. A thousandth is left of them at least, for 31 days at most. A second call replaces the first; [`release`](Self::release)
    /// ends it.
    ///
    /// Returns when the store knows; slots that are booked already, up to a horizon ahead, stay.
    ///
    /// ```
    /// # async fn shown(throttle: outgate::Throttle) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// throttle.slow_down("gateway", 0.5, Duration::from_secs(3_600)).await?; // while they repair it
    /// throttle.slow_down_in("gateway", "m-17", 0.1, Duration::from_secs(60)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Factor`] where `factor` is not above 0 and at most 1; else as for [`Throttle::release`].
    pub async fn slow_down(&self, upstream: &str, factor: f64, lasting: Duration) -> Result<(), Error> {
        self.slow_down_of(&*self.registered(upstream)?, None, factor, lasting).await
    }

    /// The same for one scope value alone, which is as for [`release_in`](Self::release_in).
    ///
    /// # Errors
    ///
    /// As for [`Throttle::slow_down`].
    pub async fn slow_down_in(
        &self,
        upstream: &str,
        scope: impl AsRef<[u8]>,
        factor: f64,
        lasting: Duration,
    ) -> Result<(), Error> {
        let registered = self.registered(upstream)?;
        self.slow_down_of(&registered, registered.scope_of(scope.as_ref()), factor, lasting).await
    }

    /// Forgets what counts of an upstream as a whole, in every process that shares the store: its logs begin empty, as those of an upstream
    /// that nobody has called. For when the provider has set its own counter back, or what is entered is wrong: **as much as
    /// is allowed starts at once, whatever was sent before**. Nothing else has a log forgotten.
    ///
    /// Forgotten are the slots of before, true costs beyond charges, and what was learned of the scope: what others use, and rates
    /// that refusals lowered. Pauses and [`slow_down`](Self::slow_down) stay until [`release`](Self::release), and calls in flight
    /// keep their seats. The logs of single scopes stay, but for those of callers without a value: [`reset_in`](Self::reset_in) forgets
    /// those of one. Limits that other upstreams
    /// [share](crate::Upstream::shares) begin anew for them, too.
    ///
    /// Callers who have a slot by now, booked up to a horizon ahead, go at its time, and it is not counted: the limit may be exceeded
    /// by as many. What responses and calls of before tell later counts.
    ///
    /// Returns when the store knows. Who waits in this process asks again at once, in another one when it would anyhow: within 30 s.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use outgate::{Limit, Throttle, Upstream};
    ///
    /// let throttle = Throttle::builder().upstream(Upstream::new("mail").limit(Limit::per_day(1))).build()?;
    /// drop(throttle.acquire("mail").await?);
    /// assert!(throttle.try_acquire("mail").await.is_err());
    /// throttle.reset("mail").await?; // the provider has given us today's quota once more
    /// assert!(throttle.try_acquire("mail").await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::UnknownUpstream`]; [`Error::StoreUnavailable`], after which it may or may not have happened: call it again.
    pub async fn reset(&self, upstream: &str) -> Result<(), Error> {
        let registered = self.registered(upstream)?;
        for scope in registered.charges.without_value() {
            self.reset_of(&registered, scope).await?;
        }
        Ok(())
    }

    /// The same for one scope value alone: a token, a merchant, as for [`release_in`](Self::release_in). What it shares with others stays.
    ///
    /// ```
    /// # async fn shown(throttle: outgate::Throttle) -> Result<(), Box<dyn std::error::Error>> {
    /// throttle.reset_in("gateway", "m-17").await?; // a merchant's quota was raised, and begins anew
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Throttle::reset`].
    pub async fn reset_in(&self, upstream: &str, scope: impl AsRef<[u8]>) -> Result<(), Error> {
        let registered = self.registered(upstream)?;
        self.reset_of(&registered, registered.scope_of(scope.as_ref())).await
    }

    async fn reset_of(&self, registered: &Registered, scope: Option<ScopeId>) -> Result<(), Error> {
        let units = registered.charges.logs().iter().map(|log| Arc::clone(&log.unit)).collect();
        self.tell_store(registered, scope, &Body::Reset { scope, units }).await?;
        tracing::warn!(upstream = &*registered.upstream.name, "what counted is forgotten, by hand");
        self.queues().reset(registered);
        Ok(())
    }

    async fn slow_down_of(
        &self,
        registered: &Registered,
        scope: Option<ScopeId>,
        factor: f64,
        lasting: Duration,
    ) -> Result<(), Error> {
        let upstream = &registered.upstream.name;
        if !(factor > 0.0 && factor <= 1.0) {
            return Err(Error::Factor { upstream: Arc::clone(upstream), factor });
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and a million")]
        let factor = (factor.max(LEAST) * FULL).ceil() as u32;
        let lasting = lasting.min(LONGEST);
        tracing::warn!(upstream = &**upstream, factor, ?lasting, "slowed down by hand, in millionths of the quotas");
        self.tell_store(registered, scope, &Body::SlowDown { scope, factor, lasting }).await
    }

    async fn release_of(&self, registered: &Registered, scope: Option<ScopeId>) -> Result<(), Error> {
        self.tell_store(registered, scope, &Body::Release { scope, served: None }).await?;
        tracing::info!(upstream = &*registered.upstream.name, "pauses are over, by hand");
        for shard in registered.shards() {
            shard.looks.unsee(|of| scope.is_none() || of == scope);
        }
        self.queues().release(registered.key(scope), &registered.crowd);
        Ok(())
    }

    /// Tells the store something of a scope, in its shard, or of the whole upstream, in all of them.
    async fn tell_store(&self, registered: &Registered, scope: Option<ScopeId>, body: &Body) -> Result<(), Error> {
        let shards = match scope {
            Some(_) => std::slice::from_ref(registered.shard(scope)),
            None => registered.shards(),
        };
        let told = all(shards.iter().map(|shard| shard.tell_once(self.process(), body.clone()))).await;
        let upstream = &registered.upstream.name;
        told.map_err(|source| Error::StoreUnavailable { upstream: Arc::clone(upstream), source })
    }
}
