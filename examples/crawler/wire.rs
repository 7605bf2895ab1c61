//! What really goes over the wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use http::{Extensions, StatusCode};
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next, Result};

/// Counts the calls that come past it.
pub(crate) struct Wire(Arc<Count>);

/// Calls so far.
#[derive(Debug, Default)]
pub(crate) struct Count {
    calls: AtomicU32,
    refused: AtomicU32,
    /// Held by everybody who waits, and by this.
    waiting: Arc<()>,
}

/// The extension of a request that has not been sent yet.
#[derive(Clone)]
pub(crate) struct Waiting(#[expect(dead_code, reason = "held, not used")] Arc<()>);

impl Wire {
    pub(crate) const fn new(count: Arc<Count>) -> Self {
        Self(count)
    }
}

impl Count {
    /// Calls sent, whatever came back.
    pub(crate) fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Makes a call one that waits, until it is sent or given up.
    pub(crate) fn wait(&self) -> Waiting {
        Waiting(Arc::clone(&self.waiting))
    }

    /// Calls that wait.
    pub(crate) fn waiting(&self) -> usize {
        Arc::strong_count(&self.waiting) - 1
    }

    /// Calls answered with 429.
    pub(crate) fn refused(&self) -> u32 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Middleware for Wire {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        drop(extensions.remove::<Waiting>());
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        let outcome = next.run(request, extensions).await;
        match &outcome {
            Ok(response) if response.status() == StatusCode::TOO_MANY_REQUESTS => {
                self.0.refused.fetch_add(1, Ordering::Relaxed);
            }
            // Nobody was there to send it to.
            Err(error) if error.is_connect() => {
                self.0.calls.fetch_sub(1, Ordering::Relaxed);
            }
            _ => {}
        }
        outcome
    }
}
