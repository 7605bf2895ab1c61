//! How callers wait: on paused time, over a memory store a millisecond away.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod apart;
mod asking;
mod attending;
mod beside;
mod calling_back;
mod cancelling;
mod changed;
mod changing;
mod changing_together;
mod cold;
mod costs;
mod crowding;
mod distrust;
mod ending;
mod estimates;
mod evidence;
mod gauge;
mod learning;
mod leases;
mod losing;
mod losing_early;
mod names;
mod observing;
mod order;
mod paused;
mod pausing;
mod pools;
mod priority;
mod ranks;
mod refusing;
mod releases;
mod releasing;
mod remembering;
mod resetting;
mod saying_again;
mod scopes;
mod seats;
mod settling;
mod shards;
mod sharing;

mod smaller;
mod snapshot;
mod standing_still;
mod stepping;
mod support;
mod throttling_locally;
mod together;
mod traced;
mod true_costs;
mod units;
mod without_calls;
mod without_store;
mod yielding;
