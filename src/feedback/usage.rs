//! Meta's headers of usage: JSON with percentages.

use std::time::Duration;

use serde_json::{Map, Value};

use super::number::Number;
use super::quota::{Quota, stricter};
use super::reset::Reset;

/// For how long nothing is served.
const REGAIN: &str = "estimated_time_to_regain_access";

/// The quotas of a usage header, one per object in it that holds percentages; `None` if there is none.
pub(super) fn read(json: &[u8]) -> Option<Vec<Quota>> {
    let Ok(Value::Object(top)) = serde_json::from_slice(json) else { return None };
    // Either the numbers themselves, or lists of them by account.
    let lists = top.values().filter_map(Value::as_array).flatten().filter_map(Value::as_object);
    let quotas: Vec<Quota> = [&top].into_iter().chain(lists).take(super::tally::MOST).filter_map(quota).collect();
    if quotas.is_empty() { None } else { Some(quotas) }
}

fn quota(usage: &Map<String, Value>) -> Option<Quota> {
    let mut quota = Quota { plain: false, ..Quota::new() };
    for (key, value) in usage {
        let Some(number) = number(value) else { continue };
        match key.as_str() {
            "call_count" | "total_cputime" | "total_time" => quota.raise(number),
            key if key.ends_with("_pct") => quota.raise(number),
            // Minutes here, seconds below.
            REGAIN => quota.block(number.minutes()),
            "reset_time_duration" => quota.reset = Some(Reset::after(number.seconds())),
            _ => {}
        }
    }
    // Where nobody says when it serves again, Meta serves nothing once all is used.
    quota.blocked |= quota.is_spent() && !usage.contains_key(REGAIN);
    quota.name = usage.get("type").and_then(Value::as_str).map(str::to_owned);
    if quota.is_unknown() && quota.reset.is_none() { None } else { Some(quota) }
}

/// The decimal number as it was written, which no binary fraction can be.
fn number(value: &Value) -> Option<Number> {
    value.as_number().and_then(|number| Number::parse(&number.to_string()))
}

impl Quota {
    /// Takes the highest of several percentages for the share that is used.
    fn raise(&mut self, percent: Number) {
        let millionths = percent.millionths().div_ceil(100);
        self.utilization = stricter(self.utilization, Some(millionths), u32::max);
    }

    /// Nothing is served for so long; zero means that everything is.
    fn block(&mut self, regain: Duration) {
        if !regain.is_zero() {
            self.blocked = true;
            self.reset = Some(Reset::after(regain));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_percentage_and_the_time_are_read() {
        let cases = [
            (r#"{"call_count":28,"total_time":25,"total_cputime":30}"#, Some(300_000), None, false),
            (r#"{"call_count":100,"total_time":25}"#, Some(1_000_000), None, true),
            (r#"{"acc_id_util_pct":9.67,"reset_time_duration":100}"#, Some(96_700), Some(100), false),
            (
                r#"{"1":[{"type":"ads","call_count":95,"estimated_time_to_regain_access":19}]}"#,
                Some(950_000),
                Some(1_140),
                true,
            ),
            (
                r#"{"1":[{"type":"ads","call_count":101,"estimated_time_to_regain_access":0}]}"#,
                Some(1_010_000),
                None,
                false,
            ),
        ];
        for (json, utilization, reset, blocked) in cases {
            let quota = &read(json.as_bytes()).unwrap()[0];
            let read = (quota.utilization, quota.reset_after().map(|reset| reset.as_secs()), quota.blocked);
            assert_eq!(read, (utilization, reset, blocked), "{json}");
        }
    }

    #[test]
    fn every_account_has_its_own_quotas() {
        let quotas = read(
            br#"{"1":[{"type":"a","call_count":1},{"type":"b","call_count":2}],"2":[{"type":"c","call_count":3}]}"#,
        );
        let names: Vec<_> = quotas.iter().flatten().filter_map(Quota::name).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[test]
    fn what_holds_no_percentage_is_refused() {
        let deep = "[".repeat(100_000);
        for json in
            ["", "{", "[]", "{}", r#"{"call_count":"28"}"#, r#"{"call_count":-1}"#, r#"{"a":[1,{"b":2}]}"#, &deep]
        {
            assert_eq!(read(json.as_bytes()), None, "{json}");
        }
    }
}
