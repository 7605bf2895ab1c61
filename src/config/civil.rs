//! Dates, and what moments they are in a time zone. Days and seconds are those since 1970 began.

/// The year, month and day of a day.
pub(super) const fn date_of(day: i64) -> (i64, i64, i64) {
    // Years that begin in March end with the day that some of them have more.
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + 400 * era + if month <= 2 { 1 } else { 0 };
    (year, month, day_of_year - (153 * month_from_march + 2) / 5 + 1)
}

/// The day of a date.
const fn day_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// A day of a month, or the last where it has fewer; months go on into other years.
pub(super) fn day_in_month(year: i64, month: i64, day: i64) -> i64 {
    let first = |months: i64| day_of(year + (months - 1).div_euclid(12), (months - 1).rem_euclid(12) + 1, 1);
    let (begin, end) = (first(month), first(month + 1));
    let day = begin + day - 1;
    if day < end { day } else { end - 1 }
}

/// The day of the week, from 1, Monday, to 7.
pub(super) const fn weekday_of(day: i64) -> i64 {
    (day + 3).rem_euclid(7) + 1
}

/// What is wrong with a time zone.
pub(super) fn fault(zone: &str) -> Option<String> {
    (zone != "UTC").then(|| zones::fault(zone)).flatten()
}

/// By how many seconds the clocks of a time zone are ahead of UTC at a moment.
pub(super) fn offset(zone: &str, at: i64) -> i64 {
    if zone == "UTC" { 0 } else { zones::offset(zone, at).unwrap_or(0) }
}

/// When it is a time of a day in a time zone: the earliest and the latest moment that may be meant.
pub(super) fn moments(zone: &str, day: i64, hour: u8, minute: u8) -> (i64, i64) {
    let of_utc = day * 86_400 + i64::from(hour) * 3_600 + i64::from(minute) * 60;
    let of_zone = || zones::moments(zone, date_of(day), hour, minute);
    (zone != "UTC").then(of_zone).flatten().unwrap_or((of_utc, of_utc))
}

#[cfg(feature = "jiff")]
mod zones {
    use jiff::Timestamp;
    use jiff::civil::DateTime;
    use jiff::tz::TimeZone;

    pub(super) fn fault(zone: &str) -> Option<String> {
        TimeZone::get(zone).err().map(|error| format!("no time zone of this name is known: {error}"))
    }

    pub(super) fn offset(zone: &str, at: i64) -> Option<i64> {
        let zone = TimeZone::get(zone).ok()?;
        Some(zone.to_offset(Timestamp::from_second(at).ok()?).seconds().into())
    }

    pub(super) fn moments(zone: &str, date: (i64, i64, i64), hour: u8, minute: u8) -> Option<(i64, i64)> {
        let zone = TimeZone::get(zone).ok()?;
        let small = |part: i64| i8::try_from(part).ok();
        let (year, hour, minute) = (i16::try_from(date.0).ok()?, small(hour.into())?, small(minute.into())?);
        let local = DateTime::new(year, small(date.1)?, small(date.2)?, hour, minute, 0, 0).ok()?;
        let moment = zone.to_ambiguous_timestamp(local);
        Some((moment.earlier().ok()?.as_second(), moment.later().ok()?.as_second()))
    }
}

#[cfg(not(feature = "jiff"))]
mod zones {
    #[expect(clippy::unnecessary_wraps, reason = "as with the feature")]
    pub(super) fn fault(zone: &str) -> Option<String> {
        Some(format!("the time zone {zone:?} takes the feature `jiff`; without it there is UTC alone"))
    }

    pub(super) const fn offset(_: &str, _: i64) -> Option<i64> {
        None
    }

    pub(super) const fn moments(_: &str, _: (i64, i64, i64), _: u8, _: u8) -> Option<(i64, i64)> {
        None
    }
}
