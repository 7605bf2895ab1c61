//! What somebody else wrote into our keys never becomes a grant.

use outgate::testing::{RedisServer, Reply};

use crate::{Desk, Log, NOW, Run, SECOND, file, must};

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
        // The first look and the rest of the script, the newest and the one that the rule looks at.
        for (place, looks_first) in [(1, true), (4, true), (1, false), (4, false)] {
            desk.looks_first = looks_first;
            log_with(&mut desk, 4, place, garbage);
            for callers in [1, 3] {
                let reply = desk.try_book(&FOUR, &[(callers, None, &[1])]);
                assert!(error(&reply).starts_with(&named), "{garbage:?} at {place}: {reply:?}");
            }
            let reply = desk.try_book(&two, &[(1, None, &[1, 1])]);
            assert!(error(&reply).starts_with(&named), "{garbage:?} at {place} of two: {reply:?}");
            assert_eq!((desk.int("LLEN", "log:calls"), desk.int("EXISTS", "log:points")), (4, 0));
        }
        let reply = desk.try_usage(&FOUR);
        assert!(error(&reply).starts_with(&named), "{reply:?}");
        desk.of("DEL", "log:calls", &[]);
        assert_eq!(desk.book(&FOUR, &[(4, None, &[1])]), [NOW, 0, 1, 0, 4], "deleted, it works again");
        desk.of("DEL", "log:calls", &[]);
    }
}

#[test]
fn a_log_that_makes_no_sense_is_forgotten_like_any_other() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "forgotten", Some(NOW));
    for garbage in GARBAGE.into_iter().chain(["1e300", "99999999999999999999"]) {
        log_with(&mut desk, 4, 1, garbage);
        desk.reset("calls");
        assert_eq!(desk.book(&FOUR, &[(4, None, &[1])]), [NOW, 0, 1, 0, 4], "{garbage:?}");
        desk.of("DEL", "log:calls", &[]);
        desk.of("SET", "log:calls", &[garbage]);
        desk.reset("calls");
        assert_eq!(desk.book(&FOUR, &[(4, None, &[1])]), [NOW, 0, 1, 0, 4], "{garbage:?} is no list");
    }
}

#[test]
fn a_message_is_not_taken_for_answered_because_its_memory_was_garbage() {
    let server = must(RedisServer::start());
    for supplied in [Some(NOW), None] {
        let mut desk = Desk::new(&server, if supplied.is_some() { "replay" } else { "replay by the server" }, supplied);
        for garbage in ["mine", "", "\u{1}", "7"] {
            desk.of("SET", "replay:1:asks", &[garbage]);
            for _ in 0..3 {
                assert!(error(&desk.try_book(&FOUR, &ONE)).starts_with("ERR"), "{garbage:?}");
                assert_eq!(desk.int("EXISTS", "log:calls"), 0, "{garbage:?}");
                assert_eq!(desk.of("GET", "replay:1:asks", &[]).text(), Some(garbage), "it stays to be seen");
            }
            desk.of("DEL", "replay:1:asks", &[]);
            assert_eq!(desk.book(&FOUR, &ONE)[1..], [0, 1, 0, 1]);
            assert_eq!(desk.int("LLEN", "log:calls"), 1);
            desk.of("DEL", "log:calls", &[]);
        }
    }
}

