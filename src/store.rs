//! Where the ledgers are kept, and the laws that every such place obeys.

pub(crate) mod age;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod clock;
pub(crate) mod memory;
#[cfg(feature = "redis")]
mod redis;
pub(crate) mod turns;
mod without_store;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

pub use self::memory::MemoryStore;
#[cfg(feature = "redis")]
pub use self::redis::{RedisStore, RedisStoreBuilder, UpstreamFound};
pub use self::without_store::WithoutStore;
pub use crate::error::{StoreError, StoreErrorKind};
use crate::ledger::{Message, Reply};

/// Keeps the ledgers of upstreams: in memory for one process, in Redis for a cluster.
///
/// Whoever writes another takes a [`Ledger`](crate::ledger::Ledger) for each upstream, and brings a clock, persistence, and the
/// order of messages: `examples/own_store.rs` is one.
///
/// # Laws
///
/// `outgate::testing::conformance` checks them on any store.
///
/// 1. No half-open interval of a term's span (a limit's window and guard) ever holds more than its quota, but for what a reset (21) has had
///    forgotten.
/// 2. Slots are given in the order asked, among calls of equal charges.
/// 3. One ask for many callers gives what one ask for each of them would.
/// 4. A slot handed back can be given again.
/// 5. Handing back twice, or something never given, changes nothing.
/// 6. An empty log means no wait.
/// 7. A pause delays every later slot and no earlier one; so does outside use, for two spans at most.
/// 8. Scopes and upstreams do not affect each other but through common logs.
/// 9. Once nothing was said of an upstream for its longest span, and some seconds more, nothing of it is stored, but a pause or a
///    rate that still lasts, what came into a bucket at a lower rate until it has drained at that, what others use, for a span more,
///    which processes there were, for three minutes, and the mark of a release or of a reset, for 32 days, or as long as the longest
///    window where that is longer.
/// 10. The answer does not depend on the caller's clock.
/// 11. The same message sent twice acts once, whatever it says, and two senders of one name are told so.
/// 12. Charges on several logs: all or none, with one common start.
/// 13. Log time is never earlier than what a message knows of it, and no later than a message says that it is at the latest,
///     however the store's clock steps; if the two conflict, what is known counts.
/// 14. No start lies further ahead of now than the lead and the horizon of an ask, of its own or of the furthest that waits.
/// 15. A release ends what was imposed before it, and voids what is told of it later; after a pause that is shorter than was told
///     exactly one call looks whether it still holds.
/// 16. A rate only ever lowers quotas, and what it leaves of them is kept as they are.
/// 17. Seats in use never exceed the limit, but for those that a stream says it holds; a lapsed lease is free; a seat is taken with
///     its slot, only for starts within 20 ms or the lead of an ask; the next goes to who has the fewest, then to who has waited
///     longest.
/// 18. True costs count from the moment they are known: what calls used beyond their charges delays every later call, beyond the quota
///     if need be, and none before; what they did not use is free.
/// 19. A process that says that it is there is told of until it says that it is gone, or lapses, and nothing is decided by it.
/// 20. Where a store does not hold what an ask says that it must, data was lost, and nobody starts until all that may be missing has left its
///     window, in logs that count for 10 s at most, or for a minute where they alone are missing; a log that nobody remembers costs no wait.
/// 21. What counted in the logs that a reset names is not counted any more, nor what was learned of them; all else stays, and nobody takes it for lost.
///     Nothing else has a log forgotten.
/// 22. Messages that come at once act one after another, by whatever handle they come.
///
/// ```
/// use outgate::ledger::{Ledger, Message, Stamp};
/// use outgate::store::{Applying, Store};
/// use std::sync::Mutex;
///
/// /// One upstream, in memory.
/// #[derive(Debug, Default)]
/// struct One(Mutex<Ledger>);
///
/// impl Store for One {
///     fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
///         let now = Stamp::from_micros(0); // read a clock here, under the lock
///         let answer = self.0.lock().unwrap().apply(now, message);
///         Applying::ready(answer.map_err(Into::into))
///     }
/// }
/// # let _ = One::default();
/// ```
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Applies a message, and says what it is answered. One that comes twice acts once.
    ///
    /// Every call must end: a store that cannot be reached is an error, not a wait. A call that fails may have acted; its
    /// caller sends the same message again.
    ///
    /// # Errors
    ///
    /// When the store could not be reached, its answer not be read, or the message is refused.
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a>;
}

