//! The callers of one process that wait for the same logs: first come, first served, one message to the store at a time.

mod borrowed;
pub(crate) mod bounds;
pub(crate) mod calendars;
mod caller;
mod callers;
mod cold;
pub(crate) mod contact;
pub(crate) mod crowd;
mod driver;
mod engine;
mod events;
mod forecast;
pub(crate) mod glance;
mod in_flight;
pub(crate) mod log_time;
pub(crate) mod looks;
pub(crate) mod news;
pub(crate) mod pacing;
mod pause;
mod places;
pub(crate) mod process;
pub(crate) mod reports;
pub(crate) mod resend;
pub(crate) mod seats;
mod served;
pub(crate) mod settling;
pub(crate) mod skew;
mod state;
pub(crate) mod table;
mod waited_for;
pub(crate) mod waiters;
mod wants;
mod without_store;

pub(crate) use self::caller::Patience;
pub(crate) use self::callers::Queue;
