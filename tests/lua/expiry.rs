//! How long keys live, on the server's own clock, and how long logs get.

use outgate::testing::{RedisServer, Reply};

use crate::{Desk, Log, NOW, SECOND, must};

const HOUR: i64 = 3_600 * SECOND;

/// By so many milliseconds longer than it counts a key is kept, in case that the clock leaps ahead.
const LEAP: i64 = 11_000;

/// For how long entries of a log are kept, in milliseconds, by the end of its expiry: so many halves of doublings of 8 ms.
fn kept(desk: &mut Desk<'_>, log: &str) -> i64 {
    let expiry = desk.int("PEXPIRETIME", log);
    let (seconds, halves) = (expiry / 1_000, expiry % 1_000 / 15);
    assert_eq!(expiry % 1_000 % 15, (seconds + halves) % 15, "it makes sense");
    kept_for(halves)
}

#[expect(clippy::cast_possible_truncation, reason = "no more than a double holds exactly")]
fn kept_for(halves: i64) -> i64 {
    (8.0 * (f64::from(must(i32::try_from(halves))) / 2.0).exp2()).floor() as i64
}

/// The same where it is kept for so many milliseconds: less than half more.
fn coded(millis: i64) -> i64 {
    (0..=65).map(kept_for).find(|&kept| kept >= millis).unwrap_or_default()
}

/// What a log's expiry is later than its entries count, in microseconds, where it must be: no more than its code and two halves of a second.
fn assert_spare(spare: i64, span: i64) {
    assert!((0..=3 * SECOND + span / 2).contains(&spare), "{spare} µs longer than it counts, span {span}");
}

/// A key lives until the end of the millisecond of then, in log time.
fn lives(desk: &mut Desk<'_>, key: &str, until: i64) {
    assert_eq!(desk.int("PEXPIRETIME", key), (until + 999) / 1_000, "{} {key}", desk.upstream);
}

/// The end of the second in which an answer is forgotten, for what counts so long and what lies ahead from `now` on.
const fn forgotten(now: i64, counts: i64) -> i64 {
    ((now + counts + LEAP * 1_000) / SECOND + 1) * SECOND
}

pub(crate) fn granted(answer: &[i64]) -> i64 {
    answer[2..].chunks(3).filter(|answer| answer[0] == 1).map(|answer| answer[2]).sum()
}

#[test]
fn a_log_outlasts_its_last_booked_entry_by_a_span_and_little_more() {
    let server = must(RedisServer::start());
    for looks_first in [true, false] {
        let mut desk = Desk::new(&server, if looks_first { "one" } else { "other" }, None);
        (desk.horizon, desk.looks_first) = (30 * SECOND, looks_first);
        for span in [SECOND, 1_000_001, 7 * SECOND + 999, HOUR] {
            let name = format!("of-{span}");
            let logs: [Log<'_>; 1] = [(&name, &[(3, span)])];
            for callers in [1, 9] {
                let answer = desk.book(&logs, &[(callers, None, &[1])]);
                let key = format!("log:{name}");
                let newest = desk.newest(&key);
                assert_eq!(newest - answer[0], answer[answer.len() - 2], "the last that was granted");
                let spare = (desk.int("PEXPIRETIME", &key) - LEAP) * 1_000 - (newest + span);
                assert_spare(spare, span);
            }
        }
    }
}

#[test]
fn a_log_that_is_used_within_a_second_has_its_expiry_set_once() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "set", None);
    let logs: [Log<'_>; 1] = [("calls", &[(100, SECOND)])];
    let mut expiries: Vec<(i64, i64)> = Vec::new();
    while expiries.len() < 50 {
        desk.book(&logs, &[(1, None, &[1])]);
        expiries.push((desk.newest("log:calls") / SECOND, desk.int("PEXPIRETIME", "log:calls")));
    }
    expiries.dedup();
    assert!(expiries.windows(2).all(|two| two[0].0 < two[1].0), "{expiries:?}");
}

#[test]
fn what_one_process_books_within_a_second_lives_as_long_as_it_counts() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "own", None);
    let span = 7 * SECOND + 999;
    let logs: [Log<'_>; 1] = [("calls", &[(1_000, span)])];
    for number in 0..80 {
        // Now and then an answer is to be kept for longer than the last.
        (desk.looks_first, desk.horizon) = (number % 4 > 0, number / 10 * SECOND);
        let now = desk.book(&logs, &[(1, None, &[1])])[0];
        (desk.own, desk.previous) = (now, desk.number - 1);
        assert_eq!(desk.newest("log:calls"), now);
        let spare = (desk.int("PEXPIRETIME", "log:calls") - LEAP) * 1_000 - (now + span);
        assert_spare(spare, span);
        let until = forgotten(now, span + desk.horizon);
        lives(&mut desk, "replay:1:asks", until);
    }
}

