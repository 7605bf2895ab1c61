use super::*;

#[expect(clippy::needless_pass_by_value, reason = "limits are made where they are tested")]
fn terms(limit: Limit) -> Vec<(u32, i64)> {
    limit.terms("up").unwrap().iter().map(|term| (term.quota, term.span)).collect()
}

#[test]
fn a_limit_is_a_term_of_window_and_guard() {
    assert_eq!(terms(Limit::per_second(100)), [(100, 1_050_000)]);
    assert_eq!(terms(Limit::per_minute(60)), [(60, 61_000_000)], "the guard is at most a second …");
    assert_eq!(terms(Limit::per_hour(5_000)), [(5_000, 3_601_800_000)], "… or a 2,000th of the window");
    assert_eq!(terms(Limit::per_day(9)), [(9, 86_443_200_000)]);
    assert_eq!(terms(Limit::new(10, Duration::from_millis(100))), [(10, 110_000)], "the guard is at least 10 ms");
    assert_eq!(terms(Limit::new(1, Duration::from_millis(50))), [(1, 60_000)]);
    assert_eq!(terms(Limit::new(1, Duration::from_millis(1)).guard(Duration::from_millis(1))), [(1, 2_000)]);
    assert_eq!(terms(Limit::per_second(9).guard(Duration::ZERO)), [(9, 1_000_000)]);
}

#[test]
fn a_cold_call_counts_for_a_quarter_of_the_window_more_within_bounds() {
    let cold = |limit: Limit| limit.terms("up").unwrap().iter().map(|term| term.cold).collect::<Vec<_>>();
    let windows = [100, 1_000, 10_000, 10_001].map(Duration::from_millis);
    assert_eq!(windows.map(|window| cold(Limit::new(9, window))), [[25_000], [250_000], [250_000], [0]]);
    assert_eq!(cold(Limit::per_second(9).burst(2)), [250_000, 0], "a burst is no window of the upstream's");
}

#[test]
fn a_burst_is_a_term_with_its_part_of_the_guard_rounded_up() {
    assert_eq!(terms(Limit::per_second(100).burst(20)), [(100, 1_050_000), (20, 210_000)]);
    assert_eq!(terms(Limit::per_second(9).burst(1)), [(9, 1_050_000), (1, 116_667)]);
    assert_eq!(terms(Limit::per_second(3).burst(1).guard(Duration::ZERO)), [(3, 1_000_000), (1, 333_334)]);
    let longest = Limit::new(1_000_000, MAX_WINDOW).burst(1_000_000);
    assert_eq!(terms(longest.clone())[1], terms(longest)[0], "the largest burst bounds nothing more");
}

#[test]
fn an_impossible_limit_names_upstream_and_field() {
    let cases = [
        (Limit::per_second(0), "limit.quota"),
        (Limit::per_second(1_000_001), "limit.quota"),
        (Limit::per_second(100_000_001).of("tokens"), "limit.quota"),
        (Limit::per_second(1).of("input tokens"), "limit.unit"),
        (Limit::per_second(1).of(""), "limit.unit"),
        (Limit::new(1, Duration::ZERO), "limit.window"),
        (Limit::new(1, Duration::from_micros(999)), "limit.window"),
        (Limit::new(1, MAX_WINDOW + Duration::from_nanos(1)), "limit.window"),
        (Limit::new(1, Duration::MAX), "limit.window"),
        (Limit::per_second(5).burst(0), "limit.burst"),
        (Limit::per_second(5).burst(6), "limit.burst"),
        (Limit::per_second(5).guard(Duration::MAX), "limit.guard"),
        (Limit::per_hour(5).resets(Reset::hourly()).guard(Duration::from_secs(1_800)), "limit.guard"),
        (Limit::new(5, Duration::from_micros(49_999)), "limit.guard"),
    ];
    for (limit, field) in cases {
        let error = limit.terms("stripe").unwrap_err();
        assert_eq!((error.upstream(), error.field()), ("stripe", field), "{limit:?}");
        assert!(error.to_string().contains("stripe") && error.to_string().contains(field), "{error}");
    }
}
