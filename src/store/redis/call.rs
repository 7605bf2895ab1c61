//! A message as its script is called with it.

use std::time::Instant;

use redis::{Cmd, Value};

use super::script::Script;
use super::wire::{self, Wire};
use crate::error::StoreError;
use crate::ledger::{Message, Reply};
use crate::store::age::{REPEATED_WITHIN, Written};

/// A message, how it is written, and how its answer is read.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    message: &'a Message,
    wire: Wire<'a>,
    /// When it was made.
    made: (Instant, Written),
    is_again: bool,
}

impl<'a> Call<'a> {
    pub(super) fn new(message: &'a Message, wire: Wire<'a>) -> Self {
        Self { message, wire, made: (Instant::now(), Written::now()), is_again: false }
    }

    #[cfg(feature = "redis-cluster")]
    pub(super) fn upstream(&self) -> &str {
        &self.message.upstream
    }

    pub(super) fn script(&self) -> &'static Script {
        wire::script(self.message)
    }

    /// Whether a server that takes no writes refuses it: what nobody says only reads.
    pub(super) const fn writes(&self) -> bool {
        !self.message.id.is_nobodys()
    }

    /// Writes keys and arguments.
    pub(super) fn write(&self, cmd: &mut Cmd) {
        self.wire.write(cmd, self.message);
    }

    /// Fails where it is the answer to something else.
    pub(super) fn read(&self, answer: &Value) -> Result<Reply, StoreError> {
        wire::reply(self.message, answer)
    }

    /// The same once more.
    pub(super) fn again(self) -> Self {
        Self { is_again: true, ..self }
    }

    /// Whether it took too long to connect for it. Whoever makes it may have been taken for gone by then, and another has made it. Nor is it made once
    /// more where it may not be any more.
    pub(super) fn is_too_late(&self) -> bool {
        let (since, written) = self.made;
        // What it says of the latest time is as old as it is by a clock that goes on while the machine stands still.
        let is_outdated = self.message.latest.is_some() && written.is_old();
        since.elapsed() >= REPEATED_WITHIN || is_outdated || self.is_again && !self.may_repeat()
    }

    /// Whether it may be made once more where it is unknown what came of it: a message acts once however often it comes, for as long as it
    /// is remembered; but what one says of the latest time holds for now, and not for a second try.
    pub(super) fn may_repeat(&self) -> bool {
        let (since, written) = self.made;
        since.elapsed() < REPEATED_WITHIN && !written.is_old() && self.message.latest.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ledger::{Body, MessageId};

    #[test]
    fn what_the_store_may_have_forgotten_is_not_sent_again() {
        let body = Body::Release { scope: None, served: None };
        let message = Message::new("up", MessageId::new(7, "", 1), body);
        let call = Call::new(&message, Wire::new("outgate", None));
        let (since, written) = call.made;
        let second = Duration::from_secs(1);
        let made = |own: Duration, set: Duration| {
            Call { made: (since.checked_sub(own).unwrap(), written.earlier_by(set)), ..call }.may_repeat()
        };
        assert!(call.may_repeat() && made(20 * second, 20 * second));
        assert!(!made(100 * second, 100 * second), "the process stood still");
        let old = Call { made: (since.checked_sub(100 * second).unwrap(), written), ..call };
        assert!(old.is_too_late() && old.again().is_too_late() && !call.is_too_late() && !call.again().is_too_late());
        // The clock of the day may have been set since.
        let set = Call { made: (since, written.earlier_by(100 * second)), ..call };
        assert!(!set.is_too_late() && set.again().is_too_late());
        assert!(!made(second, 100 * second), "the machine did");
        assert!(!made(100 * second, second), "the clock was set");
        let ahead = Call { made: (since, written.later_by(100 * second)), ..call };
        assert!(!ahead.may_repeat(), "it was set back");
    }
}
