//! Whoever looks now and then at what changes by itself.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use crate::queue::shift::{OnShift, Shift};

/// How often what changes by itself is looked at, while anybody waits or a pause lasts.
const EVERY: Duration = Duration::from_secs(1);
/// Looking takes this part of the time at most, however many queues there are.
const PART: u32 = 50;

type Look = dyn Fn() -> bool + Send + Sync;

/// Looks now and then, as long as there is anything to be seen.
pub(crate) struct Watch {
    /// Says whether there is.
    look: Box<Look>,
    shift: Arc<Shift>,
}

impl Watch {
    pub(crate) fn by(look: impl Fn() -> bool + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { look: Box::new(look), shift: Arc::default() })
    }

    /// Begins, unless somebody looks already. Outside of a runtime nobody does.
    pub(super) fn begin(self: &Arc<Self>) {
        let now = Instant::now();
        if self.shift.is_free(now)
            && let Ok(runtime) = Handle::try_current()
            && let Some(shift) = self.shift.begin(now, now + EVERY)
        {
            runtime.spawn(run(Arc::clone(self), shift));
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// Looks now and then, as long as there is anything to be seen.
async fn run(watch: Arc<Watch>, mut shift: OnShift) {
    let mut at = Instant::now() + EVERY;
    while shift.goes_on(at) {
        sleep_until(at).await;
        // Who comes from here on begins another, or is seen.
        shift.end();
        let began = Instant::now();
        if !(watch.look)() {
            return;
        }
        let now = Instant::now();
        at = now + EVERY.max((now - began) * PART);
        let Some(next) = watch.shift.begin(now, at) else { return };
        shift = next;
    }
}
