//! Who uses an upstream in the whole cluster, as the processes have told the store: each every 15 s while callers wait in it, and
//! once a minute as calls come, or while a pause lasts that it knows. Who says nothing more is forgotten: in 45 s where callers waited, else in
//! three minutes; in 20 s where each process would [throttle by itself](crate::store::WithoutStore::ThrottleLocally), and tells it every 5 s.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use outgate::{Limit, Scope, Throttle, Upstream};
//!
//! let github = Upstream::new("github")
//!     .limit(Limit::per_hour(5_000).each(Scope::bearer_token()))
//!     .name_scope("s3cret", "release-bot");
//! let throttle = Throttle::builder().upstream(github).build()?;
//! drop(throttle.acquire("github").scope("s3cret").await?);
//!
//! for scope in throttle.scopes("github").await? {
//!     println!("{} {} in {} processes", scope.scope, scope.name.as_deref().unwrap_or("?"), scope.processes);
//! #   assert_eq!((scope.name.as_deref(), &*scope.kind, scope.processes), (Some("release-bot"), "bearer_token", 1));
//! }
//! assert_eq!(throttle.processes("github").await?.all.len(), 1);
//! # Ok(())
//! # }
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::client::throttle::Throttle;
pub use crate::config::description::{Counted, DescribedLimit, Description, Kind};
use crate::error::{Error, StoreError};
use crate::ledger::{Body, MessageId, ScopeId};
pub use crate::ledger::{Presence, ProcessSeen, Processes, ScopePresence};

/// A scope that processes use.
///
/// ```
/// use outgate::ledger::{ScopeId, Stamp};
/// use outgate::processes::{Presence, ProcessSeen, Processes, ScopeInUse, ScopePresence};
///
/// let (now, scope) = (Stamp::from_micros(5_000_000), ScopeId::of(b"merchant"));
/// let mut presence = Presence::default();
/// presence.scopes = vec![ScopePresence::new(0, scope)];
/// let all = [1, 2].map(|sender| ProcessSeen::new(sender, now, presence.clone()));
/// let seen = ScopeInUse::of(&Processes::new(now, all.into(), Vec::new()));
/// assert_eq!((seen.len(), seen[0].scope, seen[0].processes), (1, scope, 2));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScopeInUse {
    /// Which: the hash of a token, a merchant.
    pub scope: ScopeId,
    /// What the program [calls](crate::Upstream::name_scope) it.
    pub name: Option<Arc<str>>,
    /// Which [kind](Kind::name) of [scope](crate::Scope) it is: `bearer_token`, the name of a header, `account/bearer_token`.
    pub kind: Arc<str>,
    /// Processes that use it.
    pub processes: u32,
    /// Callers that wait there, in all of them.
    pub callers: u32,
    /// How long the one has waited who has waited longest.
    pub oldest: Duration,
}

impl ScopeInUse {
    /// The scopes that some processes use: those where callers have waited longest first.
    #[must_use]
    pub fn of(processes: &Processes) -> Vec<Self> {
        let read = |(hash, _, text): &(u64, _, Arc<str>)| Some((*hash, Description::read(text)?));
        let descriptions: HashMap<_, _> = processes.descriptions.iter().filter_map(read).collect();
        let mut all: HashMap<(Arc<str>, ScopeId), Self> = HashMap::new();
        for process in &processes.all {
            let by = descriptions.get(&process.presence.described);
            for seen in &process.presence.scopes {
                let kind = usize::try_from(seen.kind).ok().and_then(|kind| by?.kinds.get(kind));
                let kind: Arc<str> = kind.map_or_else(|| "".into(), |kind| Arc::clone(&kind.name));
                let scope = all.entry((Arc::clone(&kind), seen.scope)).or_insert_with(|| Self {
                    scope: seen.scope,
                    name: None,
                    kind,
                    processes: 0,
                    callers: 0,
                    oldest: Duration::ZERO,
                });
                scope.name = scope.name.take().or_else(|| by?.name_of(seen.scope).map(Arc::clone));
                scope.processes += 1;
                scope.callers = scope.callers.saturating_add(seen.callers);
                scope.oldest = scope.oldest.max(seen.oldest);
            }
        }
        let mut all: Vec<_> = all.into_values().collect();
        all.sort_by(|one, other| (other.oldest, one.scope).cmp(&(one.oldest, other.scope)));
        all
    }
}

impl Throttle {
    /// The scopes of an upstream that are in use, in all processes that share the store: those where callers have waited longest first.
    /// Each process names 64 at most, of those that it used within a minute.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use outgate::{Limit, Scope, Throttle, Upstream};
    /// let gateway = Upstream::new("gateway").limit(Limit::per_second(10).each(Scope::header("x-merchant")));
    /// let throttle = Throttle::builder().upstream(gateway).build()?;
    /// drop(throttle.acquire("gateway").scope("m-1").await?);
    /// assert_eq!(throttle.scopes("gateway").await?.len(), 1);
    /// assert_eq!(throttle.processes("gateway").await?.all[0].presence.callers, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::UnknownUpstream`], [`Error::StoreUnavailable`].
    pub async fn scopes(&self, upstream: &str) -> Result<Vec<crate::processes::ScopeInUse>, Error> {
        Ok(ScopeInUse::of(&self.processes(upstream).await?))
    }

    /// The processes that use an upstream, with who waits in each; this one is told of as it is now, the others as they said last.
    ///
    /// # Errors
    ///
    /// As for [`Throttle::scopes`].
    pub async fn processes(&self, upstream: &str) -> Result<Processes, Error> {
        let registered = self.registered(upstream)?;
        registered.attendance.tell().await;
        let upstream = &registered.upstream.name;
        let unavailable = |source| Error::StoreUnavailable { upstream: Arc::clone(upstream), source };
        let body = Body::Processes { upstream: Arc::clone(upstream) };
        let message = registered.home().message(MessageId::nobodys(), body);
        let reply = self.store().apply(&message).await.map_err(unavailable)?;
        reply.processes().ok_or_else(|| unavailable(StoreError::senseless()))
    }
}
