use std::time::Duration;

use super::*;
use crate::config::civil::{date_of, day_in_month, weekday_of};
use crate::config::limit::Limit;

/// A moment of UTC, in seconds.
fn utc(year: i64, month: i64, day: i64, hour: i64, minute: i64) -> i64 {
    day_in_month(year, month, day) * 86_400 + hour * 3_600 + minute * 60
}

/// The boundaries around a moment: the earliest and the latest of each that may be meant, in seconds.
fn around(reset: Reset, now: i64) -> [(i64, i64); 4] {
    let named = reset.calendar(Stamp::from_micros(now * SECOND + 1), 0).boundaries;
    named.map(|boundary| (boundary.from.as_micros() / SECOND, boundary.to.as_micros() / SECOND))
}

fn exactly(moments: [i64; 4]) -> [(i64, i64); 4] {
    moments.map(|at| (at, at))
}

#[test]
fn dates_are_days_since_1970() {
    assert_eq!((date_of(0), weekday_of(0)), ((1970, 1, 1), 4), "a Thursday");
    assert_eq!((date_of(20_779), weekday_of(20_779)), ((2026, 11, 22), 7), "a Sunday");
    assert_eq!(date_of(-1), (1969, 12, 31));
    assert_eq!(date_of(day_in_month(2028, 2, 31)), (2028, 2, 29));
    assert_eq!(date_of(day_in_month(2026, 14, 31)), (2027, 2, 28), "months go on into the next year");
    assert_eq!(date_of(day_in_month(2026, -1, 31)), (2025, 11, 30));
    assert!((-800_000..800_000).all(|day| {
        let (year, month, of_month) = date_of(day);
        day_in_month(year, month, of_month) == day
    }));
}

#[test]
fn hours_days_weeks_and_months_of_utc() {
    let now = utc(2026, 11, 22, 15, 48);
    let hours = [14, 15, 16, 17].map(|hour| utc(2026, 11, 22, hour, 0));
    assert_eq!(around(Reset::hourly(), now), exactly(hours));
    assert_eq!(around(Reset::hourly().at(0, 50), now), exactly(hours.map(|at| at - 600)), "at ten to");
    assert_eq!(around(Reset::daily("UTC"), now), exactly([21, 22, 23, 24].map(|day| utc(2026, 11, day, 0, 0))));
    assert_eq!(
        around(Reset::daily("UTC").at(15, 49), now),
        exactly([20, 21, 22, 23].map(|day| utc(2026, 11, day, 15, 49)))
    );
    assert_eq!(around(Reset::weekly("UTC", 1), now), exactly([9, 16, 23, 30].map(|day| utc(2026, 11, day, 0, 0))));
    let billing = [(2026, 10, 30), (2026, 11, 30), (2026, 12, 30), (2027, 1, 30)];
    let billing = billing.map(|(year, month, day)| utc(year, month, day, 0, 0));
    assert_eq!(around(Reset::monthly("UTC", 30), utc(2026, 12, 1, 0, 0)), exactly(billing));
    let last = [(2026, 1, 31), (2026, 2, 28), (2026, 3, 31), (2026, 4, 30)];
    let last = last.map(|(year, month, day)| utc(year, month, day, 0, 0));
    assert_eq!(around(Reset::monthly("UTC", 31), utc(2026, 2, 28, 0, 0)), exactly(last), "or the last of a month");
}

#[test]
fn a_boundary_is_past_from_its_first_moment_on() {
    let reset = Reset::daily("UTC");
    let midnight = utc(2026, 11, 22, 0, 0);
    let past =
        |micros| reset.calendar(Stamp::from_micros(midnight * SECOND + micros), 0).boundaries[1].from.as_micros();
    assert_eq!([-1, 0].map(past), [(midnight - 86_400) * SECOND, midnight * SECOND]);
}