#[test]
fn a_state_that_cannot_be_read_hides_no_pause() {
    let server = must(RedisServer::start());
    let two: [Log<'_>; 2] = [("calls", &[(4, SECOND)]), ("5f/points", &[(9, SECOND)])];
    for (key, looks_first) in [("state", true), ("5f/state", true), ("state", false), ("5f/state", false)] {
        let upstream = format!("{key} {looks_first}");
        let mut desk = Desk::new(&server, &upstream, Some(NOW));
        desk.looks_first = looks_first;
        desk.of("RPUSH", key, &["mine"]);
        let ask = |desk: &mut Desk<'_>| desk.try_book(&two, &[(1, None, &[1, 1])]);
        assert!(error(&ask(&mut desk)).starts_with("WRONGTYPE"), "{upstream}");
        desk.of("DEL", key, &[]);
        for garbage in ["", "mine", "7", "\u{1}", "\n"] {
            desk.of("SET", key, &[garbage]);
            let named = format!("GARBAGE {}", desk.key(key));
            let told = [ask(&mut desk), desk.try_usage(&two), desk.try_pause(Some("5f"), 5)];
            assert!(told.iter().all(|reply| error(reply).starts_with(&named)), "{garbage:?}: {told:?}");
            assert!(
                error(&desk.try_report("5f/points", &[9, SECOND, SECOND, 0, SECOND])).starts_with(&named),
                "{garbage:?}"
            );
            assert_eq!(desk.of("GET", key, &[]).text(), Some(garbage), "it stays to be seen");
        }
        assert_eq!((desk.int("EXISTS", "log:calls"), desk.int("EXISTS", "5f/log:points")), (0, 0));
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
    let reply = desk.try_ask(&logs, &[(NOW, &[1, 1])], &[]);
    assert!(error(&reply).starts_with("GARBAGE"), "{reply:?}");
    let left = desk.int("LLEN", "log:calls");
    desk.of("LSET", "log:points", &["1", &NOW.to_string()]);
    assert_eq!(desk.hand_back(&logs, &[(NOW, &[1, 1])]), NOW);
    assert_eq!(desk.int("LLEN", "log:calls"), left, "others have equal stamps");
}

#[test]
fn whoever_asked_beside_a_hand_back_that_met_garbage_holds_no_slot() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "beside", Some(NOW));
    desk.book(&FOUR, &[(4, None, &[1])]);
    desk.of("LSET", "log:calls", &["2", "mine"]);
    let reply = desk.try_ask(&FOUR, &[(NOW, &[1])], &[(3, None, &[1])]);
    assert!(error(&reply).starts_with("GARBAGE"), "{reply:?}");
    assert_eq!(desk.ask(&FOUR, &[(NOW, &[1])], &[(3, None, &[1])]), [NOW, 0], "nothing is booked for any of them");
    assert!(desk.said.remembered && desk.said.counted == [0]);
}

#[test]
fn a_debt_beside_a_hand_back_that_met_garbage_is_entered_once() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "owed", Some(NOW));
    let logs: [Log<'_>; 2] = [("calls", &[(9, SECOND)]), ("points", &[(9, SECOND)])];
    desk.book(&logs, &[(3, None, &[1, 1])]);
    let mut try_it = |place: &str, entry: &str| {
        desk.of("LSET", "log:points", &[place, entry]);
        desk.debts = vec![2, 4];
        let reply = desk.try_ask(&logs, &[(NOW, &[1, 1])], &[(1, None, &[1, 1])]);
        (reply, desk.int("LLEN", "log:calls"), desk.int("LLEN", "log:points"))
    };
    let (reply, calls, points) = try_it("-1", "mine");
    assert!(error(&reply).starts_with("GARBAGE"), "{reply:?}");
    assert_eq!((calls, points), (3, 3), "at the tail nothing has happened yet");
    let (reply, calls, points) = try_it("-1", &NOW.to_string());
    assert!(matches!(reply, Reply::Bulk(_)), "so that the message acts when it comes again: {reply:?}");
    assert_eq!((calls, points), (3 - 1 + 2 + 1, 3 - 1 + 4 + 1));

    desk.number += 1;
    let mut try_it = |place: &str, entry: &str| {
        desk.of("LSET", "log:points", &[place, entry]);
        desk.debts = vec![2, 1];
        let reply = desk.try_ask(&logs, &[(NOW, &[1, 1])], &[(1, None, &[1, 1])]);
        (reply, desk.int("LLEN", "log:calls"), desk.int("LLEN", "log:points"))
    };
    let (reply, calls, points) = try_it("3", "mine");
    assert!(error(&reply).starts_with("GARBAGE"), "{reply:?}");
    assert_eq!((calls, points), (5 - 1 + 2, 7 + 1), "the debts are entered although not all was taken out");
    let (_, calls, points) = try_it("3", &NOW.to_string());
    assert_eq!((calls, points), (6, 8), "and only once");
}

