//! What somebody else wrote into our keys never becomes a grant.

use outgate::testing::{RedisServer, Reply};

use crate::{Desk, Log, NOW, Run, SECOND, must};

const FOUR: [Log<'static>; 1] = [("calls", &[(4, SECOND)])];
const ONE: [Run<'static>; 1] = [(1, None, &[1])];
const GARBAGE: [&str; 5] = ["mine", "", "nan", "inf", "1e"];

fn error(reply: &Reply) -> &str {
    match reply {
        Reply::Error(words) => words,
        other => panic!("{other:?} is no error"),
    }
}

/// A log of so many entries of now, of which one, counted from the newest, is garbage.
fn log_with(desk: &mut Desk<'_>, entries: usize, place: usize, garbage: &str) {
    desk.of("DEL", "log:calls", &[]);
    for entry in (1..=entries).rev() {
        let stamp = if entry == place { garbage.to_owned() } else { (NOW - 1).to_string() };
        desk.of("RPUSH", "log:calls", &[&stamp]);
    }
}

#[test]
fn an_entry_that_is_no_time_is_an_error_wherever_it_is_looked_at() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "entry", Some(NOW));
    let named = format!("GARBAGE {}", desk.key("log:calls"));
    let two: [Log<'_>; 2] = [("calls", &[(4, SECOND)]), ("points", &[(9, SECOND)])];
    for garbage in GARBAGE {
        // The lane and the general way, the newest and the one that the rule looks at.
        for place in [1, 4] {
            log_with(&mut desk, 4, place, garbage);
            for callers in [1, 3] {
                let reply = desk.try_book(&FOUR, &[(callers, None, &[1])]);
                assert!(error(&reply).starts_with(&named), "{garbage:?} at {place}: {reply:?}");
            }
            let reply = desk.try_book(&two, &[(1, None, &[1, 1])]);
            assert!(error(&reply).starts_with(&named), "{garbage:?} at {place} of two: {reply:?}");
            assert_eq!((desk.int("LLEN", "log:calls"), desk.int("EXISTS", "log:points")), (4, 0));
        }
        let reply = desk.run(
            "usage",
            &[desk.key("told"), desk.key("told"), desk.key("clock"), desk.key("log:calls")],
            &terms(&FOUR),
        );
        assert!(error(&reply).starts_with(&named), "{reply:?}");
        desk.of("DEL", "log:calls", &[]);
        assert_eq!(desk.book(&FOUR, &[(4, None, &[1])]), [NOW, 0, 1, 0, 4], "deleted, it works again");
        desk.of("DEL", "log:calls", &[]);
    }
}

fn terms(logs: &[Log<'_>]) -> Vec<String> {
    let terms = logs[0].1.iter().flat_map(|(quota, span)| [quota.to_string(), span.to_string()]);
    [logs[0].1.len().to_string()].into_iter().chain(terms).collect()
}

#[test]
fn a_message_is_not_taken_for_answered_because_its_memory_was_garbage() {
    let server = must(RedisServer::start());
    for supplied in [Some(NOW), None] {
        let mut desk = Desk::new(&server, if supplied.is_some() { "seen" } else { "seen by the server" }, supplied);
        for garbage in ["mine", "", "\u{1}", "7"] {
            desk.of("SET", "seen:1", &[garbage]);
            for _ in 0..3 {
                assert!(error(&desk.try_book(&FOUR, &ONE)).starts_with("ERR"), "{garbage:?}");
                assert_eq!(desk.int("EXISTS", "log:calls"), 0, "{garbage:?}");
                assert_eq!(desk.of("GET", "seen:1", &[]).text(), Some(garbage), "it stays to be seen");
            }
            desk.of("DEL", "seen:1", &[]);
            assert_eq!(desk.book(&FOUR, &ONE)[1..], [0, 1, 0, 1]);
            assert_eq!(desk.int("LLEN", "log:calls"), 1);
            desk.of("DEL", "log:calls", &[]);
        }
    }
}

#[test]
fn a_key_of_another_type_that_would_hide_a_hold_is_an_error() {
    let server = must(RedisServer::start());
    for (told, contended) in [("told", false), ("told_all", false), ("told", true), ("told_all", true)] {
        let home = format!("{told} {contended}");
        let mut desk = Desk::new(&server, &home, Some(NOW));
        if contended {
            desk.sender = 2;
            desk.book(&FOUR, &[(9, None, &[1])]);
            desk.now = Some(NOW + SECOND);
            desk.sender = 1;
        }
        desk.of("RPUSH", told, &["mine"]);
        let before = desk.int("LLEN", "log:calls");
        assert!(error(&desk.try_book(&FOUR, &ONE)).starts_with("WRONGTYPE"), "{home}");
        let two: [Log<'_>; 2] = [("calls", &[(4, SECOND)]), ("points", &[(9, SECOND)])];
        assert!(error(&desk.try_book(&two, &[(1, None, &[1, 1])])).starts_with("WRONGTYPE"), "{home}");
        assert_eq!(desk.int("LLEN", "log:calls"), before);
    }
}

#[test]
fn what_is_booked_is_remembered_though_old_garbage_keeps_a_log_from_being_trimmed() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "trim", Some(NOW));
    for _ in 0..5 {
        desk.of("RPUSH", "log:calls", &["mine"]);
    }
    for _ in 0..70 {
        desk.of("RPUSH", "log:calls", &[&(NOW - 9 * SECOND).to_string()]);
    }
    desk.of("RPUSH", "log:calls", &[&NOW.to_string()]);
    desk.of("LSET", "log:calls", &["38", "mine"]);
    assert!(error(&desk.try_book(&FOUR, &ONE)).starts_with("GARBAGE"), "somebody is told");
    assert_eq!(desk.int("LLEN", "log:calls"), 77);
    assert_eq!(desk.book(&FOUR, &ONE), [NOW, 0, 1, 0, 1], "and the same message has its answer");
    assert_eq!(desk.int("LLEN", "log:calls"), 77, "once");
}

#[test]
fn a_hand_back_that_met_garbage_takes_nothing_out_twice() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "back", Some(NOW));
    let logs: [Log<'_>; 2] = [("calls", &[(9, SECOND)]), ("points", &[(9, SECOND)])];
    desk.book(&logs, &[(3, None, &[1, 1])]);
    desk.of("LSET", "log:points", &["1", "mine"]);
    let reply = desk.try_hand_back(&["calls", "points"], &[(NOW, &[1, 1])]);
    assert!(error(&reply).starts_with("GARBAGE"), "{reply:?}");
    let left = desk.int("LLEN", "log:calls");
    desk.of("LSET", "log:points", &["1", &NOW.to_string()]);
    assert_eq!(desk.hand_back(&["calls", "points"], &[(NOW, &[1, 1])]), [NOW]);
    assert_eq!(desk.int("LLEN", "log:calls"), left, "others have equal stamps");
}

