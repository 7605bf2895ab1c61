//! How long keys live, on the server's own clock, and how long logs get.

use outgate::testing::RedisServer;

use crate::{Desk, Log, NOW, SECOND, must};

const HOUR: i64 = 3_600 * SECOND;

/// By so many milliseconds longer than a log counts it is kept, in case that the clock leaps ahead.
const LEAP: i64 = 11_000;

/// For how long entries of a log are kept, in milliseconds: its expiry less its newest entry, and less what is for leaps.
fn retention(desk: &mut Desk<'_>, log: &str) -> i64 {
    desk.int("PEXPIRETIME", log) - desk.newest(log) / 1_000 - LEAP
}

fn granted(reply: &[i64]) -> i64 {
    reply[2..].chunks(3).map(|answer| answer[0] * answer[2]).sum()
}

#[test]
fn a_log_outlasts_its_last_booked_entry_by_a_span() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "booked", None);
    desk.horizon = 30 * SECOND;
    for span in [SECOND, 1_000_001, 7 * SECOND + 999, HOUR] {
        let name = format!("of {span}");
        let logs: [Log<'_>; 1] = [(&name, &[(3, span)])];
        let reply = desk.book(&logs, &[(10, None, &[1])]);
        let key = format!("log:{name}");
        let newest = desk.newest(&key);
        assert_eq!(newest - reply[0], reply[reply.len() - 2], "the last that was granted");
        let spare = (desk.int("PEXPIRETIME", &key) - LEAP) * 1_000 - (newest + span);
        assert!((0..=2_000).contains(&spare), "{spare} µs longer than it counts, span {span}");
    }
}

#[test]
fn each_key_lives_as_long_as_what_it_says() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "lives", None);
    let logs: [Log<'_>; 1] = [("calls", &[(1, 5 * SECOND)])];
    let held = desk.hold(9 * SECOND)[0] + 9 * SECOND;
    desk.hold(SECOND);
    desk.insist = true;
    let reply = desk.book(&logs, &[(1, None, &[1])]);
    let promised = reply[0] + reply[1] + desk.horizon;
    let remembered = reply[0] + 5 * SECOND + desk.horizon;
    let until = [
        ("told", held + LEAP * 1_000),
        ("claim", promised),
        ("asking", promised),
        ("seen:1", remembered),
        ("seen:1:told", held),
    ];
    for (key, until) in until {
        // The server counts the milliseconds from the script's begin, the script from a moment later.
        let beside = desk.int("PEXPIRETIME", key) - until / 1_000;
        assert!((-1..=1).contains(&beside), "{key}: {beside} ms");
    }
    let lasting = desk.int("PEXPIRETIME", "asking");
    desk.sender = 2;
    desk.insist = false;
    desk.horizon = 1;
    desk.of("DEL", "claim", &[]);
    desk.book(&logs, &[(1, None, &[1])]);
    assert_eq!(desk.int("PEXPIRETIME", "asking"), lasting, "a shorter promise does not cut a longer one off");
}

#[test]
fn a_release_with_a_shorter_span_neither_trims_nor_expires_what_another_counts() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "releases", None);
    let patient: [Log<'_>; 1] = [("calls", &[(1_000_000, HOUR)])];
    let hasty: [Log<'_>; 1] = [("calls", &[(5, 1_000)])];
    let kept = HOUR / 1_000 + 1;
    desk.horizon = 10 * SECOND;
    desk.book(&patient, &[(100, None, &[1])]);
    assert_eq!(retention(&mut desk, "log:calls"), kept);
    let mut entries = 100;
    for turn in 0..1_000 {
        let reply = desk.book(if turn % 7 == 3 { &patient } else { &hasty }, &[(2, None, &[1])]);
        assert_eq!(granted(&reply), 2, "turn {turn}");
        entries += 2;
        if turn % 3 == 0 {
            let newest = desk.newest("log:calls");
            desk.hand_back(&["calls"], &[(newest, &[1])]);
            entries -= 1;
        }
        assert_eq!(retention(&mut desk, "log:calls"), kept, "turn {turn}");
        assert_eq!(desk.int("LLEN", "log:calls"), entries, "turn {turn}");
    }
    assert!(entries > 5 + 64, "the hasty release had reason to trim");
}

#[test]
fn a_longer_span_lengthens_what_a_shorter_one_began() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "longer", None);
    desk.book(&[("calls", &[(5, SECOND)])], &[(1, None, &[1])]);
    assert_eq!(retention(&mut desk, "log:calls"), 1_001);
    desk.book(&[("calls", &[(5, HOUR)])], &[(1, None, &[1])]);
    assert_eq!(retention(&mut desk, "log:calls"), 3_600_001);
    desk.book(&[("calls", &[(5, SECOND)])], &[(1, None, &[1])]);
    assert_eq!(retention(&mut desk, "log:calls"), 3_600_001);
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
    assert_eq!(longest, 65, "5 that count and 60 of the slack: at 70 it is cut to what counts");

    let mut desk = Desk::new(&server, "to the microsecond", Some(NOW));
    for turn in 0..13 {
        desk.now = Some(NOW + turn * 1_000);
        desk.book(&logs, &[(5, None, &[1])]);
    }
    desk.now = Some(NOW + 12_999);
    assert_eq!(granted(&desk.book(&logs, &[(5, None, &[1])])), 5, "booked a microsecond ahead");
    assert_eq!(desk.int("LLEN", "log:calls"), 10, "what counts for a microsecond more is kept, and no more than that");

    let mut desk = Desk::new(&server, "trim in earnest", None);
    desk.horizon = 0;
    let mut entered = 0;
    while entered < 300 {
        entered += granted(&desk.book(&logs, &[(1, None, &[1])]));
        let length = desk.int("LLEN", "log:calls");
        assert!(length <= 5 + 64, "{length}");
    }
}
