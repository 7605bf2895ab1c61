use std::{collections::VecDeque, future, time::Duration};

use tokio::time::{Instant, sleep_until};

/// What is on its way in one direction. Nothing overtakes.
#[derive(Debug, Default)]
pub(super) struct Transit {
    pieces: VecDeque<(Instant, Vec<u8>)>,
}

impl Transit {
    /// Sends a piece that takes so long, or for as long as one before it.
    pub(super) fn push(&mut self, delay: Duration, bytes: &[u8]) {
        self.pieces.push_back((Instant::now() + delay, bytes.to_vec()));
    }

    /// Waits until the first piece has come. Cancelled, it leaves the piece on its way.
    pub(super) async fn next(&mut self) -> Vec<u8> {
        if let Some(&(due, _)) = self.pieces.front() {
            // Even an empty sleep lasts until the timer's next millisecond.
            if due > Instant::now() {
                sleep_until(due).await;
            }
            if let Some((_, bytes)) = self.pieces.pop_front() {
                return bytes;
            }
        }
        future::pending().await
    }
}