#[cfg(feature = "jiff")]
#[test]
fn days_are_shorter_and_longer_where_clocks_are_changed() {
    let angeles = Reset::daily("America/Los_Angeles");
    // On March 8th of 2026 clocks go from 2 to 3, and on November 1st from 2 to 1.
    let spring = [(7, 8), (8, 8), (9, 7), (10, 7)].map(|(day, hour)| utc(2026, 3, day, hour, 0));
    assert_eq!(around(angeles, utc(2026, 3, 8, 20, 0)), exactly(spring), "a day of 23 hours");
    let autumn = [(10, 31, 7), (11, 1, 7), (11, 2, 8), (11, 3, 8)];
    let autumn = autumn.map(|(month, day, hour)| utc(2026, month, day, hour, 0));
    assert_eq!(around(angeles, utc(2026, 11, 1, 20, 0)), exactly(autumn), "a day of 25 hours");
}

#[cfg(feature = "jiff")]
#[test]
fn a_midnight_that_happens_twice_is_from_the_first_to_the_second() {
    // In Havana clocks go from 1 to 0 on November 1st of 2026, and from 0 to 1 on March 8th.
    let havana = Reset::daily("America/Havana");
    let twice = around(havana, utc(2026, 11, 1, 12, 0))[1];
    assert_eq!(twice, (utc(2026, 11, 1, 4, 0), utc(2026, 11, 1, 5, 0)));
    let skipped = around(havana, utc(2026, 3, 8, 12, 0))[1];
    assert_eq!(skipped, (utc(2026, 3, 8, 4, 0), utc(2026, 3, 8, 5, 0)), "and so is one that does not happen");
}

#[cfg(feature = "jiff")]
#[test]
fn each_boundary_follows_the_one_before_and_now_is_between_the_second_and_the_third() {
    let zones = ["America/Los_Angeles", "America/Havana", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia"];
    for zone in zones {
        let resets = [Reset::daily(zone), Reset::weekly(zone, 7).at(2, 30), Reset::monthly(zone, 31).at(23, 59)];
        for (reset, hours) in resets.iter().flat_map(|reset| (0..2 * 8_766).step_by(5).map(move |hours| (reset, hours)))
        {
            let now = utc(2026, 1, 1, 0, 0) + hours * 3_600;
            let named = around(*reset, now);
            assert!(named.is_sorted() && named[1].0 <= now && now < named[2].0, "{reset:?} {now}: {named:?}");
        }
    }
}

#[test]
fn an_impossible_reset_names_its_field() {
    let day = Limit::per_day(9);
    let wrong = [
        Limit::per_hour(9).resets(Reset::daily("UTC")),
        Limit::bucket(9, 9, Duration::from_secs(86_400)).resets(Reset::daily("UTC")),
        day.clone().resets(Reset::daily("UTC").at(24, 0)),
        day.clone().resets(Reset::daily("UTC").at(0, 60)),
        day.clone().resets(Reset::daily("Mars/Olympus")),
        Limit::per_week(9).resets(Reset::weekly("UTC", 0)),
        Limit::per_week(9).resets(Reset::weekly("UTC", 8)),
        Limit::per_month(9).resets(Reset::monthly("UTC", 32)),
    ];
    for limit in wrong {
        assert_eq!(limit.terms("up").unwrap_err().field(), "limit.resets", "{limit:?}");
    }
    let hourly = Limit::per_hour(9).resets(Reset::hourly().at(5, 30)).terms("up").unwrap_err();
    assert_eq!(hourly.reason(), "an hourly reset has a minute, and no hour but 0: .at(0, 30)");
    let guards = [Limit::per_hour(9).resets(Reset::hourly()), day.clone().resets(Reset::daily("UTC"))];
    assert_eq!(guards.map(|limit| limit.guard_or_default().as_millis()), [1_800, 43_200]);
    assert_eq!(Limit::per_month(9).resets(Reset::monthly("UTC", 1)).guard_or_default().as_secs(), 60);
    assert_eq!(day.clone().resets(Reset::daily("UTC")).terms("up").unwrap()[0].quota, 9);
}
