//! The commonest ask is answered at a glance, as the rest of the script would answer it.

use outgate::testing::{RedisServer, Reply};

use crate::desk::{Slot, scopes};
use crate::{Desk, Log, NOW, Run, SECOND, must};

const FOUR: [Log<'_>; 1] = [("calls", &[(4, SECOND)])];
const ONE: [Run<'_>; 1] = [(1, None, &[1])];

/// Whether the first look answers an ask, all by itself; else the whole script does.
fn at_a_glance(desk: &mut Desk<'_>, logs: &[Log<'_>], runs: &[Run<'_>]) -> bool {
    let reply = glance(desk, logs, &[], runs);
    if reply == Reply::Nil {
        desk.book(logs, runs);
        return false;
    }
    desk.answer(&reply, scopes(logs).len(), runs.iter().map(|run| i64::from(run.0)).sum());
    desk.number += 1;
    true
}

pub(crate) fn glance(desk: &mut Desk<'_>, logs: &[Log<'_>], back: &[Slot<'_>], runs: &[Run<'_>]) -> Reply {
    desk.looks_on = false;
    let reply = desk.try_ask(logs, back, runs);
    desk.looks_on = true;
    reply
}

#[test]
fn what_can_start_now_is_answered_at_a_glance() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "one", Some(NOW));
    assert!(at_a_glance(&mut desk, &FOUR, &ONE), "one caller");
    assert!(at_a_glance(&mut desk, &FOUR, &[(1, Some(5), &[2])]), "of more units, who would not wait");
    assert!(!at_a_glance(&mut desk, &FOUR, &[(2, None, &[1])]), "no room for both");
    desk.upstream = "several";
    let logs: [Log<'_>; 3] =
        [("calls", &[(4, SECOND), (9, 9 * SECOND)]), ("5f/calls", &[(4, SECOND)]), ("77/points", &[(9, SECOND)])];
    assert!(at_a_glance(&mut desk, &logs, &[(2, None, &[1, 0, 3])]), "three logs in three scopes, one of no units");
    assert!(!at_a_glance(&mut desk, &logs, &[(1, None, &[1, 1, 4])]), "one of them is full");
    desk.upstream = "kinds";
    assert!(!at_a_glance(&mut desk, &FOUR, &[(1, None, &[1]), (1, None, &[2])]), "two kinds");
    assert!(!at_a_glance(&mut desk, &FOUR, &[]), "nobody");
    desk.upstream = "again";
    assert!(at_a_glance(&mut desk, &FOUR, &ONE));
    desk.number -= 1;
    assert!(!at_a_glance(&mut desk, &FOUR, &ONE), "the same message again");
    desk.previous = desk.number - 1;
    assert!(at_a_glance(&mut desk, &FOUR, &ONE), "after the message that is remembered");
    desk.previous = 0;
    desk.upstream = "late";
    desk.ahead = 5;
    assert!(!at_a_glance(&mut desk, &FOUR, &ONE), "from far away");
    desk.ahead = 0;
    for (upstream, scope) in [("all", None), ("scope", Some("77"))] {
        desk.upstream = upstream;
        desk.pause(scope, 5);
        assert!(!at_a_glance(&mut desk, &logs, &[(1, None, &[1, 1, 1])]), "paused");
    }
}

