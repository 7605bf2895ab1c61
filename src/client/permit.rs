//! What a caller holds when it may send.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::client::auth_breaker::Pass;
use crate::client::charge::{Charge, Settler};
use crate::client::estimate::Estimate;
use crate::client::given::Given;
use crate::client::observing::Shadow;
use crate::client::seat::Seat;
use crate::config::charges::Scopes;
use crate::config::plan::Registered;
use crate::ledger::{ScopeId, Stamp};
use crate::queue::Queue;
use crate::queue::waiters::Slot;

/// The right to make one call, now.
///
/// Make the call, then drop it: it counts. What the response said is told before that by [`answered`](crate::Throttle::answered), or by
/// [`served`](Self::served) or [`report`](crate::Throttle::report). Where nothing was sent, [hand it back](Self::hand_back): somebody else
/// may have the slot. A permit that is dropped without a word counts as a call, as that is the safe mistake.
///
/// Where calls in flight are [limited](crate::Limit::in_flight), it keeps a seat until then, whichever end it has: hold it for as long
/// as the call is in flight.
///
/// What a call used in truth is often known only when it is over: [`settle`](Self::settle) says so.
///
/// Use it at once: what passes between here and the send is paid for by the limit's guard.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use outgate::{Limit, Throttle, Upstream};
///
/// let tokens = Limit::per_minute(10_000).of("tokens");
/// let throttle = Throttle::builder().upstream(Upstream::new("model").limit(tokens)).build()?;
/// let permit = throttle.acquire("model").cost_of("tokens", 1_500).await?;
/// println!("{} after {:?}, {:?} late", permit.upstream(), permit.waited(), permit.late());
/// assert!(!permit.went_without_store());
/// // the call used less than it reserved, and was served
/// permit.settle("tokens", 300);
/// permit.served();
///
/// let unused = throttle.acquire("model").cost_of("tokens", 1_500).await?;
/// unused.hand_back();
/// # Ok(())
/// # }
/// ```
#[must_use = "a permit that is dropped counts as a call made: keep it by `let permit = …` while the call is made, or write `permit.hand_back()` \
              if there was none"]
pub struct Permit {
    queue: Given,
    held: Held,
    seat: Option<Seat>,
    /// Once anybody settles it, or may.
    charge: Mutex<Option<Arc<Charge>>>,
    /// Where its upstream estimates.
    estimate: Option<Arc<Estimate>>,
    pass: Pass,
    waited: Duration,
    late: Duration,
}

/// What a permit holds.
enum Held {
    Slot(Slot),
    /// What it would hold, of an upstream that is observed.
    Shadow(Arc<Shadow>),
    /// Nothing: the store could not be asked.
    Nothing,
}

impl Permit {
    /// A permit for now, whatever the limits say.
    pub(crate) fn observed(queue: Arc<Queue>, shadow: Arc<Shadow>, pass: Pass) -> Self {
        pass.goes();
        let charge = Mutex::default();
        let (queue, held) = (Given::by(queue), Held::Shadow(shadow));
        Self { queue, held, seat: None, charge, estimate: None, pass, waited: Duration::ZERO, late: Duration::ZERO }
    }

    /// A permit given at `now`.
    #[inline]
    pub(crate) fn new(queue: Arc<Queue>, slot: Slot, pass: Pass, waited: Duration, now: Instant) -> Self {
        pass.goes();
        let (late, seat) = (slot.late(now), Seat::of(&queue));
        let (queue, held, charge) = (Given::by(queue), Held::Slot(slot), Mutex::default());
        Self { queue, held, seat, charge, estimate: None, pass, waited, late }
    }

    /// A permit without the store's word.
    pub(crate) fn without_store(queue: Arc<Queue>, pass: Pass, waited: Duration) -> Self {
        pass.goes();
        let (queue, charge) = (Given::by(queue), Mutex::default());
        Self { queue, held: Held::Nothing, seat: None, charge, estimate: None, pass, waited, late: Duration::ZERO }
    }

    /// With what its call reserved by estimates.
    #[inline]
    pub(crate) fn estimated(self, estimate: Option<Arc<Estimate>>) -> Self {
        Self { estimate, ..self }
    }

    /// Of a call that has waited so long.
    pub(crate) fn after(self, waited: Duration) -> Self {
        Self { waited, ..self }
    }

