use proptest::option::of as option;
use proptest::prelude::*;

use super::*;
use crate::config::reset::Reset;

fn scope() -> impl Strategy<Value = Scope> {
    let header = "[a-z][a-z0-9-]{0,8}".prop_map(|name| Scope::header(&*name));
    let all = [Scope::host(), Scope::bearer_token(), Scope::upstream()];
    let [query, given] = [Scope::query, Scope::given].map(|scope| "[^ \\s]{1,8}".prop_map(scope));
    prop_oneof![proptest::sample::select(all.to_vec()), header, query, given]
}

fn unit() -> impl Strategy<Value = String> {
    let keyword = || proptest::sample::select([&KEYWORDS[..], &SCOPES[..]].concat());
    let with_digits = (keyword(), "[0-9]{1,3}s?").prop_map(|(keyword, digits)| format!("{keyword}{digits}"));
    prop_oneof![keyword().prop_map(str::to_owned), with_digits, "[a-zA-Z0-9_]{1,32}"]
}

fn limit() -> impl Strategy<Value = Limit> {
    let length = || {
        let odd = (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos));
        let whole = (0..UNITS.len(), 0..100_u32).prop_map(|(unit, count)| {
            let nanos = u64::try_from(UNITS[unit].1).unwrap() * u64::from(count);
            Duration::from_nanos(nanos)
        });
        prop_oneof![whole, odd]
    };
    let how_many = prop_oneof![
        (any::<u32>(), length()).prop_map(|(quota, window)| Limit::new(quota, window)),
        (any::<u32>(), any::<u32>(), length()).prop_map(|(capacity, refill, per)| Limit::bucket(capacity, refill, per)),
        any::<u32>().prop_map(Limit::in_flight),
    ];
    let of_whom = (option(unit()), option(scope()), any::<bool>());
    let shape = (option(any::<u32>()), option(length()), option(length()), any::<bool>());
    (how_many, of_whom, shape).prop_map(|(limit, (unit, scope, at_end), (burst, guard, lease, until_headers))| {
        let limit = if let Some(unit) = unit { limit.of(unit) } else { limit };
        let limit = if let Some(scope) = scope { limit.each(scope) } else { limit };
        let limit = if let Some(burst) = burst { limit.burst(burst) } else { limit };
        let limit = if let Some(guard) = guard { limit.guard(guard) } else { limit };
        let limit = if let Some(lease) = lease { limit.lease(lease) } else { limit };
        let limit = if until_headers { limit.until_headers() } else { limit };
        if at_end { limit.counted_at_end() } else { limit }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_shown_is_read_back(limit in limit()) {
        prop_assert_eq!(limit.to_string().parse(), Ok(limit));
    }

    #[test]
    fn no_text_makes_it_panic(text in ".{0,40}", words in "([0-9_]{0,40}(/|s|ms|burst |guard |day|bucket| at | in flight |each |host|query | )){0,6}") {
        for text in [text, words] {
            if let Ok(limit) = text.parse::<Limit>() {
                prop_assert_eq!(limit.to_string().parse(), Ok(limit));
            }
        }
    }
}

#[test]
fn limits_are_shown_in_the_largest_units() {
    let (second, cases) = (
        Duration::from_secs(1),
        [
            "100/s",
            "100/s burst 20",
            "500/min",
            "5000/h",
            "9/day",
            "40/2s",
            "10/100ms",
            "1/90s",
            "7/2day",
            "3/1500us",
            "1/7ns",
            "1/0s",
            "120/90s guard 250ms",
            "5/s guard 0s",
            "100/s burst 20 guard 1h",
            "200000/min tokens each bearer_token",
            "100/s of burst burst 5",
            "5000/h of 2nd each upstream",
            "bucket 40 at 2/s",
            "bucket 40 at 2/90s points each host guard 100ms",
            "25 in flight",
            "25 in flight each header x-merchant lease 30s until headers",
            "10/s each query key burst 2",
            "10/s each given merchant",
            "9/min tokens counted_at_end",
        ],
    );
    for text in cases {
        assert_eq!(text.parse::<Limit>().unwrap().to_string(), text);
    }
    assert_eq!("10/s spread".parse(), Ok(Limit::per_second(10).spread()));
    assert_eq!("10/s burst 1 of tokens".parse(), Ok(Limit::per_second(10).of("tokens").spread()), "in any order");
    assert_eq!(Limit::new(3, 60 * second).to_string(), "3/min");
    assert_eq!(" 5_000/60s  guard 1s ".parse(), Ok(Limit::per_minute(5_000).guard(second)), "as people write it");
}

#[test]
fn what_cannot_be_read_is_named_with_its_place() {
    let cases = [
        ("", "nothing stands where a limit should be, such as 100/s"),
        ("100", "\"100\", at character 1, is no quota and window"),
        ("/s", "\"\", at character 1, is no whole number"),
        ("ten/s", "\"ten\", at character 1, is no whole number"),
        ("-1/s", "\"-1\", at character 1, is no whole number"),
        ("_/s", "\"_\", at character 1, is no whole number"),
        ("4294967296/s", "\"4294967296\", at character 1, is no whole number"),
        ("1/", "\"\", at character 3, is no length of time"),
        ("1/month", "\"month\", at character 3, is no length of time"),
        ("1/1.5s", "\"1.5s\", at character 3, is no length of time"),
        ("1/99999999999999999999day", "\"99999999999999999999day\", at character 3, is no length of time"),
        ("1/s tokens 2", "\"2\", at character 12, is nothing that may be said of a limit: a unit, burst"),
        ("1/s tokens points", "\"points\", at character 12, is said twice"),
        ("1/s spread burst 2", "\"burst\", at character 12, is said twice"),
        ("1/s of a-b", "\"a-b\", at character 8, is no unit: it must be 1 to 32 letters"),
        ("1/s each", "\"each\", at character 5, is said of nothing"),
        ("1/s each header", "\"header\", at character 10, is said of nothing"),
        ("1/s each header a:b", "\"a:b\", at character 17, is no name of a header"),
        ("1/s each merchant", "\"merchant\", at character 10, is no scope that text can say: host"),
        ("1/s requests", "\"requests\", at character 5, is what is counted where no unit is said: leave it out"),
        (
            "5/day resets midnight",
            "\"resets\", at character 7, is nothing that text can say: when a limit resets is given by .resets()",
        ),
        ("1/s until body", "\"body\", at character 11, is not \"headers\", which should stand here"),
        ("25 at once", "\"at\", at character 4, is not \"in\", which should stand here"),
        ("25 in", "\"25\", at character 1, is no whole limit, such as bucket 40 at 2/s"),
        ("bucket 40", "\"bucket\", at character 1, is no whole limit"),
        ("bucket 40 at 2", "\"bucket\", at character 1, is said of no refill, as in bucket 40 at 2/s"),
        ("1/s burst", "\"burst\", at character 5, is said of nothing"),
        ("1/s burst x", "\"x\", at character 11, is no whole number"),
        ("1/s guard 2", "\"2\", at character 11, is no length of time"),
        ("1/s burst 1 burst 2", "\"burst\", at character 13, is said twice"),
        ("ä ö", "\"ä\", at character 1, is no quota and window"),
        ("1/s ä ö", "\"ä\", at character 5, is nothing that may be said"),
        ("123456789012345678901234567890", "\"123456789012345678901234…\", at character 1, is no quota"),
    ];
    for (text, expected) in cases {
        let error = text.parse::<Limit>().unwrap_err();
        assert_eq!((error.upstream(), error.field()), ("", "limit"));
        assert!(error.reason().starts_with(expected), "{text:?}: {error}");
    }
}

#[test]
fn a_word_that_something_else_is_meant_by_is_no_unit_unless_of_says_so() {
    let cases = [
        ("bearer_token", "each bearer_token"),
        ("host", "each host"),
        ("upstream", "each upstream"),
        ("header", "each header NAME"),
        ("query", "each query NAME"),
        ("given", "each given NAME"),
        ("burst20", "burst 20"),
        ("guard2s", "guard 2s"),
        ("lease30s", "lease 30s"),
        ("spred", "spread"),
        ("Spread", "spread"),
        ("bust", "burst"),
        ("gaurd", "guard"),
        ("eahc", "each"),
        ("eac", "each"),
        ("untill", "until"),
        ("counted_at_ende", "counted_at_end"),
    ];
    for (word, meant) in cases {
        let error = format!("5_000/h tokens {word} 2").parse::<Limit>().unwrap_err();
        let expected =
            format!("{word:?}, at character 16, is no unit: write `{meant}`, or `of {word}` for a unit of that name");
        assert_eq!(error.reason(), expected);
        let (unit, text) = (Limit::per_hour(5).of(word), format!("5/h of {word}"));
        assert_eq!((unit.to_string(), text.parse()), (text, Ok(unit)));
    }
    let error = "5/h each: host".parse::<Limit>().unwrap_err();
    assert_eq!(error.reason(), "\"each:\", at character 5, is no unit: write `each`", "of which no unit can be made");
}

#[test]
fn ordinary_words_are_units() {
    let words = "tokens credits points units calls hosts headers queries bearer_tokens reads writes bytes messages emails \
                 characters images jobs seconds minutes rows items parts costs batches searches events pages releases cases \
                 seats slots tests boards cards leads threads burger guest off be s x leases reach teach presets reset guards";
    for word in words.split_whitespace() {
        let (unit, text) = (Limit::per_hour(5).of(word), format!("5/h {word}"));
        assert_eq!((unit.to_string(), text.parse()), (text, Ok(unit)));
    }
}

#[test]
fn a_calendar_window_is_shown_with_its_reset_and_is_an_error_when_read() {
    let (days, months) = (Limit::per_day(5), Limit::per_month(5));
    let cases = [
        (days.clone().resets(Reset::daily("UTC")), "5/day resets daily (UTC)"),
        (
            days.clone().resets(Reset::daily("America/Los_Angeles").at(8, 5)),
            "5/day resets daily at 8:05 (America/Los_Angeles)",
        ),
        (Limit::per_hour(5).resets(Reset::hourly()), "5/h resets hourly (UTC)"),
        (Limit::per_hour(5).resets(Reset::hourly().at(0, 30)), "5/h resets hourly at minute 30 (UTC)"),
        (Limit::per_week(5).resets(Reset::weekly("UTC", 7).at(23, 0)), "5/week resets weekly on Sunday at 23:00 (UTC)"),
        (months.clone().resets(Reset::monthly("Europe/Berlin", 1)), "5/month resets monthly (Europe/Berlin)"),
        (
            months.of("tokens").resets(Reset::monthly("UTC", 17)).burst(2),
            "5/month tokens resets monthly on day 17 (UTC) burst 2",
        ),
        // No such throttle can be built.
        (Limit::per_hour(5).resets(Reset::daily("UTC")), "5/h resets daily (UTC)"),
        (Limit::per_week(5).resets(Reset::weekly("UTC", 0)), "5/week resets weekly on day 0 (UTC)"),
        (days.each(Scope::host()).resets(Reset::daily("UTC")), "5/day resets daily (UTC) each host"),
    ];
    for (limit, text) in cases {
        assert_eq!(limit.to_string(), text);
        assert!(text.parse::<Limit>().is_err(), "{text:?} would be another limit");
    }
}

#[test]
fn a_scope_that_text_cannot_say_is_shown_by_its_name_and_is_an_error_when_read() {
    let by = |name: &str| Limit::per_second(1).each(Scope::by(|_| None).named(name));
    let cases = [
        (by("merchant"), "1/s each merchant"),
        (by("header x"), "1/s each by header x"),
        (Limit::per_second(1).each(Scope::query("a b")), "1/s each a b"),
        (Limit::per_second(1).each(Scope::host().named("site")), "1/s each site"),
    ];
    for (limit, text) in cases {
        assert_eq!(limit.to_string(), text);
        let error = text.parse::<Limit>().unwrap_err();
        assert!(error.reason().contains("no scope that text can say"), "{text:?}: {error}");
    }
}
