//! When a queue asks again, and how late is too late. Pure.

use std::time::Duration;

/// The longest that a queue says nothing while it waits, so that the store knows it is still there.
pub(super) const MAX_SILENCE: Duration = Duration::from_secs(30);
/// The longest that a queue leaves slots that come one by one to others which wait: whoever waits says something more often. Of several units,
/// or where slots are close together, they may be gone by then.
pub(super) const LONGEST_TURN: Duration = Duration::from_secs(27);
pub(super) const LONGEST_TURN_OF_SEVERAL: Duration = Duration::from_secs(12);
/// No queue that was put off asks again sooner than this.
const MIN_PAUSE: Duration = Duration::from_millis(1);
/// The latest that a slot may be used after its start, however wide the guard.
const STALE_AT_MOST: Duration = Duration::from_millis(250);
/// Slots are asked for, and placed, so that they need not be used later than this: later is only who stood still.
pub(crate) const LATE_AT_MOST: Duration = Duration::from_millis(50);
/// Timers fire up to a millisecond late: without this a narrow guard would make every slot stale.
const STALE_AT_LEAST: Duration = Duration::from_millis(2);
/// A horizon that is shorter, as of whoever is left what others do not want, makes the turns of others no shorter.
const NEAR: Duration = Duration::from_millis(20);
/// The longest rest for the others' sake, in horizons.
const MOST_TURNS: u32 = 8;

/// How much later than its start a slot may be used: half the guard, at most 250 ms.
fn stale_after(guard: Duration) -> Duration {
    (guard / 2).clamp(STALE_AT_LEAST, STALE_AT_MOST)
}

/// How late a slot is expected to be used at most that is stale so long after its start.
pub(crate) fn late_at_most(stale_after: Duration) -> Duration {
    stale_after.min(LATE_AT_MOST)
}

/// How much later than its start a slot may be used where several limits hold: by the narrowest guard, since a late call endangers that
/// limit first. A guard that timers alone use up protects from nothing, so it makes no slot of the others stale.
pub(crate) fn stale_after_all(guards: impl Iterator<Item = Duration> + Clone) -> Duration {
    let protects = |guard: &Duration| *guard >= 2 * STALE_AT_LEAST;
    stale_after(guards.clone().filter(protects).min().or_else(|| guards.min()).unwrap_or_default())
}

/// What decides how long a queue rests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    /// From now until the first caller may start at the earliest.
    pub(crate) next: Duration,
    /// From now until it is this queue's turn, where slots come one by one; zero where that is past, or not known.
    pub(crate) own: Duration,
    /// How far ahead slots are booked.
    pub(crate) horizon: Duration,
    /// A span that lets more go out for a while than the rate of the limits: within the horizon it gives out its quota several times.
    pub(crate) span: Duration,
    /// How long it takes until every process that waits has had one unit, at the rate of that span; zero where that is slow.
    pub(crate) turn: Duration,
    /// How long the answer to the next ask takes.
    pub(crate) answer: Duration,
}

impl Rest {
    /// How long until a queue asks again.
    ///
    /// When its slot comes near, but far enough ahead of it that many others come near meanwhile and go into the same ask.
    /// Where slots come and others wait for them as well: when they have had their turns. Where it is known when that is, just then:
    /// so each slot is asked for by one queue. `random` in [0, 1) spreads processes that were told the same time.
    pub(crate) fn length(self, random: f64) -> Duration {
        let has_turn = self.own > self.next;
        let beyond = if has_turn { Duration::ZERO } else { self.longest_turn().saturating_sub(self.horizon) };
        // Evenly from the shortest: a crowd that was told the same moment must not leave it to pass.
        let pause = self.base().mul_f64(0.5 + 0.3 * random) + beyond.mul_f64(1.3 * random);
        let rest = self.next.max(self.own).saturating_sub(self.horizon) + pause;
        rest.saturating_sub(self.answer).clamp(MIN_PAUSE, MAX_SILENCE)
    }

    /// How long until a queue asks again that has just got so many units while others wait: until they have had as many.
    ///
    /// Without it a queue whose callers are all served asks again for each that comes, and leaves nothing for those that rest.
    pub(crate) fn after(self, units: u32, random: f64) -> Duration {
        let turns = self.turn.saturating_mul(units).min(self.base().max(self.longest_turn()));
        turns.mul_f64(0.5 + 0.3 * random).saturating_sub(self.answer)
    }

