//! The gauges that change by themselves, as long as anybody waits or a pause lasts: how long the oldest has waited, and how long
//! pauses still last.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::throttle::Throttle;
use crate::counts::Watch;
use crate::ledger::Cause;

impl Throttle {
    /// Has somebody look at them from now on, at those of all upstreams together.
    pub(crate) fn keep_gauges(&self) {
        let watch = self.watch().get_or_init(|| {
            let throttle = self.downgrade();
            Watch::by(move || throttle.upgrade().is_some_and(|throttle| throttle.set_gauges()))
        });
        self.upstreams().get().upstreams.iter().for_each(|of| of.counts.watch(watch));
    }

    /// Says whether anybody waits, or a pause lasts.
    fn set_gauges(&self) -> bool {
        let (now, registry) = (Instant::now(), self.upstreams().get());
        let upstreams = &registry.upstreams;
        let mut seen: Vec<(Duration, Vec<(Cause, Duration)>)> = vec![Default::default(); upstreams.len()];
        for ((oldest, pauses), of) in seen.iter_mut().zip(upstreams) {
            *oldest = of.crowd.outside_since().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
            pauses.extend(of.crowd.paused(now).map(|(until, reason)| (reason.cause, until - now)));
        }
        let mut is_any = upstreams.iter().any(|of| of.crowd.waiting() > 0);
        let places = registry.places();
        for queue in self.queues().all(|_, _| true) {
            let at = places.of(queue.registered());
            if let (Some((oldest, pauses)), Some(glance)) = (at.and_then(|at| seen.get_mut(at)), queue.glance(now)) {
                *oldest = (*oldest).max(glance.oldest.unwrap_or_default());
                pauses.extend(glance.paused.map(|paused| (paused.cause, paused.left)));
            }
        }
        for (of, (oldest, pauses)) in upstreams.iter().zip(seen) {
            of.crowd.counts().seen(oldest, &pauses);
            // It may have gone meanwhile, and nobody looks at it any more.
            if self.find(&of.upstream.name).is_none() {
                of.crowd.counts().gone();
            }
            is_any |= !pauses.is_empty();
        }
        is_any
    }
}