#[test]
fn a_debt_beside_an_ask_that_met_garbage_is_entered_once() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "owed and asked", Some(NOW));
    // Behind the debt it is where the rule looks.
    log_with(&mut desk, 4, 3, "mine");
    let replies: Vec<Reply> = (0..3)
        .map(|_| {
            desk.debts = vec![1];
            let reply = desk.try_book(&FOUR, &ONE);
            assert_eq!(desk.int("LLEN", "log:calls"), 5, "{reply:?}");
            reply
        })
        .collect();
    assert!(error(&replies[0]).starts_with("GARBAGE"), "{replies:?}");
    assert!(matches!(replies[1..], [Reply::Bulk(_), Reply::Bulk(_)]), "remembered as granted nothing: {replies:?}");
}

#[test]
fn the_first_key_that_cannot_be_read_is_found_with_its_type() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "inspect", Some(NOW));
    let logs: [Log<'_>; 2] = [("calls", &[(4, SECOND)]), ("5f/points", &[(9, SECOND)])];
    (desk.insist, desk.ahead) = (true, 90_000);
    desk.book(&logs, &[(4, None, &[1, 1])]);
    desk.book(&logs, &[(1, None, &[1, 1])]);
    desk.pause(Some("5f"), SECOND);
    desk.report("5f/points", &[9, SECOND, SECOND, 0, SECOND]);
    desk.report("calls", &[9, SECOND, SECOND, 0, SECOND]);
    let names = ["replay:1:asks", "state", "5f/state", "log:calls", "5f/log:points", "replay:1:!"];
    let kinds = ["replay", "state", "state", "log", "log", "replay"];
    let keys = names.map(|name| desk.key(name));
    let inspect = |desk: &mut Desk<'_>| {
        let words = [&["EVAL", file("inspect"), "6"][..], &keys.each_ref().map(|key| &**key), &kinds];
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

/// The first look reads such a state without unpacking all of it.
#[test]
fn a_state_that_only_begins_like_one_of_ours_is_an_error() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "cut", Some(NOW));
    let key = desk.key("state");
    let (thirteen, waiting) = (r"\159\144\194\194\144\144\0\194\194\194\144\144\194\194", "string.rep('\\0', 72)");
    let life = "struct.pack('<dddHc0', 1, 2, 3, 14, 'some:log:calls')";
    let whole = [
        format!("'{thirteen}\\194\\217\\40' .. {life}"),
        format!("'{thirteen}\\217\\72' .. {waiting} .. '\\194'"),
        format!("'{thirteen}\\217\\72' .. {waiting} .. '\\217\\40' .. {life}"),
    ];
    let cut = [
        format!("'{thirteen}'"),
        format!("'{thirteen}\\194'"),
        format!("'{thirteen}\\194\\217'"),
        format!("'{thirteen}\\194\\217\\41' .. {life}"),
        format!("'{thirteen}\\194\\217\\39' .. string.sub({life}, 1, 39)"),
        format!("'{thirteen}\\217'"),
        format!("'{thirteen}\\217\\72' .. {waiting}"),
        format!("'{thirteen}\\217\\71' .. {waiting} .. '\\194'"),
        format!("'{thirteen}\\217\\72' .. {waiting} .. '\\217\\41' .. {life}"),
    ];
    let many: [Log<'_>; 1] = [("calls", &[(40, SECOND)])];
    let ask = |desk: &mut Desk<'_>, state: &str| {
        must(desk.client.command(&["EVAL", &format!("redis.call('SET', KEYS[1], {state})"), "1", &key]));
        desk.number += 1;
        desk.try_book(&many, &ONE)
    };
    for state in whole {
        assert!(matches!(ask(&mut desk, &state), Reply::Int(_) | Reply::Bulk(_)), "{state}");
    }
    for state in cut {
        let reply = ask(&mut desk, &state);
        assert!(matches!(&reply, Reply::Error(_)), "{state}: {reply:?}");
        let found = must(desk.client.command(&["EVAL", file("inspect"), "1", &key, "state"]));
        assert!(matches!(&found, Reply::Array(parts) if parts[0].int() == Some(1)), "{state}: {found:?}");
    }
}

