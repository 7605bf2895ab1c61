//! What a throttle asks of the place where its logs are kept, and the laws that every such place obeys.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod clock;
mod memory;
#[cfg(feature = "redis")]
mod redis;
pub(crate) mod turns;

use std::fmt;

use async_trait::async_trait;

pub use self::memory::MemoryStore;
#[cfg(feature = "redis")]
pub use self::redis::{RedisStore, RedisStoreBuilder};
use crate::error::StoreError;
use crate::ledger::{Ask, Grant, HandBack, Hold, Home, Incident, Learned, Lesson, Log, LogUsage, MessageId, Stamp};

/// Keeps the logs: in memory for one process, in Redis for a cluster.
///
/// # Laws
///
/// `outgate::testing::conformance` checks them on any store.
///
/// 1. No half-open interval of a term's span ever holds more than its quota.
/// 2. Slots are given in the order asked.
/// 3. A batch gives what the same asks one by one would.
/// 4. A slot handed back can be given again.
/// 5. Handing back twice, or something never given, changes nothing.
/// 6. An empty log means no wait.
/// 7. A hold delays every later slot and no earlier one; so does what is learned of others' use, for a span at most.
/// 8. Homes do not affect each other.
/// 9. Some seconds after the longest span of silence nothing is stored, but a hold or a wider guard that still lasts.
/// 10. The answer does not depend on the caller's clock.
/// 11. The same message sent twice acts once, whatever it says, and two senders of one name are told so.
/// 12. What is at hand is what a message would be granted at once.
/// 13. The time of an upstream's logs is never earlier than what an ask knows of it, and no later than an ask says that it is at the
///     latest, however the store's clock steps; what is known counts more.
///
/// Every call must end: a store that cannot be reached is an error, not a wait. A call that fails may have acted; its
/// caller sends the same message, with the same number, again.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Books a slot for each caller of the ask that can start within the horizon, in their order.
    ///
    /// # Errors
    ///
    /// When the log could not be reached, or the answer not be read.
    async fn book(&self, ask: &Ask) -> Result<Grant, StoreError>;

    /// Books a slot that starts now, where the answer is at hand: nothing is held, nobody waits, and there is room. Says when
    /// it starts. `costs` are those of a [`Run`]. `None` decides nothing: the answer is [`Store::book`]'s then.
    ///
    /// Nothing of it is remembered: unlike a message it cannot be lost.
    ///
    /// # Default
    ///
    /// No answer is ever at hand.
    fn at_hand(&self, home: &Home, logs: &[Log], costs: &[u32]) -> Option<Stamp> {
        let _ = (home, logs, costs);
        None
    }

    /// Takes slots that nobody wants out of their logs.
    ///
    /// # Errors
    ///
    /// As for [`Store::book`].
    async fn hand_back(&self, message: &HandBack) -> Result<(), StoreError>;

    /// Lets no slot of a home start for a while, and says for how long. Only ever lengthens the hold that is there. A hold
    /// on an upstream's home without a scope holds all its scopes, each until a moment of its own within the first half of
    /// the recovery.
    ///
    /// # Errors
    ///
    /// As for [`Store::book`].
    async fn hold(&self, home: &Home, id: MessageId, hold: &Hold) -> Result<Incident, StoreError>;

    /// Enters what others have used of the quotas of a log, by the upstream's reports, and widens the spans of the whole
    /// upstream after a refusal that nothing explains. Only ever delays.
    ///
    /// # Errors
    ///
    /// As for [`Store::book`].
    async fn learn(&self, home: &Home, id: MessageId, log: &Log, lesson: &Lesson) -> Result<Learned, StoreError>;

    /// Counts what a home's logs hold, without changing anything.
    ///
    /// # Errors
    ///
    /// As for [`Store::book`].
    async fn usage(&self, home: &Home, logs: &[Log]) -> Result<Vec<LogUsage>, StoreError>;
}
