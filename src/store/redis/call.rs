//! A message as its script is called with it.

use redis::{Cmd, Value};

use super::script::Script;
use super::wire::{self, Wire};
use crate::error::StoreError;
use crate::ledger::{Message, Reply};

/// A message, how it is written, and how its answer is read.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    message: &'a Message,
    wire: Wire<'a>,
}

impl<'a> Call<'a> {
    pub(super) const fn new(message: &'a Message, wire: Wire<'a>) -> Self {
        Self { message, wire }
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

    /// Whether it may be made once more where it is unknown what came of it: every message acts once however often it comes, but what
    /// one says of the latest time holds for now, and not for a second try.
    pub(super) const fn may_repeat(&self) -> bool {
        self.message.latest.is_none()
    }
}