/// As on a server that took over, whose clock is behind by an hour and a third of a second: keys expire on its own clock.
#[test]
fn what_is_booked_by_a_corrected_clock_lives_as_long_as_it_counts() {
    let server = must(RedisServer::start());
    let span = 7 * SECOND + 999;
    let logs: [Log<'_>; 1] = [("calls", &[(1_000, span)])];
    for looks_first in [true, false] {
        let mut desk = Desk::new(&server, if looks_first { "one" } else { "other" }, None);
        let began = desk.book(&logs, &[])[0];
        desk.known = began + HOUR + SECOND / 3;
        desk.book(&logs, &[]);
        // Six parts of the state are empty, and then comes the correction, as an unsigned integer.
        let Reply::Bulk(state) = must(server.command(&["GET", &desk.key("state")])) else { panic!("no state") };
        assert_eq!(state[6], 0xce);
        let correction = i64::from(u32::from_be_bytes(must(state[7..11].try_into())));
        assert!(correction > HOUR && correction <= desk.known - began);
        desk.looks_first = looks_first;
        for _ in 0..40 {
            let now = desk.book(&logs, &[(1, None, &[1])])[0];
            (desk.own, desk.previous) = (now, desk.number - 1);
            assert_eq!(desk.newest("log:calls"), now);
            let spare = (desk.int("PEXPIRETIME", "log:calls") - LEAP) * 1_000 - (now - correction + span);
            assert_spare(spare, span);
            let until = forgotten(now - correction, span + desk.horizon);
            lives(&mut desk, "replay:1:asks", until);
        }
    }
}

#[test]
fn each_key_lives_as_long_as_what_it_says() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "lives", None);
    let logs: [Log<'_>; 1] = [("calls", &[(1, 5 * SECOND)])];
    let now = desk.book(&logs, &[(1, None, &[1])])[0];
    lives(&mut desk, "replay:1:asks", forgotten(now, 5_250_000));
    let now = desk.book(&logs, &[(1, None, &[1])])[0];
    let period = 5_500_000;
    lives(&mut desk, "state", now + 2 * period + LEAP * 1_000);
    assert_eq!(desk.said.counted, [now + period], "it is counted until the end of the next period");

    desk.upstream = "paused";
    let paused = desk.pause(None, 9 * SECOND)[0] + 9 * SECOND;
    lives(&mut desk, "replay:1:!", forgotten(paused, 0));
    lives(&mut desk, "state", paused + LEAP * 1_000);
    desk.pause(None, SECOND);
    lives(&mut desk, "state", paused + LEAP * 1_000);

    desk.upstream = "claimed";
    (desk.horizon, desk.insist) = (40 * SECOND, true);
    let logs: [Log<'_>; 1] = [("calls", &[(9, 200 * SECOND)])];
    desk.book(&logs, &[(9, None, &[1])]);
    let answer = desk.book(&logs, &[(1, None, &[9])]);
    let silent_at_most = 30 * SECOND;
    lives(&mut desk, "state", answer[0] + 2 * (silent_at_most + 80 * SECOND) + LEAP * 1_000);

    desk.upstream = "reported";
    let now = desk.report("calls", &[9, 60 * SECOND, 60 * SECOND, 3, 60 * SECOND])[0];
    lives(&mut desk, "state", now + 2 * 60 * SECOND + LEAP * 1_000);
    lives(&mut desk, "replay:1:!", forgotten(now, 60 * SECOND));
    let now = desk.report("5f/calls", &[9, 8 * SECOND, 8 * SECOND, 3, SECOND])[0];
    lives(&mut desk, "5f/state", now + SECOND + 8 * SECOND + LEAP * 1_000);
    assert!(desk.int("PTTL", "replay:1:!") > 50_000, "not for less long than the message before");

    desk.upstream = "corrected";
    desk.known = now + HOUR;
    desk.book(&logs, &[]);
    let hours = desk.int("PTTL", "state") / 1_000 / 3_600;
    assert!((32 * 24 - 1..=32 * 24).contains(&hours), "longer than any log: {hours} h");
}

#[test]
fn a_state_of_which_nothing_matters_any_more_is_deleted() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "left", None);
    let logs: [Log<'_>; 1] = [("calls", &[(4, 9 * SECOND)])];
    let start = desk.book(&logs, &[(4, None, &[1])])[0];
    assert_eq!(desk.int("EXISTS", "state"), 0, "nobody has waited");
    desk.book(&logs, &[(1, None, &[1])]);
    desk.book(&logs, &[]);
    lives(&mut desk, "state", start + 9 * SECOND + LEAP * 1_000); // the log must be there
    desk.hand_back(&logs, &[(start, &[4])]);
    assert_eq!(desk.int("EXISTS", "state"), 0, "it waits no more");

    desk.upstream = "long";
    let logs: [Log<'_>; 1] = [("calls", &[(4, 60 * SECOND)])];
    let now = desk.book(&logs, &[(1, None, &[1])])[0];
    lives(&mut desk, "state", now + 60 * SECOND + LEAP * 1_000);
    desk.hand_back(&logs, &[(now, &[1])]);
    assert_eq!(desk.int("EXISTS", "state"), 0, "nothing must be in its log any more");
}

#[test]
fn a_release_with_a_shorter_span_neither_trims_nor_expires_what_another_counts() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "releases", None);
    let patient: [Log<'_>; 1] = [("calls", &[(1_000_000, HOUR)])];
    let hasty: [Log<'_>; 1] = [("calls", &[(5, 1_000)])];
    desk.horizon = 10 * SECOND;
    desk.book(&patient, &[(100, None, &[1])]);
    assert_eq!(kept(&mut desk, "log:calls"), coded(HOUR / 1_000));
    let mut entries = 100;
    for turn in 0..1_000 {
        desk.looks_first = turn % 2 == 0;
        let answer = desk.book(if turn % 7 == 3 { &patient } else { &hasty }, &[(2, None, &[1])]);
        assert_eq!(granted(&answer), 2, "turn {turn}");
        entries += 2;
        if turn % 3 == 0 {
            let newest = desk.newest("log:calls");
            desk.hand_back(&hasty, &[(newest, &[1])]);
            entries -= 1;
        }
        assert_eq!(kept(&mut desk, "log:calls"), coded(HOUR / 1_000), "turn {turn}");
        assert_eq!(desk.int("LLEN", "log:calls"), entries, "turn {turn}");
    }
    assert!(entries > 3 * 5 + 64, "the hasty release had reason to trim");
}

/// Log time does not follow a clock that is set back, nor one that leaps ahead of all that who asks can know: expiries do.
#[test]
fn what_another_counts_is_kept_for_as_long_whichever_way_the_clock_is_set() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "set", None);
    let hasty: [Log<'_>; 1] = [("calls", &[(5, 1_000)])];
    let patient: [Log<'_>; 1] = [("calls", &[(1_000_000, 8 * SECOND)])];
    for (name, looks_first, ahead) in
        [("one", true, HOUR), ("two", false, HOUR), ("three", true, -5 * SECOND), ("four", false, -5 * SECOND)]
    {
        desk.upstream = name;
        (desk.known, desk.latest, desk.looks_first, desk.horizon) = (0, 0, looks_first, 0);
        let now = desk.book(&patient, &[(100, None, &[1])])[0];
        *(if ahead > 0 { &mut desk.known } else { &mut desk.latest }) = now + ahead;
        for count in 101..200 {
            desk.horizon = if ahead > 0 { 0 } else { 9 * SECOND };
            desk.book(&hasty, &[(1, None, &[1])]);
            assert_eq!(kept(&mut desk, "log:calls"), coded(8_000), "{name} {count}");
        }
    }
}

#[test]
fn what_another_counts_is_kept_when_a_leap_of_most_of_it_is_taken_back() {
    let server = must(RedisServer::start());
    for looks_first in [true, false] {
        let mut desk = Desk::new(&server, if looks_first { "one" } else { "other" }, None);
        // Booked before the leap, by whoever counts it for an hour.
        let before = desk.book(&[("calls", &[(5, SECOND)])], &[])[0] - 3_000 * SECOND;
        desk.of("RPUSH", "log:calls", &[&before.to_string()]);
        let halves = must((0..=65).find(|&halves| kept_for(halves) >= HOUR / 1_000).ok_or("none"));
        let seconds = before / SECOND + 1 + (LEAP + kept_for(halves) + 999) / 1_000;
        let expiry = 1_000 * seconds + 15 * halves + (seconds + halves) % 15;
        desk.of("PEXPIREAT", "log:calls", &[&expiry.to_string()]);
        (desk.latest, desk.looks_first) = (before + SECOND, looks_first);
        assert_eq!(granted(&desk.book(&[("calls", &[(5, 1_000)])], &[(1, None, &[1])])), 1);
        assert_eq!(kept(&mut desk, "log:calls"), coded(HOUR / 1_000));
    }
}

/// A key that goes to another node of a Cluster expires after as long as before, by the clock there.
#[test]
fn a_log_whose_expiry_was_moved_is_kept_for_as_long_and_no_longer() {
    let server = must(RedisServer::start());
    let patient: [Log<'_>; 1] = [("calls", &[(1_000_000, 60 * SECOND)])];
    let hasty: [Log<'_>; 1] = [("calls", &[(5, SECOND)])];
    for (n, (logs, other)) in [(&patient, &patient), (&patient, &hasty), (&hasty, &hasty)].into_iter().enumerate() {
        for shift in [-390, -200, -65, -48, -32, -17, -16, -15, -3, 3, 15, 16, 30, 32, 48, 289, 3_000, 40, 91, 200, 500]
        {
            for looks_first in [true, false] {
                let name = format!("moved {n} {shift} {looks_first}");
                let mut desk = Desk::new(&server, &name, None);
                desk.looks_first = looks_first;
                let start = desk.book(logs, &[(2, None, &[1])])[0];
                let moved = desk.int("PEXPIRETIME", "log:calls") + shift;
                desk.of("PEXPIREAT", "log:calls", &[&moved.to_string()]);
                desk.hand_back(other, &[(start, &[1])]);
                desk.horizon = 20 * SECOND;
                let answer = desk.book(other, &[(1, None, &[1])]);
                assert_eq!(granted(&answer), 1);
                let (least, kept) = (logs[0].1[0].1 / 1_000, kept(&mut desk, "log:calls"));
                let what = format!("{n} moved by {shift} ms is kept for {kept}, and counts for {least}");
                // One of fifteen makes sense by chance.
                let most = if shift % 16 == 0 { 8 * least } else { 2 * least } + 18_000;
                assert!(kept >= coded(least) && kept <= most, "{what}");
                assert!(desk.int("PTTL", "log:calls") > least, "{what}");
            }
        }
    }
}

#[test]
fn whoever_writes_it_again_an_expiry_says_the_same() {
    let server = must(RedisServer::start());
    for (n, span) in [1_050, 5_000, 10_500, 61_000, 3_660_000, 86_400_000].into_iter().enumerate() {
        let name = format!("again {n}");
        let mut desk = Desk::new(&server, &name, None);
        let logs: [Log<'_>; 1] = [("calls", &[(1_000, span * 1_000)])];
        let hasty: [Log<'_>; 1] = [("calls", &[(1_000, 1_000)])];
        for turn in 0..4 {
            desk.looks_first = turn % 2 == 0;
            let start = desk.book(if turn == 2 { &hasty } else { &logs }, &[(2, None, &[1])])[0];
            desk.hand_back(&logs, &[(start, &[1])]);
            assert_eq!(kept(&mut desk, "log:calls"), coded(span), "{span} ms, turn {turn}");
        }
    }
}

#[test]
fn a_slot_that_is_handed_back_a_second_after_the_one_before_it_keeps_the_log_no_longer() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "returned", None);
    let logs: [Log<'_>; 1] = [("calls", &[(3, SECOND)])];
    let first = desk.book(&logs, &[(1, None, &[1])])[0];
    let mut apart = 0;
    while apart < 3 {
        let start = desk.book(&logs, &[(1, None, &[1])])[0];
        desk.hand_back(&logs, &[(start, &[1])]);
        assert_eq!((desk.newest("log:calls"), desk.int("LLEN", "log:calls")), (first, 1));
        assert_eq!(kept(&mut desk, "log:calls"), coded(1_000), "{apart}");
        apart += i64::from(start / SECOND != first / SECOND);
    }
}

#[test]
fn a_longer_span_lengthens_what_a_shorter_one_began() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "longer", None);
    for (span, expected) in [(SECOND, 1_000), (HOUR, 3_600_000), (SECOND, 3_600_000)] {
        desk.book(&[("calls", &[(5, span)])], &[(1, None, &[1])]);
        assert_eq!(kept(&mut desk, "log:calls"), coded(expected));
    }
}

#[test]
fn a_debt_keeps_an_idle_log_for_as_long_as_it_counts() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "owed", None);
    let logs: [Log<'_>; 2] = [("calls", &[(5, 60 * SECOND)]), ("5f/points", &[(5, HOUR), (9, SECOND)])];
    for _ in 0..2 {
        desk.debts = vec![2, 3];
        desk.book(&logs, &[]);
        assert_eq!(
            (kept(&mut desk, "log:calls"), kept(&mut desk, "5f/log:points")),
            (coded(60_000), coded(HOUR / 1_000))
        );
    }
    assert_eq!((desk.int("LLEN", "log:calls"), desk.int("LLEN", "5f/log:points")), (4, 6));
    // About to expire.
    desk.of("PEXPIRE", "log:calls", &["900"]);
    let newest = desk.newest("log:calls");
    while desk.newest("log:calls") / SECOND == newest / SECOND {
        desk.debts = vec![1, 0];
        desk.book(&logs, &[]);
    }
    assert!(desk.int("PTTL", "log:calls") > 900 + 11_000, "it counts from now on");
    assert_eq!(desk.int("LLEN", "5f/log:points"), 6, "a debt of nothing is none");
}

#[test]
fn a_log_of_debts_is_trimmed_like_any_other() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "trim debts", Some(NOW));
    let logs: [Log<'_>; 1] = [("calls", &[(5, 1_000)])];
    for turn in 0..500 {
        desk.now = Some(NOW + turn * 1_000);
        desk.debts = vec![4];
        desk.book(&logs, &[]);
        assert!(desk.int("LLEN", "log:calls") <= 3 * 5 + 64, "turn {turn}");
    }
}

