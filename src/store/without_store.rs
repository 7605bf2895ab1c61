//! What becomes of calls while the store cannot answer.

/// What becomes of the calls of an upstream while the store cannot answer: set for all by
/// [`ThrottleBuilder::without_store`](crate::ThrottleBuilder::without_store), for one upstream by
/// [`Upstream::without_store`](crate::Upstream::without_store).
///
/// Unless calls wait, a store that fails once, or shows no sign of life for 1 s, cannot answer; it can again as soon as it does.
/// Where it could not be reached, that holds for all calls of the upstream; where it refused one message, for those that need the same
/// logs. As long as calls come, the store is tried again; that it was lost, and that it is back, is traced once for each upstream.
///
/// ```
/// use outgate::store::WithoutStore;
/// use outgate::{Limit, Throttle, Upstream};
///
/// let throttle = Throttle::builder()
///     .without_store(WithoutStore::Refuse)
///     .upstream(Upstream::new("bank").limit(Limit::per_second(10)))
///     .upstream(Upstream::new("logs").limit(Limit::per_second(100)).without_store(WithoutStore::SendUnthrottled))
///     .build()?;
/// # drop(throttle);
/// # Ok::<(), outgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WithoutStore {
    /// They wait for it: for as long as their [longest wait](crate::Upstream::max_wait), for 5 s where none is set. Then they get
    /// [`Error::StoreUnavailable`](crate::Error::StoreUnavailable).
    #[default]
    Wait,
    /// They get [`Error::StoreUnavailable`](crate::Error::StoreUnavailable) once the store has failed: at once where the connection fails, after 1 s
    /// where it is silent, and from then on at once.
    Refuse,
    /// Each process keeps to its part of every limit: the quota by the number of processes that use the upstream, as the store told it last.
    ///
    /// Nobody sends before all that the store knows of has left its window: for a window and two good seconds after it was lost. Until then calls
    /// [wait](Self::Wait), as do those of a process that was never counted, and where a part is too small. When the store is back, all that was
    /// sent meanwhile counts: nobody sends for a window and up to two seconds. So no window holds more than the quota, where all processes lose
    /// the store, and have it back, at about the same time: [the guide](crate::guide::without_store) says what else may be.
    ///
    /// For upstreams whose windows last 9 s at most, and with their guard 10 s: nobody shall wait for longer. Buckets may take 10 s to fill; calendar windows, limits on
    /// calls in flight and those that upstreams [share](crate::Upstream::shares) are none of its.
    ThrottleLocally,
    /// They go at once, and nobody counts them: neither limits nor calls in flight hold. Only a pause that this process knows of does.
    ///
    /// What has become of such a call is said by [`Permit::went_without_store`](crate::Permit::went_without_store), and by
    /// [`Passage::without_store`](crate::Passage::without_store). It is entered in no log, not even when the store is back.
    SendUnthrottled,
}
