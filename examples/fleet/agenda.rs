//! Virtual time, to the nanosecond.
//!
//! A paused tokio clock moves by itself, from one timer to the next, and timers fire in whole milliseconds. The library's own
//! sleeps are as late as that in a real process too, but networks and servers know no milliseconds. So the clock is moved by
//! hand here, from one event to the next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, advance};

/// Tokio's timers fire at multiples of this.
const TICK: Duration = Duration::from_millis(1);

/// What happens when. Clones are one agenda.
#[derive(Clone, Debug)]
pub(crate) struct Agenda {
    begin: Instant,
    events: Arc<Mutex<Events>>,
}

#[derive(Debug, Default)]
struct Events {
    /// Events of one instant happen in the order in which they were entered.
    number: u64,
    due: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
}

impl Agenda {
    /// Begins now, on a runtime whose clock is paused, and where whoever yields comes last.
    pub(crate) fn new() -> Self {
        Self { begin: Instant::now(), events: Arc::default() }
    }

    /// The time since the beginning.
    pub(crate) fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Waits for so long, exactly.
    pub(crate) async fn sleep(&self, time: Duration) {
        // The agenda outlives whoever sleeps.
        let _ = self.enter(Instant::now() + time).await;
    }

    fn enter(&self, at: Instant) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        let mut events = self.lock();
        events.number += 1;
        let number = events.number;
        events.due.insert((at, number), tell);
        told
    }

    /// Lets time pass until then.
    pub(crate) async fn run_until(&self, end: Duration) {
        let end = self.begin + end;
        loop {
            // Everybody who can run does, and enters what comes next.
            yield_now().await;
            let now = Instant::now();
            if self.wake(now) {
                continue;
            }
            if now >= end {
                return;
            }
            advance(self.next(now).min(end) - now).await;
        }
    }

    /// Wakes whoever sleeps until now, and says whether there was anybody.
    fn wake(&self, now: Instant) -> bool {
        let mut woke = false;
        let mut events = self.lock();
        while let Some(first) = events.due.first_entry().filter(|first| first.key().0 <= now) {
            // Whoever slept may have gone.
            let _ = first.remove().send(());
            woke = true;
        }
        woke
    }

    /// The next event, or the next tick of tokio's timers.
    fn next(&self, now: Instant) -> Instant {
        let ticks = (now - self.begin).as_millis() + 1;
        let tick = self.begin + TICK * u32::try_from(ticks).unwrap_or(u32::MAX);
        self.lock().due.first_key_value().map_or(tick, |((at, _), _)| tick.min(*at))
    }

    fn lock(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_end_to_the_nanosecond_and_timers_to_the_millisecond() -> std::io::Result<()> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).event_interval(u32::MAX).build()?;
        runtime.block_on(async {
            let agenda = Agenda::new();
            let ends = Arc::new(Mutex::new(Vec::new()));
            let end = |name: &'static str| {
                let (agenda, ends) = (agenda.clone(), Arc::clone(&ends));
                move || ends.lock().unwrap_or_else(PoisonError::into_inner).push((name, agenda.now().as_nanos()))
            };
            let (sleeper, slept, timed) = (agenda.clone(), end("sleep"), end("timer"));
            tokio::spawn(async move {
                sleeper.sleep(Duration::from_nanos(1_500_001)).await;
                slept();
            });
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_nanos(1_500_001)).await;
                timed();
            });
            agenda.run_until(Duration::from_millis(3)).await;
            let ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
            assert_eq!(*ends, [("sleep", 1_500_001), ("timer", 2_000_000)]);
        });
        Ok(())
    }
}
