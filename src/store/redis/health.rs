//! Whether a store serves calls, as it is traced: going down and coming up once, what does not pass by itself at once and every minute.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::complaints::Complaints;
use crate::error::{StoreError, StoreErrorKind};

/// What was traced of a server, or of several as a whole.
#[derive(Default)]
pub(super) struct Health {
    /// Which of several servers this is.
    node: Option<Box<str>>,
    down: AtomicBool,
    /// It is down as it refuses what writes: what only reads says nothing of that.
    refuses: AtomicBool,
    /// Another one serves in its place.
    retired: AtomicBool,
    complaints: Mutex<Complaints>,
}

impl Health {
    /// Of one of several servers, which traces name.
    #[cfg(any(feature = "redis-cluster", feature = "redis-sentinel"))]
    pub(super) fn of_node(node: &str) -> Self {
        Self { node: Some(node.into()), ..Self::default() }
    }

    /// It serves nobody for now.
    pub(super) fn is_down(&self, error: &StoreError) {
        let refuses = [StoreErrorKind::Refused, StoreErrorKind::Unavailable].contains(&error.kind());
        self.refuses.store(refuses, Ordering::Relaxed);
        if !self.retired.load(Ordering::Relaxed) && !self.down.swap(true, Ordering::Relaxed) {
            tracing::warn!(node = self.node.as_deref(), error = error as &dyn std::error::Error, "store down");
        }
    }

    /// It has answered something that writes or does not.
    pub(super) fn is_up(&self, writes: bool) {
        let is_up = writes || !self.refuses.load(Ordering::Relaxed);
        if is_up && self.down.load(Ordering::Relaxed) && self.down.swap(false, Ordering::Relaxed) {
            tracing::info!(node = self.node.as_deref(), "store up");
        }
    }

    /// Whether it is said to be down.
    #[cfg(feature = "redis-sentinel")]
    pub(super) fn is_said_to_be_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// Another one serves in its place.
    #[cfg(any(feature = "redis-cluster", feature = "redis-sentinel"))]
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
        if self.down.swap(false, Ordering::Relaxed) {
            tracing::info!(node = self.node.as_deref(), "store up: other nodes serve in place of this one");
        }
    }

    /// Traces what does not pass by itself: what the server calls it, and the key that it is about, if any.
    pub(super) fn complain(&self, code: &str, key: &str, error: &StoreError) {
        if self.is_due(code, key) {
            tracing::warn!(node = self.node.as_deref(), error = error as &dyn std::error::Error, "store refuses");
        }
    }

    /// Whether this is to be traced now: at once, and then every minute.
    pub(super) fn is_due(&self, code: &str, key: &str) -> bool {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        complaints.is_due(code, key, Instant::now())
    }
}
