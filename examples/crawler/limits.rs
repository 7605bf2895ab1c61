//! How limits are written: `20/s`, `500/m`, `5000/h`, `30/10s`.

use std::time::Duration;

use outgate::Limit;

const FORM: &str = "write calls per time, such as 20/s, 500/m, 5000/h or 30/10s";

/// The limit that a text stands for, or what is wrong with the text.
pub(crate) fn parse(text: &str) -> Result<Limit, String> {
    let (calls, time) = text.split_once('/').ok_or(FORM)?;
    let quota = calls.parse().map_err(|_| format!("{calls:?} is no number of calls; {FORM}"))?;
    let window = duration(time).ok_or_else(|| format!("{time:?} is no time; {FORM}"))?;
    if quota == 0 || window.is_zero() {
        return Err(format!("nothing could ever be called; {FORM}"));
    }
    Ok(Limit::new(quota, window))
}

/// The text that stands for a limit.
pub(crate) fn text(limit: &Limit) -> String {
    let (quota, seconds) = (limit.quota(), limit.window().as_secs());
    let (count, unit) = match seconds {
        _ if seconds % 3_600 == 0 => (seconds / 3_600, 'h'),
        _ if seconds % 60 == 0 => (seconds / 60, 'm'),
        _ => (seconds, 's'),
    };
    if count == 1 { format!("{quota}/{unit}") } else { format!("{quota}/{count}{unit}") }
}

/// A unit of time, of which a number before it makes several.
fn duration(text: &str) -> Option<Duration> {
    let (at, unit) = text.char_indices().next_back()?;
    let count: u64 = if at == 0 { 1 } else { text[..at].parse().ok()? };
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        _ => return None,
    };
    count.checked_mul(seconds).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_calls_per_time() {
        for (written, quota, seconds) in
            [("20/s", 20, 1), ("500/m", 500, 60), ("5000/h", 5_000, 3_600), ("30/10s", 30, 10), ("1/90m", 1, 5_400)]
        {
            let limit = Limit::new(quota, Duration::from_secs(seconds));
            assert_eq!(parse(written), Ok(limit.clone()), "{written}");
            assert_eq!(text(&limit), written);
        }
    }

    #[test]
    fn a_text_that_is_no_limit_says_how_to_write_one() {
        let wrong = ["", "20", "/", "20/", "/s", "x/s", "-1/s", "1.5/s", "20/x", "20/sec", "20/é", "20/1.5s", "0/s"];
        let huge = ["20/0s", "4294967296/s", "1/99999999999999999999s", "1/9999999999999999h"];
        for written in wrong.into_iter().chain(huge) {
            assert!(parse(written).is_err_and(|error| error.contains("such as 20/s")), "{written}");
        }
    }
}