    /// Gives the slot, and the seat, to the next in queue, else back to the store. For a call that was never sent.
    ///
    /// Of a call that was [settled](Self::settle), what is left of its charge goes back; what it used beyond that stays entered. Returns
    /// at once; the store is told in the background.
    pub fn hand_back(self) {
        tracing::debug!(upstream = self.upstream(), "permit handed back");
        self.queue.ending.handed_back();
        self.estimate.iter().for_each(|estimate| estimate.hand_back());
        let goes_whole = match (self.held, self.charge.into_inner().unwrap_or_else(PoisonError::into_inner)) {
            (_, Some(charge)) => charge.hand_back(),
            (Held::Slot(slot), None) => {
                self.queue.give_back(slot);
                true
            }
            (Held::Shadow(shadow), None) => {
                shadow.hand_back();
                true
            }
            (Held::Nothing, None) => false,
        };
        // Of a call that was settled the slot does not go back, and so the seat goes by itself.
        if let Some(seat) = self.seat.filter(|_| goes_whole) {
            seat.go_with_slot();
        }
    }

    /// The seat, to outlive the permit.
    pub(crate) fn take_seat(&mut self) -> Option<Seat> {
        self.seat.take().map(Seat::outliving)
    }

    /// Ends the permit of a call that was served: the upstream answered, and refused nothing.
    ///
    /// After the [longest pause](crate::Upstream::max_pause) one permit in the cluster is given to look whether the pause still holds. If
    /// its holder says this, the pause is over for everybody; if it is dropped without a word, all others wait for as long again, and
    /// then another looks. Of every other permit this says nothing, so say it whenever a call was served. The
    /// [middleware](crate::Middleware) does.
    ///
    /// Returns at once; the store is told in the background, until it knows. Outside of a Tokio runtime only a store in memory is.
    pub fn served(self) {
        self.tell_served();
    }

    /// The upstream refused its call.
    pub(crate) fn tell_refused(&self) {
        self.queue.ending.refused();
    }

    #[inline]
    pub(crate) fn tell_served(&self) {
        match &self.held {
            Held::Slot(slot) => self.queue.served(slot),
            Held::Shadow(shadow) => shadow.served(&self.queue),
            Held::Nothing => {}
        }
    }

    /// Says how many units the call used in truth: in every log that counts this unit its charge is corrected.
    ///
    /// What it did not use is free for others: in this process at once, in others when they ask next. What it used beyond its charge is
    /// entered as a debt, above the quota if need be: later calls wait for it, this one never does. A debt above the quota delays them for
    /// one window, and one above the capacity of a [bucket](crate::Limit::bucket) until all of it has flowed in. Where a limit is [counted at
    /// the end](crate::Limit::counted_at_end), the charge is taken out and all that was used is entered now.
    ///
    /// A later settlement of the same unit corrects from the last one: charged 100, settled at 80 and then at 90, a call takes 90. No
    /// more goes back than was charged; what was entered as a debt stays. A unit that no limit counts is ignored, with one warning for
    /// each upstream. After a hand-back nothing happens.
    ///
    /// Returns at once, and never panics: the store is told within 250 ms, by the next message to it or by one for all settlements since.
    /// Outside of a Tokio runtime, by the next call. Where nobody waits, and the store stays silent to that message for 30 s,
    /// what it said is not told any more.
    pub fn settle(&self, unit: &str, used: u64) {
        self.settler().settle(unit, used);
    }

    /// The upstream that may be called.
    #[must_use]
    pub fn upstream(&self) -> &str {
        self.queue.upstream()
    }

    /// How long the caller waited for it, the store's answer included.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// How long after its slot's start it was given: part of what the limit's guard pays for.
    #[must_use]
    pub const fn late(&self) -> Duration {
        self.late
    }

    /// Whether the store could not be asked, and the call goes all the same: counted by nobody, as
    /// [`SendUnthrottled`](crate::store::WithoutStore::SendUnthrottled) has it, or by this process alone, as
    /// [`ThrottleLocally`](crate::store::WithoutStore::ThrottleLocally) does.
    #[must_use]
    pub fn went_without_store(&self) -> bool {
        matches!(self.held, Held::Nothing) || self.queue.is_local()
    }

