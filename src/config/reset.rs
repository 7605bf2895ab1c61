//! When a calendar window begins: the hours, days, weeks or months of an upstream's clock.

use std::fmt;
use std::time::Duration;

use super::civil;
use crate::ledger::{Boundary, Calendar, Stamp};

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600;
const DAY: Duration = Duration::from_secs(86_400);
const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// When an upstream begins to count anew, by the calendar and the clock of some time zone.
///
/// ```
/// use outgate::{Limit, Reset};
///
/// let daily = Limit::per_day(10_000).resets(Reset::daily("UTC"));
/// let billing = Limit::per_month(100_000).resets(Reset::monthly("UTC", 17).at(8, 30));
/// # let _ = (daily, billing);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    every: Every,
    zone: &'static str,
    hour: u8,
    minute: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Every {
    Hour,
    Day,
    /// On a day of the week, from 1, Monday, to 7.
    Week(u8),
    /// On a day of the month, or the last of a month that has fewer.
    Month(u8),
}

impl Reset {
    const fn new(every: Every, zone: &'static str) -> Self {
        Self { every, zone, hour: 0, minute: 0 }
    }

    /// Every hour, on the hour of UTC.
    #[must_use]
    pub const fn hourly() -> Self {
        Self::new(Every::Hour, "UTC")
    }

    /// Every midnight of a time zone: `UTC`, or with the feature `jiff` any of the IANA database, such as
    /// `America/Los_Angeles`. Days that daylight saving time makes shorter or longer are.
    #[must_use]
    pub const fn daily(zone: &'static str) -> Self {
        Self::new(Every::Day, zone)
    }

    /// Every week at midnight, on a weekday from 1, Monday, to 7, Sunday.
    ///
    /// ```
    /// use outgate::{Limit, Reset};
    ///
    /// let sundays = Limit::per_week(5_000).resets(Reset::weekly("UTC", 7).at(23, 0));
    /// let hourly = Limit::per_hour(100).resets(Reset::hourly());
    /// # let _ = (sundays, hourly);
    /// ```
    #[must_use]
    pub const fn weekly(zone: &'static str, weekday: u8) -> Self {
        Self::new(Every::Week(weekday), zone)
    }

    /// Every month at midnight, on a day from 1 to 31: in a month of fewer days, on its last.
    #[must_use]
    pub const fn monthly(zone: &'static str, day: u8) -> Self {
        Self::new(Every::Month(day), zone)
    }

    /// At this time of day instead of midnight; every hour, at this minute: an [hourly](Self::hourly) reset has no other hour than 0.
    ///
    /// Where clocks are put forward it may be skipped, and happen twice where they are put back: nothing starts then from before the
    /// first moment that may be meant to after the last.
    #[must_use]
    pub const fn at(mut self, hour: u8, minute: u8) -> Self {
        (self.hour, self.minute) = (hour, minute);
        self
    }