/// Of a log that counts for long it is kept since when it is there, and who waits: then nothing else of the state is read.
#[test]
fn a_state_that_says_nothing_else_begins_as_the_first_look_expects() {
    const QUIET: &[u8] = &[159, 144, 194, 194, 144, 144, 0, 194, 194, 194, 144, 144, 194, 194];
    let text: Vec<String> = QUIET.iter().map(|byte| format!("\\{byte}")).collect();
    for (name, next) in [("NOBODY", "\\194\\217"), ("SOMEBODY", "\\217\\72")] {
        let constant = format!("local {name} = '{}{next}'\n", text.concat());
        assert!(include_str!("../../lua/head.lua").contains(&constant), "{constant}");
    }
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "up", Some(NOW));
    let logs: [Log<'_>; 1] = [("calls", &[(4, 60 * SECOND)])];
    let state = |desk: &mut Desk<'_>| {
        let Reply::Bulk(state) = must(server.command(&["GET", &desk.key("state")])) else { panic!("no state") };
        assert_eq!(state.get(..QUIET.len()), Some(QUIET));
        state[QUIET.len()]
    };
    assert!(!at_a_glance(&mut desk, &logs, &ONE), "it begins");
    assert_eq!(state(&mut desk), 194);
    assert!(at_a_glance(&mut desk, &logs, &ONE), "it is there");
    assert!(!at_a_glance(&mut desk, &logs, &[(5, None, &[1])]), "somebody waits");
    assert_eq!(state(&mut desk), 217);
    // What is kept of many logs is longer than one byte can say.
    desk.upstream = "many";
    let names = ["a", "b", "c", "d", "e", "f", "g"].map(|name| name.repeat(30));
    let many: Vec<Log<'_>> = names.iter().map(|name| (&**name, &[(4, 60 * SECOND)][..])).collect();
    let each: [Run<'_>; 1] = [(1, None, &[1; 7])];
    for is_known in [false, true, true] {
        assert_eq!(at_a_glance(&mut desk, &many, &each), is_known);
    }
}

