//! When the store cannot answer: no call hangs, and everything heals by itself.

mod bounds;
mod cancelling;
mod closing;
mod connecting;
mod demoted;
mod distance;
mod doubled;
mod faults;
mod faults_that_last;
mod hanging_up;
mod healing;
mod in_flight;
mod losing;
mod lost_replies;
mod names;
mod once;
mod policies;
mod recorder;
mod refusals;
mod runtimes;
mod scene;
mod searching;
mod secrets;
mod settling;
mod strangers;
mod traces;
