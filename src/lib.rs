//! Throttles outbound HTTP calls for a whole cluster, so that its workers together keep within an upstream's quota: [the promise](#the-promise).
//!
//! ```no_run
//! # async fn main_() -> Result<(), Box<dyn std::error::Error>> {
//! use outgate::{Limit, Throttle, Upstream};
//!
//! let github = Upstream::new("github").host("api.github.com").limit(Limit::per_hour(60));
//! let throttle = Throttle::builder().upstream(github).build()?;
//! let plain = reqwest::Client::builder().user_agent("my-app").build()?; // GitHub answers nobody without
//! let client = reqwest_middleware::ClientBuilder::new(plain).with(throttle.middleware()).build();
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
//! | [limit](Limit) | how many, of what, in what window, and for whom, optionally a burst and a guard; or a bucket, or a calendar window |
//! | unit | what a limit counts: calls, tokens, points |
//! | [scope](Scope) | who shares a limit: the whole upstream, one token, one merchant |
//! | [shard](Upstream::shards) | a part of the store in which some scopes of an upstream lie; mostly there is one |
//! | [log](ledger::SlidingLog) | the ascending start times of one upstream, scope and unit, one entry for each unit |
//! | [ledger] | what a store keeps of one upstream: its logs, pauses and rates |
//! | charge | units taken from one log; a call is a list of charges |
//! | slot | one start time of a call in all its logs, past (sent) or booked ahead |
//! | ask, grant | a process asks a [store](Store) for slots; the grant says how long until each |
//! | queue | the callers of one process that need the same logs, first come first served |
//! | [priority](Priority) | which callers go before others |
//! | contenders | others whose callers wait for the same logs |
//! | [permit](Permit) | what a caller holds: a slot, and the duty to use it or hand it back |
//! | horizon | how far ahead of now slots are booked |
//! | guard | extra time for which a unit counts, to absorb the spread of network delay |
//! | settle | what happens to a slot after the call: kept, handed back, or corrected to the true cost |
//! | seat | the right of one call to be in flight, where [calls in flight](Limit::in_flight) are limited |
//! | pause | nobody sends to this scope or upstream until then, cluster-wide |
//! | breaker | refuses calls of a scope after [so many 401 and 403](Upstream::break_after_unauthorized) in a row |
//! | rate | a factor on the quotas of a scope, by the evidence of what was served and what was refused, or by hand |
//! | outside use | quota that others spend, learned from responses |
//! | log time | the store's clock, corrected so that it never runs backwards |
//!
//! # The path of a request
//!
//! ```text
//! request ─ route ─▶ charges on logs              no match: passes through, with a warning
//!         ─ ask   ─▶ queue ─▶ store.apply(ask)    one script call for the whole queue
//!         ─ wait  ─▶ sleeps once, until its start
//!         ─ send  ─▶ the rest of the client
//!         ─ settle─▶ never left this machine: handed back;  may have left: kept;  refused: its scope pauses;  true cost: corrected
//! ```
//!
//! # The promise
//!
//! No window of a limit plus its guard ever holds more starts than its quota: under concurrency, cancellation, lost replies
//! and crashes, as long as the store keeps its data. What the upstream sees keeps to the quota too, as long as the delay between a
//! permit and the arrival of the call varies by less than half the guard. [More exactly](Limit::guard), by the guard less the time by which a slot
//! may be used late. An upstream that counts by approximation needs [calls that are spread](Limit::spread).
//!
//! # Features
//!
//! * `redis` (default): `RedisStore`, the store shared by a cluster
//! * `redis-rustls`, `redis-native-tls`: encrypted connections to it, `rediss://`
//! * `redis-cluster`: `RedisStore::cluster`, a Redis Cluster, over whose nodes upstreams, and shards of one upstream, are spread
//! * `redis-sentinel`: `RedisStore::sentinel`, a primary that Sentinels name, and which is replaced by one of its replicas when it fails
//! * `cli`: the command `outgate`, which shows who waits and what is used, and pauses by hand
//! * `serde`: limits and upstreams from a file, `examples/upstreams.toml`, but for [what only methods say](crate::guide::limits#as-text)
//! * `backoff`: policies of the crate `backoff`, which is unmaintained, are taken for a [`Backoff`]
//! * `jiff`: calendar windows in any time zone, not in UTC alone
//! * `tower`: `Throttle::layer`, for clients that are tower services: hyper's, tonic's
//! * `metrics`: calls, waits, pauses and store calls, counted by the facade of the crate `metrics`
//! * `testing`: `outgate::testing`, upstreams that insist on their limits, faults, and the conformance suite for stores

#![cfg_attr(docsrs, feature(doc_cfg))]

mod client;
mod config;
mod counts;
pub mod error;
mod excerpt;
pub mod feedback;
#[cfg(any(doc, doctest))]
pub mod guide;
pub mod ledger;
mod queue;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "tower")]
pub mod tower;

pub use self::client::acquire::Acquire;
pub use self::client::builder::ThrottleBuilder;
pub use self::client::middleware::Middleware;
pub use self::client::permit::{Passage, Permit};
pub use self::client::processes;
pub use self::client::snapshot;
pub use self::client::throttle::Throttle;
pub use self::client::unmatched::Unmatched;
pub use self::client::usage::{LimitUsage, Usage};
pub use self::config::backoff::Backoff;
pub use self::config::call::Call;
pub use self::config::limit::Limit;
pub use self::config::priority::Priority;
pub use self::config::request_head::RequestHead;
pub use self::config::reset::Reset;
pub use self::config::scope::Scope;
pub use self::config::upstream::Upstream;
pub use self::error::{ConfigError, Error};
pub use self::feedback::Feedback;
pub use self::ledger::Cause;
#[cfg(feature = "redis")]
pub use self::store::RedisStore;
pub use self::store::{MemoryStore, Store};

/// The README's snippets are compiled as doc tests.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../README.md")]
struct Readme;