/// A store that is shared is a store.
impl<S: Store + ?Sized> Store for Arc<S> {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        (**self).apply(message)
    }
}

/// A message on its way to a store, and its answer.
///
/// ```
/// use outgate::Store;
/// use outgate::ledger::Message;
/// use outgate::store::{Applied, Applying, StoreError, StoreErrorKind};
///
/// /// A store that is never there.
/// #[derive(Debug)]
/// struct Gone;
///
/// impl Store for Gone {
///     fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
///         let answer: Applied = Err(StoreError::new(StoreErrorKind::Unreachable, format!("not for {}", message.upstream)));
///         if message.known.is_some() { Applying::ready(answer) } else { Applying::pending(async { answer }) }
///     }
/// }
/// # let _ = Gone;
/// ```
#[must_use = "the store is told only when this is awaited: write `store.apply(&message).await`"]
pub struct Applying<'a>(Stage<'a>);

/// What a store answered.
pub type Applied = Result<Reply, StoreError>;

enum Stage<'a> {
    Ready(Option<Applied>),
    /// Applied when it is polled.
    InMemory(&'a MemoryStore, &'a Message),
    Pending(Pin<Box<dyn Future<Output = Applied> + Send + 'a>>),
}

impl<'a> Applying<'a> {
    /// An answer that is there already: whoever asks need not wait, nor allocate.
    ///
    /// Such a store applies a message when it is called, not when the answer is polled: whoever wraps it calls it inside of the
    /// wrapper's future. Its clock must not step: such an answer is taken at its word.
    pub fn ready(answer: Applied) -> Self {
        Self(Stage::Ready(Some(answer)))
    }

    /// The answer of a store in memory.
    const fn in_memory(store: &'a MemoryStore, message: &'a Message) -> Self {
        Self(Stage::InMemory(store, message))
    }

    /// An answer that takes its time. Nothing may happen before it is polled.
    pub fn pending(answer: impl Future<Output = Applied> + Send + 'a) -> Self {
        Self(Stage::Pending(Box::pin(answer)))
    }

    /// Shows the answer when it is here, with how long it took; not one that is there already.
    #[cfg(feature = "metrics")]
    pub(crate) fn seen_by(self, see: impl FnOnce(std::time::Duration, &Applied) + Send + 'a) -> Self {
        let Stage::Pending(answer) = self.0 else { return self };
        Self::pending(async move {
            let began = tokio::time::Instant::now();
            let answer = answer.await;
            see(began.elapsed(), &answer);
            answer
        })
    }

    /// The answer, where it is there already.
    pub(crate) fn at_hand(self) -> Option<Applied> {
        match self.0 {
            Stage::Ready(answer) => answer,
            Stage::InMemory(store, message) => Some(store.applied(message)),
            Stage::Pending(_) => None,
        }
    }
}

impl Future for Applying<'_> {
    type Output = Applied;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Applied> {
        match &mut self.0 {
            Stage::Ready(answer) => answer.take().map_or(Poll::Pending, Poll::Ready),
            Stage::InMemory(store, message) => {
                let answer = store.applied(message);
                self.0 = Stage::Ready(None);
                Poll::Ready(answer)
            }
            Stage::Pending(answer) => answer.as_mut().poll(cx),
        }
    }
}

impl fmt::Debug for Applying<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Applying").finish_non_exhaustive()
    }
}
