//! Throttles outbound HTTP calls for a whole cluster: no worker anywhere sends more than an upstream's quota allows.
//!
//! ```no_run
//! # async fn main_() -> Result<(), Box<dyn std::error::Error>> {
//! use outgate::{Limit, Throttle, Upstream};
//!
//! let github = Upstream::new("github").host("api.github.com").limit(Limit::per_hour(5_000));
//! let throttle = Throttle::builder().upstream(github).build()?;
//! let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).with(throttle.middleware()).build();
//!
//! let response = client.get("https://api.github.com/zen").send().await?; // waits for its slot, if need be
//! # drop(response);
//! # Ok(())
//! # }
//! ```
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | [upstream](Upstream) | a remote API that limits us: name, limits, and which requests belong to it |
//! | [limit](Limit) | so many units in any window; optionally a burst and a guard |
//! | unit | what a limit counts: calls, or what a call costs |
//! | [scope](Scope) | who shares the quota: the whole upstream, one token, one merchant |
//! | [log](SlidingLog) | the sorted start times of one upstream and scope, one entry for each unit |
//! | slot | one start time in a log, past (sent) or near future (booked) |
//! | ask, grant | a process asks a [store](Store) for slots; the grant says how long until each |
//! | line | the callers of one process that wait for the same logs, first come first served |
//! | [permit](Permit) | what a caller holds: a slot, and the duty to use it or hand it back |
//! | horizon | how far ahead of now a slot may be booked |
//! | guard | extra time for which a slot is counted, to absorb the spread of network delay |
//! | settle | what happens to a slot after the call: kept, or handed back |
//! | hold | nobody sends to this upstream until then, cluster-wide |
//!
//! # The path of a request
//!
//! ```text
//! request ─ route ─▶ upstream, scope, cost        no match: passes through, with a warning
//!         ─ ask   ─▶ line ─▶ store.book(ask)      one script call for the whole line
//!         ─ wait  ─▶ sleeps once, until its slot starts
//!         ─ send  ─▶ the rest of the client
//!         ─ settle─▶ never left this machine: handed back;  may have left: kept;  refused: hold
//! ```
//!
//! # The promise
//!
//! No window of a limit plus its guard ever holds more starts than its quota: under concurrency, cancellation, lost replies
//! and crashes. What the upstream sees keeps to the quota too, whatever way it counts, as long as the delay between a
//! permit and the arrival of the call varies by no more than the guard less what a slot may be late: half the guard, at most 50 ms.
//!
//! # Features
//!
//! * `redis` (default): `RedisStore`, the store shared by a cluster
//! * `backoff`: policies of the crate `backoff`, which is unmaintained, are taken for a [`Backoff`]
//! * `testing`: `outgate::testing`, upstreams that insist on their limits, faults, and the conformance suite for stores

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod backoff;
mod breaker;
mod call;
#[cfg(any(test, feature = "testing"))]
mod clock;
mod error;
mod excerpt;
pub mod feedback;
mod hearing;
mod host;
mod learning;
mod limit;
mod line;
mod lines;
mod log;
mod middleware;
mod name;
mod one_by_one;
mod path;
mod permit;
mod process;
mod refusing;
mod registered;
mod retry;
mod route;
mod scope;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod throttle;
mod turns;
mod unmatched;
mod upstream;
mod url;
mod usage;

pub use self::acquire::Acquire;
pub use self::backoff::Backoff;
pub use self::call::Call;
#[cfg(any(test, feature = "testing"))]
pub use self::clock::ManualClock;
pub use self::error::{ConfigError, Error, StoreError, StoreErrorKind};
pub use self::feedback::Feedback;
pub use self::limit::{Limit, Term};
pub use self::log::{SlidingLog, Stamp};
pub use self::middleware::Middleware;
pub use self::permit::{Passage, Permit};
pub use self::scope::Scope;
#[cfg(feature = "redis")]
pub use self::store::RedisStore;
pub use self::store::{MemoryStore, Store};
pub use self::throttle::{Throttle, ThrottleBuilder};
pub use self::unmatched::Unmatched;
pub use self::upstream::Upstream;
pub use self::usage::{LimitUsage, Usage};

/// The README's snippets are compiled as doc tests.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../README.md")]
struct Readme;
