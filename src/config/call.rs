//! What is special about one call.

use std::sync::Arc;
use std::time::Duration;

use crate::config::charges::CALLS;
use crate::config::priority::Priority;
use crate::ledger::ScopeId;

/// What is special about one call: for `with_extension` of a request.
///
/// # Default
///
/// * cost: 1 of each unit, unless the upstream [says otherwise](crate::Upstream::cost_by) or [estimates](crate::Upstream::estimate) it
/// * kind: one for all calls of the upstream
/// * max wait: that of the upstream
/// * priority: normal
/// * upstream and scope: as the request says
///
/// ```
/// # fn send(client: &reqwest_middleware::ClientWithMiddleware) {
/// use outgate::Call;
/// use std::time::Duration;
///
/// let request = client
///     .post("https://api.example.com/batch")
///     .with_extension(Call::new().cost(50).max_wait(Duration::from_secs(5)));
/// # drop(request);
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Call {
    pub(crate) upstream: Option<Arc<str>>,
    pub(crate) scope: Option<ScopeId>,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) priority: Priority,
    /// Boxed, as few calls say any of it: without it a call is small, and is moved several times.
    more: Option<Box<More>>,
}

/// What few calls say.
#[derive(Clone, Debug, Default)]
struct More {
    /// Which calls use about as much as it.
    kind: Option<Arc<str>>,
    /// Values of scopes, by the names of those.
    scopes: Vec<(Arc<str>, ScopeId)>,
    costs: Vec<(Arc<str>, u32)>,
}

impl Call {
    /// A call like any other.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Belongs to the upstream of this name, whatever the request looks like.
    #[must_use]
    pub fn upstream(mut self, name: impl Into<Arc<str>>) -> Self {
        self.upstream = Some(name.into());
        self
    }

    /// Shares the quota with every call of this value: a token, a merchant. Hashed at once.
    ///
    /// It is the value of the upstream's [`scope_by`](crate::Upstream::scope_by), else of the last scope that a limit [names](crate::Limit::each), where
    /// those on calls in flight come after all others.
    /// The same as a request's value: a bearer token given here shares the log of requests that carry it.
    /// Of an upstream that names no scope, each value has the whole quota to itself.
    #[must_use]
    pub fn scope(self, value: impl AsRef<[u8]>) -> Self {
        self.of_scope(ScopeId::of(value.as_ref()))
    }

    /// The same for the hash of a value.
    pub(crate) const fn of_scope(mut self, value: ScopeId) -> Self {
        self.scope = Some(value);
        self
    }

    /// The same for the scope of this name, where an upstream has several: `scope_of("x-merchant", merchant)`. A name that is none
    /// of the upstream's scopes is [`Error::UnknownScope`](crate::Error::UnknownScope).
    #[must_use]
    pub fn scope_of(mut self, name: impl Into<Arc<str>>, value: impl AsRef<[u8]>) -> Self {
        set(&mut self.more().scopes, name.into(), ScopeId::of(value.as_ref()));
        self
    }

    /// Counts as so many calls: 1 where nothing is said. One that is more than a limit allows at once is [`Error::CostExceedsQuota`](crate::Error::CostExceedsQuota),
    /// as is a call that costs nothing of any unit. Where limits count other units alone, more than 1 is
    /// [`Error::UnknownUnit`](crate::Error::UnknownUnit): say [`cost_of`](Self::cost_of) the unit.
    #[must_use]
    pub fn cost(self, calls: u32) -> Self {
        self.cost_of(CALLS, calls)
    }

    /// Takes so many of a [unit](crate::Limit::of), 0 included. One that no limit counts is
    /// [`Error::UnknownUnit`](crate::Error::UnknownUnit).
    #[must_use]
    pub fn cost_of(mut self, unit: impl Into<Arc<str>>, units: u32) -> Self {
        set(&mut self.more().costs, unit.into(), units);
        self
    }

    /// Uses about as many units as other calls of this kind, such as those of one model: what it reserves is
    /// [estimated](crate::Upstream::estimate) by what those used. Calls that say nothing are of one kind; 1,000 kinds are remembered.
    ///
    /// ```
    /// use outgate::{Call, Priority};
    ///
    /// let call = Call::new()
    ///     .upstream("model") // whatever the request looks like
    ///     .scope("token-7")
    ///     .scope_of("x-merchant", "m-17")
    ///     .cost_of("tokens", 1_500)
    ///     .kind("small-model")
    ///     .priority(Priority::Low);
    /// # let _ = call;
    /// ```
    #[must_use]
    pub fn kind(mut self, kind: impl Into<Arc<str>>) -> Self {
        self.more().kind = Some(kind.into());
        self
    }

    /// Goes before calls of lower priority that wait in this process for the same limits; calls of one priority go in the order in
    /// which they came. Other processes whose calls have a lower priority have what those of higher ones leave.
    ///
    /// Also before those that have a slot booked already: that is the first caller's, whoever it is then. How long calls of low
    /// priority may be kept waiting for others, [`Upstream::promote_low_after`](crate::Upstream::promote_low_after) says.
    #[must_use]
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Is refused at once when its slot is further away than this. Zero: it does not wait, as with
    /// [`try_acquire`](crate::Throttle::try_acquire). It may start later than this by as long as the question took to the store: see
    /// [`Upstream::max_wait`](crate::Upstream::max_wait).
    #[must_use]
    pub const fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(max_wait);
        self
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    /// Which calls use about as much as it, where it says so.
    pub(crate) fn own_kind(&self) -> Option<&Arc<str>> {
        self.more.as_ref()?.kind.as_ref()
    }

    /// Its kind: that of all calls that say none is empty.
    pub(crate) fn kind_or_none(&self) -> &str {
        self.own_kind().map_or("", |kind| kind)
    }

    fn costs(&self) -> &[(Arc<str>, u32)] {
        self.more.as_ref().map_or(&[], |more| &more.costs)
    }

    fn scopes(&self) -> &[(Arc<str>, ScopeId)] {
        self.more.as_ref().map_or(&[], |more| &more.scopes)
    }

    /// What it takes of a unit.
    pub(crate) fn cost_in(&self, unit: &str) -> u32 {
        self.costs().iter().find(|(of, _)| **of == *unit).map_or(1, |(_, units)| *units)
    }

    /// Whether it takes one of each unit.
    pub(crate) fn costs_one(&self) -> bool {
        self.costs().iter().all(|(unit, units)| **unit == *CALLS && *units == 1)
    }

    /// The units that it says the cost of.
    pub(crate) fn units(&self) -> impl Iterator<Item = &Arc<str>> {
        self.costs().iter().map(|(unit, _)| unit)
    }

    /// Takes as much as another where it says nothing itself.
    pub(crate) fn or_costs_of(&mut self, other: Self) {
        for (unit, units) in other.more.map_or_else(Vec::new, |more| more.costs) {
            if self.units().all(|of| *of != unit) {
                self.more().costs.push((unit, units));
            }
        }
    }

    /// The value of the scope of this name.
    pub(crate) fn scope_named(&self, name: &str) -> Option<ScopeId> {
        self.scopes().iter().find(|(of, _)| **of == *name).map(|(_, value)| *value)
    }

    /// The scopes that it says the value of, by their names.
    pub(crate) fn scope_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.scopes().iter().map(|(name, _)| name)
    }
}

/// What is said twice is as said last.
fn set<T>(all: &mut Vec<(Arc<str>, T)>, name: Arc<str>, value: T) {
    match all.iter_mut().find(|(of, _)| *of == name) {
        Some(known) => known.1 = value,
        None => all.push((name, value)),
    }
}