    /// Within a horizon at least, and a narrow span: two turns of it, where its units come one by one.
    fn base(self) -> Duration {
        self.horizon.min(self.span.max(self.turn.saturating_mul(2)))
    }

    fn longest_turn(self) -> Duration {
        self.turn.min(MOST_TURNS * self.horizon.max(NEAR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_slot_is_stale_after_half_the_guard_within_bounds() {
        for (guard, stale) in [(0, 2), (5, 2), (10, 5), (50, 25), (250, 125), (500, 250), (1_000, 250)] {
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
            (&[3, 1_000], 250),
            (&[3, 0], 2),
            (&[4, 50], 2),
        ];
        for (guards, stale) in cases {
            assert_eq!(stale_after_all(guards.iter().map(|guard| *guard * MS)).as_millis(), stale, "{guards:?}");
        }
    }

    #[test]
    fn a_line_rests_until_its_slot_is_near() {
        let rest = |next, random| {
            let (horizon, span, turn, answer) = (250 * MS, 1_000 * MS, Duration::ZERO, Duration::ZERO);
            Rest { next: next * MS, own: Duration::ZERO, horizon, span, turn, answer }.length(random).as_millis()
        };
        assert_eq!(rest(10_000, 0.0), 9_875);
        assert_eq!(rest(10_000, 0.99), 9_949);
        assert_eq!(rest(3_600_000, 0.5), 30_000, "but not silently for longer than 30 s");
        assert_eq!(rest(0, 0.0), 125);
    }

    #[test]
    fn a_line_rests_until_its_own_turn_where_that_is_known() {
        let rest = |next, own, random| {
            let (horizon, span, turn, answer) = (250 * MS, 1_000 * MS, 800 * MS, Duration::ZERO);
            Rest { next: next * MS, own: own * MS, horizon, span, turn, answer }.length(random).as_millis()
        };
        assert_eq!([rest(300, 1_000, 0.0), rest(300, 1_000, 1.0)], [875, 950]);
        assert_eq!([rest(300, 0, 0.0), rest(300, 0, 1.0)], [175, 965], "it is past, and anybody's turn");
        assert_eq!([rest(5_000, 1_000, 0.0), rest(5_000, 1_000, 1.0)], [4_875, 5_665]);
    }

    #[test]
    fn in_a_crowd_a_line_rests_until_the_others_have_had_their_turns() {
        let rest = |turn, answer| {
            let (next, horizon, span) = (Duration::ZERO, 250 * MS, 1_000 * MS);
            Rest { next, own: Duration::ZERO, horizon, span, turn: turn * MS, answer: answer * MS }
                .length(0.5)
                .as_millis()
        };
        let far = |random| {
            let (next, horizon, span) = (2_000 * MS, 250 * MS, 1_000 * MS);
            Rest { next, own: Duration::ZERO, horizon, span, turn: 1_000 * MS, answer: Duration::ZERO }
                .length(random)
                .as_millis()
        };
        assert_eq!(rest(100, 0), 162);
        assert_eq!(rest(1_000, 0), 650);
        assert_eq!(rest(1_000, 300), 350, "the answer takes its time, too");
        assert_eq!([far(0.0), far(0.5), far(1.0)], [1_875, 2_400, 2_925], "nor do all come at once for a far slot");
        assert_eq!(rest(100, 300), 1);
        assert_eq!(rest(60_000, 0), 1_300, "but not for long: some may be gone");
        let after = |units, turn| {
            let (next, horizon, span, answer) = (Duration::ZERO, 250 * MS, 1_000 * MS, 10 * MS);
            Rest { next, own: Duration::ZERO, horizon, span, turn: turn * MS, answer }.after(units, 0.0).as_millis()
        };
        let narrow = |span, turn| {
            let (next, horizon, answer) = (Duration::ZERO, 250 * MS, Duration::ZERO);
            Rest { next, own: Duration::ZERO, horizon, span: span * MS, turn: turn * MS, answer }
                .length(0.0)
                .as_millis()
        };
        assert_eq!([narrow(100, 20), narrow(10, 80), narrow(10, 500)], [50, 80, 125]);
        assert_eq!([after(1, 80), after(3, 80), after(100, 80), after(1, 600), after(1, 0)], [30, 110, 115, 290, 0]);
    }
}
