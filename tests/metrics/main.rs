//! What is counted, against the guide's page and against what happened. Time is paused; the store is in memory, a millisecond away.

mod counted;
mod documented;
mod support;