#[test]
fn a_state_is_inspected_to_its_last_part() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "parts", Some(NOW));
    let key = desk.key("state");
    let good = "{ { { 'whose', 1, 2, { log = 3 }, 2, 1 } }, { 1, 2 }, { 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0 }, { 'cold', 1, 2, 3, 4, 5 }, { 'log', 1, 2, 3, 4, 5, 6, 7, 8 }, 0, { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 }, { 7, 8, 9 }, { 5, 6, 'scope', 7 }, { 'bucket', 1, 2, 3, 4, 5, 6, 7, 8 }, { 'midnight', 1, 2, 3, 4 }, { 12, 13 }, false, string.rep('x', 72), struct.pack('<dddHc0', 1, 2, 3, 3, 'log') }";
    let spoilt = [
        ("72)", "71)"),
        ("string.rep('x', 72)", "7"),
        (", struct.pack('<dddHc0', 1, 2, 3, 3, 'log') }", " }"),
        ("3, 3, 'log')", "3, 4, 'log')"),
        ("3, 3, 'log')", "3, 3, 'log') .. 'x'"),
        ("struct.pack('<dddHc0', 1, 2, 3, 3, 'log')", "{ 'log', 1, 2, 3 }"),
        ("{ { 'whose', 1, 2, { log = 3 }, 2, 1 } }", "false"),
        ("{ log = 3 }, 2, 1 }", "{ log = 3 }, 2 }"),
        ("{ log = 3 }, 2, 1 }", "{ log = 3 }, 'mine', 1 }"),
        ("'whose', 1", "7, 1"),
        ("'whose', 1", "'whose', false"),
        ("'whose', 1", "'whose', nil"),
        ("log = 3", "log = 'mine'"),
        ("{ 1, 2 }", "{ 1, 'mine' }"),
        ("{ 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0 }", "{ 1, false, 3, 4, 5, 6, 7, 8, 9, 0, 0 }"),
        ("{ 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0 }", "{ 1, 2, 3, 4, 5, 6, 7, 8, 9, 0 }"),
        ("9, 10, 11 }", "9, 10 }"),
        ("{ 7, 8, 9 }", "{ 7, 8 }"),
        ("'scope', 7", "8, 7"),
        ("'scope', 7", "'scope', 'mine'"),
        ("{ 5, 6,", "{ 5, 'mine',"),
        ("'cold', 1, 2, 3, 4, 5", "'cold', 1, 2, 3, 4"),
        ("{ 'cold', 1, 2, 3, 4, 5 }", "false"),
        ("'log', 1, 2, 3, 4, 5, 6, 7, 8", "'log', 1, 2, 3, 4, 5, 6, 7"),
        ("'log', 1, 2, 3", "7, 1, 2, 3"),
        ("'bucket', 1, 2", "7, 1, 2"),
        ("'bucket', 1, 2", "'bucket', 1, 'mine'"),
        ("{ 'bucket', 1, 2, 3, 4, 5, 6, 7, 8 }", "false"),
        ("'midnight', 1", "7, 1"),
        ("'midnight', 1, 2", "'midnight', 1, 'mine'"),
        ("{ 'midnight', 1, 2, 3, 4 }", "false"),
        ("{ 12, 13 }", "{ 12 }"),
        ("{ 12, 13 }", "{ 12, 'mine' }"),
        ("}, 0,", "}, 'mine',"),
        ("}, 0,", "},"),
    ];
    let mut place_of = |state: &str| {
        let set = format!("redis.call('SET', KEYS[1], cmsgpack.pack({state}))");
        must(desk.client.command(&["EVAL", &set, "1", &key]));
        let found = must(desk.client.command(&["EVAL", file("inspect"), "1", &key, "state"]));
        if let Reply::Array(parts) = &found { parts[0].int() } else { None }
    };
    assert_eq!(place_of(good), Some(0));
    for (part, instead) in spoilt {
        let state = good.replacen(part, instead, 1);
        assert!(state != good && place_of(&state) == Some(1), "{state}");
    }
}
