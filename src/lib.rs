//! Outgate.

mod acquire;
mod call;
mod clock;
mod error;
mod limit;
mod line;
mod lines;
mod log;
mod middleware;
mod permit;
mod process;
mod scope;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod throttle;
mod upstream;
mod usage;

pub use self::acquire::Acquire;
pub use self::call::Call;
pub use self::clock::ManualClock;
pub use self::error::{ConfigError, Error, StoreError, StoreErrorKind};
pub use self::limit::{Limit, Term};
pub use self::log::{SlidingLog, Stamp};
pub use self::middleware::Middleware;
pub use self::permit::{Passage, Permit};
pub use self::scope::Scope;
#[cfg(feature = "redis")]
pub use self::store::RedisStore;
pub use self::store::{MemoryStore, Store};
pub use self::throttle::{Throttle, ThrottleBuilder};
pub use self::upstream::Upstream;
pub use self::usage::{LimitUsage, Usage};
