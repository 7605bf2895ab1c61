//! One of the processes of a history, and what it has sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use crate::queue::engine::scene;
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
        }
    }

    /// Slots that are neither told nor handed back.
    pub(super) fn kept(&self) -> usize {
        let engine = &self.scene.engine;
        let under_way = engine.unanswered.as_ref().map_or(0, |message| message.slots_back());
        engine.waiters.slots() + engine.surplus.len() + under_way
    }

    /// When something happens without anybody's doing.
    pub(super) fn next(&self) -> Option<Instant> {
        let sent = self.sent.as_ref().map(|sent| if sent.acts { sent.acts_at } else { sent.arrives_at });
        let times_up = self.waiting.values().flatten().min().copied();
        [sent, self.wake, times_up].into_iter().flatten().min()
    }
}
