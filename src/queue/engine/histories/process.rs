//! One of the processes of a history, and what it has sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use crate::queue::engine::scene::{self, World};
use crate::queue::in_flight::{Message, Reply};
use crate::queue::waiters::Slot;

/// A message on its way: when the store acts, if it does, and when the answer is there.
pub(super) struct Sent {
    pub(super) message: Arc<Message>,
    pub(super) at: Instant,
    pub(super) acts_at: Instant,
    pub(super) acts: bool,
    pub(super) arrives_at: Instant,
    pub(super) is_lost: bool,
    pub(super) reply: Option<Reply>,
}

/// One process: what its rim would do, and what was seen of it.
pub(super) struct Process {
    pub(super) scene: scene::Process,
    pub(super) sent: Option<Sent>,
    /// When the driver looks again.
    pub(super) wake: Option<Instant>,
    pub(super) tickets: u64,
    pub(super) waiting: BTreeMap<u64, Option<Instant>>,
    pub(super) permits: Vec<Slot>,
    pub(super) names: u64,
    pub(super) granted: usize,
    pub(super) told: usize,
    pub(super) handed_back: usize,
    pub(super) dropped: usize,
    /// The store has lost its data, and no message has come there since.
    pub(super) is_unheard: bool,
}

impl Process {
    pub(super) fn new(scene: scene::Process, sender: u64) -> Self {
        Self {
            scene,
            sent: None,
            wake: None,
            tickets: 0,
            waiting: BTreeMap::new(),
            permits: Vec::new(),
            names: sender,
            granted: 0,
            told: 0,
            handed_back: 0,
            dropped: 0,
            is_unheard: false,
        }
    }

    /// Slots that are neither told nor handed back.
    pub(super) fn kept(&self) -> usize {
        let engine = &self.scene.engine;
        let under_way = engine.unanswered.as_ref().map_or(0, |message| message.slots_back());
        engine.waiters.slots() + engine.surplus.len() + under_way
    }

    /// Whether it misses what the store loses now, by a message or a start: by a start alone where it is about to take another name.
    pub(super) fn would_miss(&self, world: &World) -> bool {
        let is_renamed = self.sent.as_ref().is_some_and(|sent| matches!(sent.reply, Some(Err(_))));
        (!is_renamed && self.scene.engine.memory.is_any(world.now)) || self.has_start(world)
    }

    /// Whether it misses what the store has lost under another name, too: of a message alone it knows nothing then.
    pub(super) fn may_rename(&self, world: &World) -> bool {
        !self.is_unheard || self.has_start(world)
    }

    fn has_start(&self, world: &World) -> bool {
        self.scene.engine.memory.has_start(world.now, world.stamp())
    }

    /// When something happens without anybody's doing.
    pub(super) fn next(&self) -> Option<Instant> {
        let sent = self.sent.as_ref().map(|sent| if sent.acts { sent.acts_at } else { sent.arrives_at });
        let times_up = self.waiting.values().flatten().min().copied();
        [sent, self.wake, times_up].into_iter().flatten().min()
    }
}