    /// Its call probably opens a connection, and arrives later than others.
    pub(crate) fn tell_cold(&self) {
        if let Held::Slot(slot) = &self.held {
            self.queue.cold(slot);
        }
    }

    pub(crate) fn scope(&self) -> Option<ScopeId> {
        self.queue.scope()
    }

    /// When its slot starts, as the store calls it. Where the upstream is observed, or the store was not asked, nobody knows when the
    /// call started.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        match &self.held {
            Held::Slot(slot) if !slot.is_unbooked() && !self.queue.is_local() => Some(slot.stamp),
            Held::Slot(_) | Held::Shadow(_) | Held::Nothing => None,
        }
    }

    /// What it was charged, in entries of each log. `None`: the store's logs do not hold its call, or nobody knows when it started.
    pub(crate) fn charges(&self) -> Option<&[u32]> {
        match &self.held {
            Held::Slot(slot) if self.stamp().is_some() => Some(&slot.costs),
            Held::Slot(_) | Held::Shadow(_) | Held::Nothing => None,
        }
    }

    /// The upstream as it was when it was given.
    pub(crate) fn registered(&self) -> &Registered {
        self.queue.registered()
    }

    /// Whose logs it was charged in.
    pub(crate) fn scopes(&self) -> &Scopes {
        self.queue.scopes()
    }

    pub(crate) const fn pass(&self) -> &Pass {
        &self.pass
    }

    /// What happened to the call so far: clones of it can [settle](Passage::settle) the call, from another task and when this is gone.
    ///
    /// ```
    /// # async fn shown(throttle: outgate::Throttle) -> Result<(), Box<dyn std::error::Error>> {
    /// let permit = throttle.acquire("model").cost_of("tokens", 1_500).await?;
    /// let passage = permit.passage();
    /// tokio::spawn(async move { passage.settle("tokens", 300) }); // when the answer was read
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn passage(&self) -> Passage {
        let (upstream, settler) = (Arc::clone(self.queue.upstream()), self.settler());
        let without_store = self.went_without_store();
        Passage { upstream, waited: self.waited, late: self.late, without_store, settler }
    }

    pub(crate) fn settler(&self) -> Settler {
        match &self.held {
            Held::Slot(slot) => {
                let new = || Charge::new(&self.queue, slot.clone()).estimated(self.estimate.clone());
                let mut charge = self.charge.lock().unwrap_or_else(PoisonError::into_inner);
                Settler::Charged(Arc::clone(charge.get_or_insert_with(|| Arc::new(new()))))
            }
            Held::Shadow(shadow) => Settler::Shadow(Arc::clone(shadow)),
            Held::Nothing => Settler::Uncharged(self.estimate.clone(), self.queue.counts().clone()),
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("upstream", &self.upstream())
            .field("waited", &self.waited)
            .finish_non_exhaustive()
    }
}

/// What happened to a call on its way through the middleware: found in its response's extensions.
///
/// Clones are of one call.
///
/// ```
/// # async fn shown(client: reqwest_middleware::ClientWithMiddleware) -> Result<(), Box<dyn std::error::Error>> {
/// let response = client.get("https://api.example.com/things").send().await?;
/// if let Some(passage) = response.extensions().get::<outgate::Passage>() {
///     println!("{} waited {:?}", passage.upstream, passage.waited);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Passage {
    /// The upstream that the call belongs to.
    pub upstream: Arc<str>,
    /// How long it waited for its slot, the store's answer included.
    pub waited: Duration,
    /// How long after its slot's start it went on to be sent.
    pub late: Duration,
    /// Whether the store could not be asked, and the call went all the same: counted by nobody, as
    /// [`SendUnthrottled`](crate::store::WithoutStore::SendUnthrottled) has it, or by this process alone, as
    /// [`ThrottleLocally`](crate::store::WithoutStore::ThrottleLocally) does.
    pub without_store: bool,
    settler: Settler,
}

impl Passage {
    /// Says how many units the call used in truth, as [`Permit::settle`] does: from any task, when its body was read, minutes later.
    ///
    /// ```
    /// # fn answered(response: &reqwest::Response, used: u64) {
    /// if let Some(passage) = response.extensions().get::<outgate::Passage>().cloned() {
    ///     passage.settle("tokens", used);
    /// }
    /// # }
    /// ```
    pub fn settle(&self, unit: &str, used: u64) {
        self.settler.settle(unit, used);
    }
}