#[test]
fn the_first_key_that_cannot_be_read_is_found_with_its_type() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "inspect", Some(NOW));
    (desk.insist, desk.ahead) = (true, 90_000);
    desk.book(&FOUR, &[(4, None, &[1])]);
    desk.book(&FOUR, &ONE);
    desk.hold(SECOND);
    desk.learn("calls", false, &[4, SECOND, SECOND, 0, SECOND].map(|part| part.to_string()));
    desk.of("SET", "clock", &["-10000000"]);
    let names = ["seen:1", "told", "claim", "asking", "reach", "clock", "log:calls", "seen:1:told"];
    let kinds = ["seen", "told", "claim", "asking", "reach", "clock", "log", "seen"].map(str::to_owned);
    let keys = names.map(|name| desk.key(name));
    // The first argument of the others is the time.
    let inspect = |desk: &mut Desk<'_>| {
        let script = include_str!("../../lua/inspect.lua");
        let words =
            [&["EVAL", script, "8"][..], &keys.each_ref().map(|key| &**key), &kinds.each_ref().map(|kind| &**kind)];
        must(desk.client.command(&words.concat()))
    };
    let found = |place, kind: &str| Reply::Array(vec![Reply::Int(place), Reply::Bulk(kind.into())]);
    for name in names {
        assert_eq!(desk.int("EXISTS", name), 1, "{name}");
    }
    assert_eq!(inspect(&mut desk), found(0, ""), "all is as the scripts wrote it");
    for (place, name) in (1..).zip(names) {
        desk.of("DEL", name, &[]);
        assert_eq!(inspect(&mut desk), found(0, ""), "{name} need not be there");
        desk.of("SADD", name, &["mine"]);
        assert_eq!(inspect(&mut desk), found(place, "set"), "{name}");
        desk.of("SET", name, &["mine"]);
        assert_eq!(inspect(&mut desk), found(place, "string"), "{name}");
        desk.of("DEL", name, &[]);
    }
}