#[test]
fn a_log_stays_short_however_long_it_is_used() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "trim", Some(NOW));
    let logs: [Log<'_>; 1] = [("calls", &[(5, 1_000)])];
    let mut longest = 0;
    for turn in 0..500 {
        desk.now = Some(NOW + turn * 1_000);
        desk.book(&logs, &[(5, None, &[1])]);
        longest = longest.max(desk.int("LLEN", "log:calls"));
    }
    assert_eq!(
        longest, 75,
        "15, as what is kept for longer counts as well, and 60 of the slack: at 80 it is cut to what may count"
    );

    let mut desk = Desk::new(&server, "to the microsecond", Some(NOW));
    for turn in 0..15 {
        desk.now = Some(NOW + turn * 1_000);
        desk.book(&logs, &[(5, None, &[1])]);
    }
    desk.now = Some(NOW + 14_999);
    assert_eq!(granted(&desk.book(&logs, &[(5, None, &[1])])), 5, "booked a microsecond ahead");
    let kept = "what counts as of an entry with a quota behind it is kept, and no more than that";
    assert_eq!(desk.int("LLEN", "log:calls"), 10, "{kept}");

    let mut desk = Desk::new(&server, "trim in earnest", None);
    desk.horizon = 0;
    let (mut entered, mut longest) = (0, 0);
    while entered < 300 {
        entered += granted(&desk.book(&logs, &[(1, None, &[1])]));
        longest = longest.max(desk.int("LLEN", "log:calls"));
    }
    assert!(longest <= 3 * 5 + 64, "{longest}");
}

#[test]
fn what_is_left_of_a_busy_log_that_is_trimmed_is_well_below_what_is_trimmed_again() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "busy", None);
    desk.horizon = 0;
    let logs: [Log<'_>; 1] = [("calls", &[(400, 50_000)])];
    let (mut entered, mut bookings) = (0, 0);
    while entered < 8_000 {
        bookings += 1;
        entered += granted(&desk.book(&logs, &[(40, None, &[1])]));
    }
    let Reply::Bulk(stats) = must(server.command(&["INFO", "commandstats"])) else { panic!("no statistics") };
    let stats = String::from_utf8_lossy(&stats);
    let trims = stats.split("cmdstat_ltrim:calls=").nth(1).and_then(|rest| rest.split(',').next());
    let trims: i64 = trims.map_or(0, |calls| must(calls.parse()));
    assert!((1..=entered / 200).contains(&trims), "{trims} times, of {bookings}");
}