#[test]
fn who_is_put_off_again_is_answered_at_a_glance() {
    let server = must(RedisServer::start());
    let many: [Run<'_>; 1] = [(9, None, &[1])];
    for log in ["calls", "5f/calls"] {
        let logs: [Log<'_>; 1] = [(log, &[(4, SECOND), (40, 9 * SECOND)])];
        let mut desk = Desk::new(&server, log, Some(NOW));
        assert!(!at_a_glance(&mut desk, &logs, &[(5, None, &[1])]), "one of them is put off");
        for sender in 1..4 {
            desk.sender = sender;
            desk.book(&logs, &many);
            desk.now = desk.now.map(|now| now + 100_000);
            assert!(at_a_glance(&mut desk, &logs, &many), "again");
            assert!(at_a_glance(&mut desk, &logs, &[(1, Some(SECOND), &[4])]), "who wants more units");
            assert!(!at_a_glance(&mut desk, &logs, &[(1, Some(5), &[1])]), "who does not wait so long");
            desk.book(&logs, &many);
            assert_eq!(desk.said.others, i64::try_from(sender).unwrap_or(0) - 1);
        }
        desk.insist = true;
        assert!(!at_a_glance(&mut desk, &logs, &many), "who insists");
        desk.insist = false;
        desk.book(&logs, &many);
        desk.now = Some(NOW + SECOND - 200_000);
        assert!(at_a_glance(&mut desk, &logs, &many), "slots come within the horizon");
        desk.now = Some(NOW + 10 * SECOND);
        assert!(!at_a_glance(&mut desk, &logs, &many), "a new period");
    }
}

/// Of a process that is not counted among those who wait, or was in a period that has ended: it is from then on.
#[test]
fn who_is_put_off_beside_others_is_counted_at_a_glance() {
    let server = must(RedisServer::start());
    for log in ["calls", "5f/calls"] {
        let logs: [Log<'_>; 1] = [(log, &[(4, SECOND)])];
        let mut desk = Desk::new(&server, log, Some(NOW));
        assert!(!at_a_glance(&mut desk, &logs, &[(9, None, &[1])]), "the first that waits");
        let period = desk.said.counted[0];
        desk.sender = 2;
        assert!(at_a_glance(&mut desk, &logs, &[(9, None, &[1])]), "the second");
        assert_eq!((desk.said.others, desk.said.counted[0]), (1, period));
        assert!(desk.said.remembered);
        assert!(at_a_glance(&mut desk, &logs, &ONE) && !desk.said.remembered, "again nothing is written");
        desk.now = Some(period);
        assert!(at_a_glance(&mut desk, &logs, &[(9, None, &[1])]), "all four, in a new period");
        assert_eq!((desk.said.others, desk.said.counted[0] > period), (1, true));
        desk.sender = 1;
        assert!(at_a_glance(&mut desk, &logs, &ONE), "and the first is put off again");
        assert_eq!(desk.said.others, 1);
    }
}

/// Until nobody is known to wait any more, and nothing of the logs counts.
#[test]
fn a_state_that_is_written_at_a_glance_is_kept_as_long_as_it_says_anything() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "kept", None);
    let calls: [Log<'_>; 1] = [("calls", &[(4, SECOND)])];
    let points: [Log<'_>; 1] = [("points", &[(4, 60 * SECOND)])];
    for also in [None, Some(points)] {
        for logs in [&calls].into_iter().chain(&also) {
            (desk.sender, desk.known) = (1, 0);
            desk.book(logs, &[(9, None, &[1])]);
        }
        desk.sender += 1 + u64::from(also.is_some());
        assert!(at_a_glance(&mut desk, &calls, &ONE), "another waits");
        let Reply::Bulk(state) = must(server.command(&["GET", &desk.key("state")])) else { panic!("no state") };
        let double = |from: usize| f64::from_le_bytes(must(state[from..from + 8].try_into()));
        // Who waits begins at 16. Behind it lies of each log since when it is there, its span, until when it counts, and its key.
        let (mut lapse, mut at) = (double(16) + double(32), 90);
        while at < state.len() {
            lapse = lapse.max(double(at + 16));
            at += 26 + usize::from(u16::from_le_bytes([state[at + 24], state[at + 25]]));
        }
        let Reply::Int(expires) = must(server.command(&["PEXPIRETIME", &desk.key("state")])) else {
            panic!("no expiry")
        };
        #[expect(clippy::cast_possible_truncation, reason = "a time in ms")]
        let expected = (lapse / 1_000.0).ceil() as i64 + 11_000;
        assert_eq!(expires, expected, "{lapse}");
    }
}

/// As where a server took over whose clock is behind: for as long as its correction is kept.
#[test]
fn log_time_that_was_corrected_is_read_at_a_glance() {
    let server = must(RedisServer::start());
    for log in ["calls", "5f/calls"] {
        let logs: [Log<'_>; 1] = [(log, &[(4, SECOND)])];
        let mut desk = Desk::new(&server, log, Some(NOW));
        desk.known = NOW + 3 * SECOND;
        assert!(!at_a_glance(&mut desk, &logs, &[(4, None, &[1])]), "the clock is behind");
        assert_eq!(desk.newest(&format!("{}log:calls", log.trim_end_matches("calls"))), NOW + 3 * SECOND);
        desk.now = Some(NOW + SECOND - 1);
        desk.book(&logs, &ONE);
        assert!(at_a_glance(&mut desk, &logs, &ONE), "some come back in a moment");
        desk.now = Some(NOW + SECOND);
        assert!(at_a_glance(&mut desk, &logs, &ONE), "now");
        assert_eq!(desk.newest(&format!("{}log:calls", log.trim_end_matches("calls"))), NOW + 4 * SECOND);
        desk.latest = NOW + 3 * SECOND;
        assert!(!at_a_glance(&mut desk, &logs, &ONE), "it is ahead of all that its sender knows");
    }
}

#[test]
fn what_matters_no_more_is_left_out_of_a_state_by_the_rest_of_the_script() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "stale", Some(NOW));
    let nine: [Run<'_>; 1] = [(9, None, &[1])];
    let calls: [Log<'_>; 1] = [("calls", &[(4, 30 * SECOND)])];
    for logs in [calls, [("points", &[(4, SECOND)])]] {
        desk.book(&logs, &nine);
    }
    desk.sender = 2;
    desk.now = Some(NOW + 11 * SECOND);
    assert!(at_a_glance(&mut desk, &calls, &nine), "others wait, too");
    desk.sender = 3;
    desk.now = Some(NOW + 12 * SECOND);
    assert!(
        !at_a_glance(&mut desk, &calls, &nine),
        "the other log is known for as long as the clock may leap, and no longer"
    );
    desk.sender = 4;
    assert!(at_a_glance(&mut desk, &calls, &nine), "and then left out");
    // So is it where a process is told that it is counted no more.
    desk = Desk::new(&server, "stale for one", Some(NOW));
    let calls: [Log<'_>; 1] = [("calls", &[(4, 9 * SECOND)])];
    for logs in [calls, [("points", &[(4, SECOND / 20)])]] {
        desk.book(&logs, &nine);
    }
    desk.sender = 2;
    desk.book(&calls, &ONE);
    desk.sender = 3;
    desk.now = Some(NOW + 9_200_000);
    desk.book(&calls, &ONE);
    desk.sender = 2;
    desk.now = Some(NOW + 11_300_000);
    assert!(!at_a_glance(&mut desk, &calls, &ONE), "counted in the period before");
    assert!(desk.said.counted[0] > 0);
}

/// The mark of a loss may be all that is left of it.
#[test]
fn who_waits_for_a_log_of_which_nothing_is_kept_is_answered_in_full() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "forgotten", Some(NOW));
    let (points, calls): (Log<'_>, Log<'_>) = (("points", &[(4, 60 * SECOND)]), ("calls", &[(4, 9 * SECOND)]));
    desk.book(&[points], &ONE);
    desk.now = Some(NOW + 72 * SECOND);
    desk.book(&[calls], &[(9, None, &[1])]);
    desk.sender = 2;
    assert!(at_a_glance(&mut desk, &[calls], &ONE), "of the other it is known since when it is there");
    desk.sender = 3;
    assert!(!at_a_glance(&mut desk, &[points, calls], &[(1, None, &[1, 1])]));
}

#[test]
fn one_caller_that_can_start_beside_others_who_wait_is_answered_at_a_glance() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "beside", Some(NOW));
    desk.book(&FOUR, &[(4, None, &[1])]);
    for sender in 2..5 {
        desk.sender = sender;
        desk.book(&FOUR, &ONE);
    }
    desk.now = Some(NOW + SECOND);
    assert!(at_a_glance(&mut desk, &FOUR, &ONE), "who was put off");
    assert_eq!(
        (desk.said.others, desk.said.counted[0] > 0),
        (2, true),
        "and is counted on, as it is probably back soon"
    );
    desk.sender = 5;
    assert!(at_a_glance(&mut desk, &FOUR, &[(2, None, &[1])]), "two share with the others");
    assert!(desk.said.counted[0] > 0, "one of them waits");
    desk.sender = 6;
    assert!(at_a_glance(&mut desk, &FOUR, &ONE), "who was not");
    assert_eq!((desk.said.others, desk.said.counted[0]), (4, 0));
}

#[test]
fn some_of_many_callers_of_one_unit_each_are_granted_at_a_glance() {
    const STEP: i64 = 200_000;
    let server = must(RedisServer::start());
    let logs: [Log<'_>; 1] = [("calls", &[(4, STEP)])];
    let many: [Run<'_>; 1] = [(9, None, &[1])];
    let mut desk = Desk::new(&server, "some", Some(NOW));
    // Each time four may start in 100 ms, and four more in 300 ms, beyond the horizon.
    let at = |desk: &mut Desk<'_>, steps: i64| {
        assert_eq!(desk.newest("log:calls"), NOW + steps * STEP);
        desk.now = Some(NOW + steps * STEP + STEP / 2);
    };
    assert!(!at_a_glance(&mut desk, &logs, &many), "some are put off for the first time");
    at(&mut desk, 1);
    assert!(at_a_glance(&mut desk, &logs, &many), "four of them, a little ahead");
    assert!(desk.said.counted[0] > 0);
    at(&mut desk, 2);
    assert!(at_a_glance(&mut desk, &logs, &[(3, None, &[1])]), "all of them");
    assert!(desk.said.counted[0] > 0, "who was just served is probably back soon");
    desk.sender = 2;
    assert!(at_a_glance(&mut desk, &logs, &ONE), "one who was never put off");
    assert_eq!((desk.said.others, desk.said.counted[0]), (1, 0));
    at(&mut desk, 3);
    assert!(at_a_glance(&mut desk, &logs, &many), "some of those who were not");
    assert!(desk.said.counted[0] > 0);
    at(&mut desk, 4);
    assert!(at_a_glance(&mut desk, &logs, &many), "a share beside another who waits");
    desk.now = desk.now.map(|now| now + STEP);
    desk.weight = 3;
    assert!(!at_a_glance(&mut desk, &logs, &many), "whose weight is more than one");
    desk.weight = 1;
    desk.now = desk.now.map(|now| now + STEP);
    assert!(!at_a_glance(&mut desk, &logs, &[(9, Some(5), &[1])]), "who do not wait so long");
    assert!(!at_a_glance(&mut desk, &logs, &[(2, None, &[2])]), "of two units");
}

#[test]
fn who_is_put_off_again_by_a_pause_is_answered_at_a_glance() {
    let server = must(RedisServer::start());
    for scope in [None, Some("5f")] {
        let mut desk = Desk::new(&server, scope.unwrap_or("whole"), Some(NOW));
        let logs: [Log<'_>; 1] = [(scope.map_or("calls", |_| "5f/calls"), &[(4, SECOND)])];
        desk.book(&logs, &ONE);
        desk.recovery = SECOND;
        desk.pause(scope, 3 * SECOND);
        assert!(!at_a_glance(&mut desk, &logs, &ONE), "it is not counted yet");
        assert!(at_a_glance(&mut desk, &logs, &ONE));
        assert_eq!(desk.said.paused, (3 * SECOND, 0, 429));
        assert!(!at_a_glance(&mut desk, &logs, &[(1, None, &[2])]), "of two units");
        desk.now = Some(NOW + 2_300_000);
        assert!(at_a_glance(&mut desk, &logs, &ONE), "until it ends");
        desk.now = Some(NOW + 2_800_000);
        assert!(!at_a_glance(&mut desk, &logs, &ONE), "within the horizon");
        desk.now = Some(NOW + 3_500_000);
        assert!(!at_a_glance(&mut desk, &logs, &ONE), "and while calls come slower");
    }
    let mut desk = Desk::new(&server, "long", Some(NOW));
    let logs: [Log<'_>; 1] = [("calls", &[(4, SECOND)])];
    desk.book(&logs, &ONE);
    desk.pause(None, 60 * SECOND);
    for after in 1..20 {
        desk.now = Some(NOW + after * SECOND);
        desk.book(&logs, &ONE); // maybe another period in which it is counted
        assert!(at_a_glance(&mut desk, &logs, &ONE), "after {after} s");
    }
    let mut desk = Desk::new(&server, "of all", Some(NOW));
    let logs: [Log<'_>; 1] = [("5f/calls", &[(4, SECOND)])];
    desk.pause(None, 3 * SECOND);
    desk.book(&logs, &ONE);
    assert!(!at_a_glance(&mut desk, &logs, &ONE), "each scope comes back at its own time");
}

#[test]
fn what_lapsed_long_ago_costs_nothing_where_something_else_keeps_the_state() {
    let server = must(RedisServer::start());
    let logs: [Log<'_>; 1] = [("calls", &[(4, SECOND)])];
    for (name, is_reset) in [("reset", true), ("corrected", false)] {
        let mut desk = Desk::new(&server, name, Some(NOW));
        // A correction is kept where log time is ahead of the clock.
        desk.known = if is_reset { 0 } else { NOW + 3_000 };
        desk.book(&logs, &ONE);
        if is_reset {
            desk.reset("calls");
        }
        desk.report("calls", &[4, SECOND, SECOND, 0, SECOND]);
        desk.now = Some(NOW + 600 * SECOND);
        desk.known = 0;
        desk.book(&logs, &ONE);
        assert!(at_a_glance(&mut desk, &logs, &ONE), "{name}");
    }
}

#[test]
fn a_log_that_only_the_first_look_writes_stays_short() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "short", Some(NOW));
    for call in 0..500 {
        desk.now = Some(NOW + call * SECOND / 3);
        assert_eq!(desk.book(&FOUR, &ONE)[1..], [0, 1, 0, 1]);
        assert!((1..=3 * 4 + 64).contains(&desk.int("LLEN", "log:calls")), "call {call}");
    }
}

#[test]
fn a_message_that_says_no_time_is_answered_in_full() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "full", Some(NOW));
    desk.known = 0;
    assert!(matches!(glance(&mut desk, &FOUR, &[], &ONE), Reply::Bulk(_)), "what one integer cannot say");
    desk.number += 1;
    desk.known = NOW - (1 << 40) + 1;
    assert!(matches!(glance(&mut desk, &FOUR, &[], &ONE), Reply::Int(_)));
    desk.number = (1 << 53) - 1;
    assert_eq!(desk.book(&FOUR, &ONE), [NOW, 0, 1, 0, 1]);
}