    /// What its window is called.
    pub(super) const fn window_name(self) -> &'static str {
        match self.every {
            Every::Hour => "h",
            Every::Day => "day",
            Every::Week(_) => "week",
            Every::Month(_) => "month",
        }
    }

    /// How long a window lasts, but for daylight saving time: of months, the longest.
    pub(super) const fn window(self) -> Duration {
        match self.every {
            Every::Hour => Duration::from_secs(3_600),
            Every::Day => DAY,
            Every::Week(_) => Duration::from_secs(7 * 86_400),
            Every::Month(_) => Duration::from_secs(31 * 86_400),
        }
    }

    /// How much longer a window may last, with daylight saving time and what happens twice: not one of an hour of UTC.
    pub(super) const fn longer_by(self) -> Duration {
        match self.every {
            Every::Hour => Duration::ZERO,
            Every::Day | Every::Week(_) | Every::Month(_) => Duration::from_secs(4 * 3_600),
        }
    }

    /// Another number for each, but for chance: of microseconds, less than a second. The same in every process.
    pub(super) fn mark(self) -> i64 {
        let (kind, day) = match self.every {
            Every::Hour => (0, 0),
            Every::Day => (1, 0),
            Every::Week(day) => (2, day),
            Every::Month(day) => (3, day),
        };
        let parts = [kind, day, self.hour, self.minute].into_iter().chain(self.zone.bytes());
        // FNV-1a.
        let hash = parts.fold(0x811c_9dc5_u32, |hash, part| (hash ^ u32::from(part)).wrapping_mul(0x0100_0193));
        i64::from(hash) % SECOND
    }

    /// What is wrong with it.
    pub(super) fn fault(self) -> Option<String> {
        let day = match self.every {
            Every::Week(day) if !(1..=7).contains(&day) => Some("weekday"),
            Every::Month(day) if !(1..=31).contains(&day) => Some("day of the month"),
            _ => None,
        };
        if let Some(day) = day {
            return Some(format!("{self:?} names no {day}"));
        }
        if self.hour > 23 || self.minute > 59 {
            return Some(format!("{}:{:02} is no time of day", self.hour, self.minute));
        }
        if self.every == Every::Hour && self.hour != 0 {
            return Some(format!("an hourly reset has a minute, and no hour but 0: .at(0, {})", self.minute));
        }
        civil::fault(self.zone)
    }

    /// The boundaries around a moment of unix time.
    pub(crate) fn calendar(self, around: Stamp, guard: i64) -> Calendar {
        let now = around.as_micros().div_euclid(SECOND);
        let all = self.boundaries(now);
        let past = all.iter().rposition(|(from, _)| *from <= now).unwrap_or(1).clamp(1, all.len().saturating_sub(3));
        let stamp = |seconds: i64| Stamp::from_micros(seconds.saturating_mul(SECOND));
        let boundary = |at: usize| all.get(at).map_or((now, now), |boundary| *boundary);
        let named = [past - 1, past, past + 1, past + 2].map(boundary);
        Calendar::new(guard, named.map(|(from, to)| Boundary::new(stamp(from), stamp(to))))
    }

    /// Some before and after a moment, ascending, in seconds: the earliest and the latest that may be meant.
    fn boundaries(self, now: i64) -> Vec<(i64, i64)> {
        if self.every == Every::Hour {
            let minute = 60 * i64::from(self.minute);
            let last = (now - minute).div_euclid(HOUR) * HOUR + minute;
            return (-2..=3).map(|hours| last + hours * HOUR).map(|at| (at, at)).collect();
        }
        let today = (now + civil::offset(self.zone, now)).div_euclid(86_400);
        let (year, month, _) = civil::date_of(today);
        let days: Vec<i64> = match self.every {
            Every::Hour | Every::Day => (today - 4..=today + 4).collect(),
            Every::Week(weekday) => {
                (today - 28..=today + 28).filter(|&day| civil::weekday_of(day) == i64::from(weekday)).collect()
            }
            Every::Month(day) => (-4..=4).map(|months| civil::day_in_month(year, month + months, day.into())).collect(),
        };
        days.into_iter().map(|day| civil::moments(self.zone, day, self.hour, self.minute)).collect()
    }
}

/// Shortly: `daily (UTC)`, `monthly on day 17 at 8:30 (Europe/Berlin)`. Midnight is not said, nor the first day of a month.
///
/// ```
/// use outgate::Reset;
///
/// assert_eq!(Reset::weekly("UTC", 7).at(23, 0).to_string(), "weekly on Sunday at 23:00 (UTC)");
/// ```
impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.every {
            Every::Hour => f.write_str("hourly")?,
            Every::Day => f.write_str("daily")?,
            Every::Week(day) => match WEEKDAYS.get(usize::from(day).wrapping_sub(1)) {
                Some(name) => write!(f, "weekly on {name}")?,
                None => write!(f, "weekly on day {day}")?,
            },
            Every::Month(1) => f.write_str("monthly")?,
            Every::Month(day) => write!(f, "monthly on day {day}")?,
        }
        match (self.every, self.hour, self.minute) {
            (_, 0, 0) => {}
            (Every::Hour, _, minute) => write!(f, " at minute {minute}")?,
            (_, hour, minute) => write!(f, " at {hour}:{minute:02}")?,
        }
        write!(f, " ({})", self.zone)
    }
}

#[cfg(test)]
mod tests;
