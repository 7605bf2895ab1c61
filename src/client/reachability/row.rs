//! Connects to one host in a row that failed, and when a call goes to see. Pure: time is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// So many connects in a row have to fail until callers wait.
const IN_A_ROW: u32 = 3;
/// How long after one call that went to see the next one goes: twice as long each time, up to the longest, and up to half as
/// long again at random.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// Which call it was that went to see; zero for one that went while none had to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Look(u64);

/// The connects to a host since the last that succeeded, and when that was.
#[derive(Debug)]
pub(super) struct Row {
    failed: u32,
    /// The last call that went to see.
    look: Look,
    /// When the next one goes.
    next: Instant,
    pause: Duration,
    /// When it last answered, as far as is known.
    answered_at: Option<Instant>,
}

impl Row {
    pub(super) const fn new(now: Instant) -> Self {
        Self { failed: 0, look: Look(0), next: now, pause: FIRST, answered_at: None }
    }

    /// Whether callers wait.
    pub(super) const fn is_down(&self) -> bool {
        self.failed >= IN_A_ROW
    }

    /// Whether the last connect failed.
    pub(super) const fn fails(&self) -> bool {
        self.failed > 0
    }

    /// Lets a call go, or says when one may go and see. `random` is in [0, 1).
    pub(super) fn admit(&mut self, now: Instant, random: f64) -> Result<Look, Instant> {
        if !self.is_down() {
            return Ok(Look::default());
        }
        if now < self.next {
            return Err(self.next);
        }
        self.look.0 += 1;
        self.plan(now, random);
        Ok(self.look)
    }

    /// A connect failed. Says whether callers wait from now on: not where it answered just now, as then the connect may have been one
    /// to another host, after a redirect.
    pub(super) fn fail(&mut self, now: Instant, random: f64) -> bool {
        if self.is_down() {
            return false;
        }
        let answers = self.answered_at.is_some_and(|at| now < at + LONGEST);
        self.failed = (self.failed + 1).min(if answers { IN_A_ROW - 1 } else { IN_A_ROW });
        self.next = now;
        if self.is_down() {
            self.plan(now, random);
        }
        self.is_down()
    }

    /// A call came to nothing: if it is the one that went to see, another goes at once. Says whether that is so.
    pub(super) fn pass_on(&mut self, look: Look, now: Instant) -> bool {
        let is_last = self.is_down() && look != Look::default() && look == self.look;
        if is_last {
            self.next = now;
        }
        is_last
    }

    /// A connect succeeded. Says whether callers waited.
    pub(super) fn connect(&mut self, now: Instant) -> bool {
        let was_down = self.is_down();
        (self.failed, self.pause, self.answered_at) = (0, FIRST, Some(now));
        was_down
    }

    /// How long until one may go and see.
    pub(super) fn next_look(&self, now: Instant) -> Duration {
        self.next.saturating_duration_since(now)
    }

    /// Whether for long no connect failed, and nobody wanted to go and see.
    pub(super) fn is_unused(&self, now: Instant) -> bool {
        self.next + 60 * LONGEST <= now
    }

    fn plan(&mut self, now: Instant, random: f64) {
        self.next = now + self.pause.mul_f64(1.0 + random / 2.0);
        self.pause = (2 * self.pause).min(LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Step {
        Fails,
        Connects,
        /// A call goes, as so many went to see.
        Goes(u64),
        /// Nobody goes before so many milliseconds.
        Waits(u64),
        /// The call that went to see as the nth was cancelled.
        Cancelled(u64),
    }
    use Step::{Cancelled, Connects, Fails, Goes, Waits};

    #[test]
    fn who_goes_when_and_how_long_others_wait() {
        /// Milliseconds, and what happens then.
        type Steps = &'static [(u64, Step)];
        let stories: [Steps; 7] = [
            &[(0, Fails), (0, Fails), (0, Goes(0)), (0, Fails), (0, Waits(50)), (49, Waits(50)), (50, Goes(1))],
            &[(0, Fails), (0, Fails), (0, Connects), (0, Fails), (0, Fails), (0, Goes(0))],
            // Twice as long each time, whether the one that went has failed yet or not.
            &[
                (0, Fails),
                (0, Fails),
                (0, Fails),
                (50, Goes(1)),
                (50, Fails),
                (50, Waits(150)),
                (150, Goes(2)),
                (150, Waits(350)),
                (350, Goes(3)),
                (350, Waits(750)),
                (750, Goes(4)),
                (750, Waits(1_550)),
                (1_550, Goes(5)),
                (1_550, Waits(2_550)),
                (9_000, Goes(6)),
                (9_000, Waits(10_000)),
            ],
            // One that has answered within a second is not down, however many fail.
            &[
                (0, Fails),
                (0, Connects),
                (10, Fails),
                (20, Fails),
                (30, Fails),
                (999, Fails),
                (999, Goes(0)),
                (1_000, Fails),
                (1_000, Waits(1_050)),
                (1_050, Goes(1)),
                (1_050, Connects),
                (2_050, Fails),
                (2_050, Fails),
                (2_050, Fails),
                (2_050, Waits(2_100)),
            ],
            // Calls that were under way when it went down change nothing.
            &[(0, Fails), (0, Fails), (0, Fails), (20, Fails), (30, Fails), (30, Waits(50))],
            &[(0, Fails), (0, Fails), (0, Fails), (50, Goes(1)), (60, Connects), (60, Goes(0)), (60, Goes(0))],
            &[
                (0, Fails),
                (0, Fails),
                (0, Fails),
                (10, Cancelled(0)),
                (10, Waits(50)),
                (50, Goes(1)),
                (60, Cancelled(1)),
                (60, Goes(2)),
                (70, Cancelled(1)),
                (70, Waits(260)),
            ],
        ];
        for (nth, story) in stories.iter().enumerate() {
            let begin = Instant::now();
            let mut row = Row::new(begin);
            for (at, step) in *story {
                let now = begin + Duration::from_millis(*at);
                match step {
                    Fails => _ = row.fail(now, 0.0),
                    Connects => _ = row.connect(now),
                    Goes(look) => assert_eq!(row.admit(now, 0.0), Ok(Look(*look)), "{nth}, {at} ms"),
                    Waits(until) => {
                        assert_eq!(row.admit(now, 0.0), Err(begin + Duration::from_millis(*until)), "{nth}, {at} ms");
                    }
                    Cancelled(look) => _ = row.pass_on(Look(*look), now),
                }
            }
        }
    }

    #[test]
    fn intervals_differ_by_up_to_half() {
        let begin = Instant::now();
        let mut row = Row::new(begin);
        (0..3).for_each(|_| _ = row.fail(begin, 0.999));
        assert!(row.admit(begin, 0.0).unwrap_err() - begin > Duration::from_millis(74));
    }
}
