//! When a line asks again, and how late is too late. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// The longest that a line says nothing while it waits, so that the store knows it is still there.
const MAX_SILENCE: Duration = Duration::from_secs(30);
/// No line asks more often than this.
const MIN_PAUSE: Duration = Duration::from_millis(1);
/// The latest that a slot may be used after its start, however wide the guard.
const STALE_AT_MOST: Duration = Duration::from_millis(50);
/// Timers fire up to a millisecond late: without this a narrow guard would make every slot stale.
const STALE_AT_LEAST: Duration = Duration::from_millis(2);

/// How much later than its start a slot may be used: half the guard, at most 50 ms.
fn stale_after(guard: Duration) -> Duration {
    (guard / 2).clamp(STALE_AT_LEAST, STALE_AT_MOST)
}

/// The same where several limits hold: by the narrowest guard, since a late call endangers that limit first. A guard that timers
/// alone use up protects from nothing, so it makes no slot of the others stale.
pub(crate) fn stale_after_all(guards: impl Iterator<Item = Duration> + Clone) -> Duration {
    let protects = |guard: &Duration| *guard >= 2 * STALE_AT_LEAST;
    stale_after(guards.clone().filter(protects).min().or_else(|| guards.min()).unwrap_or_default())
}

/// How long until a line asks again for a caller that may start `next` from now at the earliest.
///
/// Beyond the horizon: when the slot comes near, but far enough ahead of it that many others come near meanwhile and go
/// into the same ask. Within the horizon: something was left for the other processes, who come first; a span shorter than the
/// horizon gives out its quota several times within it, and is asked as much more often. `random` in [0, 1) spreads
/// processes that were told the same time. `round_trip` is what an answer takes.
pub(crate) fn ask_again(
    next: Duration,
    horizon: Duration,
    span: Duration,
    round_trip: Duration,
    random: f64,
) -> Duration {
    let pause = horizon.min(span).mul_f64(0.5 + 0.3 * random);
    let pause = next.saturating_sub(horizon) + pause;
    pause.saturating_sub(round_trip).clamp(MIN_PAUSE, MAX_SILENCE)
}

/// The fastest recent answer of the store: of ten seconds and 16 answers at least, of twice as many at most.
#[derive(Debug, Default)]
pub(crate) struct Fastest {
    before: Option<Duration>,
    current: Option<Duration>,
    answers: u8,
    since: Option<Instant>,
}

impl Fastest {
    /// Takes note of an answer, and says by how much it was slower than the fastest. The first has none to be judged by: it
    /// is held against an answer that takes no time.
    pub(crate) fn excess(&mut self, round_trip: Duration, now: Instant) -> Duration {
        let since = *self.since.get_or_insert(now);
        // By time as well: a stall that many answers share must not become the measure of them all.
        if self.answers >= 16 && now.saturating_duration_since(since) >= Duration::from_secs(10) {
            *self = Self { before: self.current.take(), current: None, answers: 0, since: Some(now) };
        }
        self.answers = self.answers.saturating_add(1);
        let excess = round_trip.saturating_sub(self.get());
        self.current = Some(self.current.map_or(round_trip, |fastest| fastest.min(round_trip)));
        excess
    }

    /// The fastest answer; zero before the first.
    pub(crate) fn get(&self) -> Duration {
        self.before.into_iter().chain(self.current).min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_slot_is_stale_after_half_the_guard_within_bounds() {
        for (guard, stale) in [(0, 2), (5, 2), (10, 5), (50, 25), (100, 50), (1_000, 50)] {
            assert_eq!(stale_after(guard * MS).as_millis(), stale, "{guard}");
        }
    }

    #[test]
    fn of_several_guards_the_narrowest_that_protects_from_anything_governs() {
        let cases: [(&[u32], u128); 7] = [
            (&[50], 25),
            (&[50, 10], 5),
            (&[10, 1_000], 5),
            (&[50, 0], 25),
            (&[3, 1_000], 50),
            (&[3, 0], 2),
            (&[4, 50], 2),
        ];
        for (guards, stale) in cases {
            assert_eq!(stale_after_all(guards.iter().map(|guard| *guard * MS)).as_millis(), stale, "{guards:?}");
        }
    }

    #[test]
    fn a_line_sleeps_until_its_slot_is_near() {
        let ask_again = |next, random| ask_again(next * MS, 250 * MS, 1_000 * MS, Duration::ZERO, random).as_millis();
        assert_eq!(ask_again(10_000, 0.0), 9_875);
        assert_eq!(ask_again(10_000, 0.99), 9_949);
        assert_eq!(ask_again(3_600_000, 0.5), 30_000, "but not silently for longer than 30 s");
        assert_eq!(ask_again(0, 0.0), 125);
    }

    #[test]
    fn the_fastest_answer_is_forgotten_after_a_while() {
        let mut now = Instant::now();
        let mut fastest = Fastest::default();
        assert_eq!(fastest.excess(80 * MS, now), 80 * MS, "the first has nothing to be judged by");
        assert_eq!(fastest.excess(90 * MS, now), 10 * MS);
        assert_eq!(fastest.excess(60 * MS, now), Duration::ZERO);
        for _ in 0..100 {
            assert_eq!(fastest.excess(400 * MS, now), 340 * MS, "however many answers a stall holds up");
        }
        for _ in 0..2 {
            now += Duration::from_secs(10);
            for _ in 0..16 {
                assert!(fastest.excess(80 * MS, now) <= 20 * MS);
            }
        }
        assert_eq!(fastest.excess(80 * MS, now), Duration::ZERO);
    }
}
