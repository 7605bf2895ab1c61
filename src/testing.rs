//! What tests of a throttle need: the definition of "correct", upstreams that insist on their
//! limits, and a Redis to break.
//!
//! Instants are whole microseconds (`i64`) of one monotonic clock. Every server here runs on a
//! thread of its own, so a busy or paused test runtime does not disturb it, and stops when its
//! value is dropped.

pub mod conformance;
pub mod history;
pub mod oracle;

mod arrival;
mod failing_store;
mod fault;
mod frames;
mod judge;
mod keyed_limit;
mod lines;
mod loopback;
mod meter;
mod process;
mod proxy;
mod redis_cluster;
mod redis_sentinel;
mod redis_server;
mod resp;
mod shape;
mod transit;
mod upstream;
mod upstream_builder;
mod window_counter;

pub use crate::store::clock::ManualClock;
pub use arrival::Arrival;
pub use failing_store::{FailingStore, StoreFault};
pub use fault::{Fault, FaultyUpstream};
pub use judge::{Balance, Judge, Verdict};
pub use proxy::{FlakyProxy, Mode};
pub use redis_cluster::RedisCluster;
pub use redis_sentinel::RedisSentinel;
pub use redis_server::RedisServer;
pub use resp::{Reply, RespClient};
pub use shape::Shape;
pub use upstream::StrictUpstream;
pub use upstream_builder::StrictUpstreamBuilder;
