//! Whoever looks now and then at what changes by itself.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

/// How often what changes by itself is looked at, while anybody waits or a pause lasts.
const EVERY: Duration = Duration::from_secs(1);
/// Looking takes this part of the time at most, however many queues there are.
const PART: u32 = 50;

type Look = dyn Fn() -> bool + Send + Sync;

/// Looks now and then, as long as there is anything to be seen.
pub(crate) struct Watch {
    /// Says whether there is.
    look: Box<Look>,
    runs: AtomicBool,
}

impl Watch {
    pub(crate) fn by(look: impl Fn() -> bool + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { look: Box::new(look), runs: AtomicBool::new(false) })
    }

    /// Begins, unless somebody looks already. Outside of a runtime nobody does.
    pub(super) fn begin(self: &Arc<Self>) {
        if self.runs.load(Ordering::SeqCst) || self.runs.swap(true, Ordering::SeqCst) {
            return;
        }
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(Runs { watch: Arc::clone(self), ended: false }.run())),
            Err(_) => self.runs.store(false, Ordering::SeqCst),
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// Whoever looks: there is one at most. Dropped with its runtime, it lets another begin.
struct Runs {
    watch: Arc<Watch>,
    ended: bool,
}

impl Runs {
    async fn run(mut self) {
        let mut rest = EVERY;
        loop {
            sleep(rest).await;
            // Who comes from here on begins another, or is seen.
            self.watch.runs.store(false, Ordering::SeqCst);
            let began = Instant::now();
            self.ended = !(self.watch.look)() || self.watch.runs.swap(true, Ordering::SeqCst);
            if self.ended {
                return;
            }
            rest = EVERY.max(began.elapsed() * PART);
        }
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        if !self.ended {
            self.watch.runs.store(false, Ordering::SeqCst);
        }
    }
}
