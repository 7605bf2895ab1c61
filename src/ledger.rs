//! What stores decide, and how: pure, time is an argument.

pub(crate) mod book;
pub(crate) mod constraints;
pub(crate) mod correction;
mod decision;
mod home;
mod log;
mod logs;
mod message;
mod outside_use;
mod pause;
mod replay;
mod report;
mod rule;
mod senders;
mod stamp;

pub use self::home::{Home, Log};
pub use self::log::SlidingLog;
pub use self::message::{Answer, Ask, Grant, HandBack, LogUsage, MessageId, Run, Slots, TermUsage};
pub(crate) use self::pause::Held;
pub use self::pause::{Cause, Hold};
pub use self::report::{Incident, Learned, Lesson, Report};
pub use self::rule::Term;
pub(crate) use self::rule::earliest;
pub use self::stamp::Stamp;
pub(crate) use self::stamp::micros;

/// Callers that one ask carries at most.
pub(crate) const MAX_CALLERS: usize = 1_000;
/// Units that one ask carries at most, unless its first caller alone wants more.
pub(crate) const MAX_UNITS: u32 = 10_000;
/// The longest time for which a store remembers the answer to a message.
pub(crate) const MAX_MEMORY: i64 = 60_000_000;
/// The longest that a queue which waits for a slot says nothing to the store.
pub(crate) const MAX_SILENCE: i64 = 30_000_000;
