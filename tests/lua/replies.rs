//! The reply on every branch, and the refusals.

use outgate::testing::{RedisServer, Reply};

use crate::{Desk, Log, NOW, Run, SECOND, must, texts};

const FOUR: [Log<'static>; 1] = [("calls", &[(4, SECOND)])];
const TWO: [Log<'static>; 2] = [FOUR[0], ("points", &[(4, SECOND)])];

#[test]
fn every_branch_of_book_replies_in_one_of_two_shapes() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "shapes", Some(NOW));
    assert_eq!(desk.book(&FOUR, &[]), [NOW, 0], "nobody asks");
    assert_eq!(desk.book(&FOUR, &[(3, None, &[1])]), [NOW, 0, 1, 0, 3], "room for all");
    desk.number -= 1;
    assert_eq!(desk.book(&FOUR, &[(3, None, &[1])]), [NOW, 0, 1, 0, 3], "the same again");
    let three: [Run<'_>; 1] = [(3, None, &[1])];
    assert_eq!(desk.book(&FOUR, &three), [NOW, SECOND, 1, 0, 1], "some wait");
    desk.now = Some(NOW + 10);
    desk.number -= 1;
    assert_eq!(desk.book(&FOUR, &three), [NOW + 10, SECOND - 10, 1, -10, 1], "the same again, later");

    desk.sender = 2;
    let refused = [NOW + 10, 0, 0, SECOND - 10, 4, 0, 2 * SECOND - 10, 1];
    assert_eq!(desk.book(&FOUR, &[(5, Some(5), &[1])]), refused, "each refused is told its own time");
    let mixed: [Run<'_>; 2] = [(1, Some(5), &[1]), (1, None, &[1])];
    assert_eq!(desk.book(&FOUR, &mixed), [NOW + 10, SECOND - 10, 0, SECOND - 10, 1], "one refused, one waits");
    desk.upstream = "ahead";
    desk.book(&FOUR, &[(4, None, &[1])]);
    desk.now = Some(NOW + SECOND - 90);
    desk.horizon = 100;
    let ahead: [Run<'_>; 3] = [(1, None, &[1]), (1, Some(5), &[4]), (2, None, &[1])];
    let expected = [NOW + SECOND - 90, 0, 1, 100, 1, 0, SECOND + 100, 1, 1, 100, 2];
    assert_eq!(desk.book(&FOUR, &ahead), expected, "one booked, one refused, two booked");
    let beside: [Run<'_>; 3] = [(1, None, &[2]), (1, None, &[1]), (1, None, &[2])];
    let expected = [NOW + SECOND - 90, SECOND + 100, 2, SECOND + 100, 1, 1, 100, 1];
    assert_eq!(desk.book(&FOUR, &beside), expected, "one waits, one goes before it, one waits");

    assert_eq!(desk.said.paused, (0, 0, 0));
    assert_eq!(desk.pause(None, 3 * SECOND), [NOW + SECOND - 90, 3 * SECOND, 1]);
    assert_eq!(desk.book(&FOUR, &[(1, None, &[1])]), [NOW + SECOND - 90, 3 * SECOND], "paused");
    assert_eq!(desk.said.paused, (3 * SECOND, 0, 429));
    desk.upstream = "claim";
    desk.counted.clear();
    assert_eq!(desk.pause(None, 3 * SECOND), [NOW + SECOND - 90, 3 * SECOND, 1]);
    desk.insist = true;
    assert_eq!(desk.book(&FOUR, &[(1, None, &[4])]), [NOW + SECOND - 90, 3 * SECOND], "a caller insists");
    desk.sender = 3;
    assert_eq!(desk.book(&FOUR, &[(1, None, &[1])]), [NOW + SECOND - 90, 4 * SECOND], "after another one's claim");
}

#[test]
fn a_reply_says_what_is_in_force_and_who_waits() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "said", Some(NOW));
    let of_scope: [Log<'_>; 2] = [("calls", &[(9, SECOND)]), ("5f/calls", &[(4, SECOND)])];
    desk.book(&of_scope, &[(5, None, &[1, 1])]);
    let ends = NOW + 2_000_000 + 2 * desk.horizon;
    assert!(desk.said.remembered);
    assert_eq!(desk.said.counted, [0, ends], "in the scope whose log it waits for");
    assert_eq!((desk.said.within, desk.said.others, desk.said.paused), (20_000, 0, (0, 0, 0)), "which fewer share");
    desk.book(&of_scope, &[(1, None, &[1, 1])]);
    assert_eq!((desk.said.counted[1], desk.said.others, desk.said.remembered), (ends, 0, false), "nothing new");
    desk.sender = 2;
    desk.book(&of_scope, &[(1, None, &[1, 1])]);
    assert_eq!((desk.said.counted[1], desk.said.others, desk.said.remembered), (ends, 1, true), "another");
    desk.pause(Some("5f"), 2 * SECOND);
    desk.book(&of_scope, &[(1, Some(5), &[1, 1])]);
    assert_eq!(desk.said.paused, (2 * SECOND, 0, 429));
    assert_eq!(desk.said.counted, [0, 0], "who is refused waits no more");
    desk.book(&FOUR, &[(1, Some(5), &[1])]);
    assert_eq!(desk.said.paused, (0, 0, 0), "not in the other scope");
}

#[test]
fn a_reply_says_when_one_may_go_that_takes_less_than_the_first_that_waits() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "smaller", Some(NOW));
    let of_two_units: [Log<'_>; 2] = [("calls", &[(2, SECOND)]), ("tokens", &[(100, 60 * SECOND)])];
    desk.book(&of_two_units, &[(1, None, &[1, 60])]);
    let (large, small, smaller): (Run<'_>, Run<'_>, Run<'_>) =
        ((1, None, &[1, 45]), (4, None, &[1, 2]), (1, None, &[1, 1]));
    let answers = desk.book(&of_two_units, &[large, small, smaller]);
    assert_eq!(answers, [NOW, 60 * SECOND, 2, 60 * SECOND, 1, 1, 0, 1], "one of the small ones goes");
    assert_eq!(desk.said.smaller, Some((SECOND, 1)), "and the next when a call is free again");
    desk.now = Some(NOW + SECOND);
    desk.book(&of_two_units, &[large, small]);
    assert_eq!(desk.said.smaller, Some((SECOND, 1)), "two go, and two wait");
    desk.now = Some(NOW + 2 * SECOND);
    desk.book(&of_two_units, &[large, (1, None, &[1, 40])]);
    assert_eq!(desk.said.smaller, None, "which waits for what the large one does");
}

#[test]
fn beside_other_processes_those_have_a_share_who_take_nothing_of_what_the_first_waits_for() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "behind", Some(NOW));
    let of_two_units: [Log<'_>; 2] = [("calls", &[(50, SECOND)]), ("exports", &[(5, 3_600 * SECOND)])];
    desk.book(&of_two_units, &[(1, None, &[5, 5])]);
    desk.sender = 2;
    desk.book(&of_two_units, &[(60, None, &[1, 0])]);
    (desk.now, desk.sender) = (Some(NOW + SECOND), 1);
    let answers = desk.book(&of_two_units, &[(1, None, &[1, 1]), (60, None, &[1, 0])]);
    assert_eq!(answers[1..], [3_599 * SECOND, 2, 3_599 * SECOND, 1, 1, 0, 25], "half of all calls");
    assert_eq!((desk.said.smaller, desk.said.others), (Some((0, 1)), 1), "the others have not had theirs yet");
    desk.now = Some(NOW + 2 * SECOND);
    let between = [(1, None, &[1, 1][..]), (1, None, &[0, 1]), (1, None, &[9, 1]), (60, None, &[1, 0])];
    let answers = desk.book(&of_two_units, &between);
    assert_eq!(answers[5..], [1, 0, 25], "nor is it the share of who takes no calls, or more than one that waits");
}

#[test]
fn a_share_of_a_scope_in_which_nobody_can_start_holds_nobody_who_takes_nothing_of_it() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "of one", Some(NOW));
    let of_one: [Log<'_>; 2] = [("calls", &[(50, SECOND)]), ("5f/tokens", &[(100, 60 * SECOND)])];
    desk.book(&of_one, &[(1, None, &[1, 100])]);
    desk.sender = 2;
    desk.book(&of_one, &[(2, None, &[1, 30])]);
    desk.sender = 1;
    let (taking, others): (Run<'_>, Run<'_>) = ((2, None, &[1, 30]), (9, None, &[1, 0]));
    let answers = desk.book(&of_one, &[taking, others]);
    assert_eq!((&answers[2..], desk.said.others), (&[2, 60 * SECOND, 2, 1, 0, 9][..], 1), "behind those who wait");
    let answers = desk.book(&of_one, &[others, taking]);
    assert_eq!(answers[2..], [1, 0, 9], "and before them");
}

#[test]
fn a_process_takes_an_equal_share_of_what_is_free() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "shares", Some(NOW));
    assert_eq!(desk.book(&FOUR, &[(9, None, &[1])]), [NOW, SECOND, 1, 0, 4], "alone it takes all");
    desk.now = Some(NOW + SECOND);
    desk.sender = 2;
    assert_eq!(desk.book(&FOUR, &[(4, None, &[1])])[..5], [NOW + SECOND, 0, 1, 0, 2], "half of four");
    desk.sender = 3;
    assert_eq!(desk.book(&FOUR, &[(4, None, &[1])])[..5], [NOW + SECOND, 0, 1, 0, 1], "a third of two, rounded up");
    desk.sender = 1;
    assert_eq!(desk.book(&FOUR, &[(5, None, &[1])]), [NOW + SECOND, SECOND, 1, 0, 1], "the rest");
}

#[test]
fn after_a_pause_callers_of_one_ask_start_as_if_they_asked_one_by_one() {
    let server = must(RedisServer::start());
    let many: [Log<'_>; 1] = [("calls", &[(50, SECOND)])];
    // Those who ask from far away, and those who wait for something else, could start later than the pause ends.
    let starts = |together: bool| {
        let mut desk = Desk::new(&server, if together { "together" } else { "one by one" }, Some(NOW));
        (desk.horizon, desk.ahead, desk.recovery) = (2 * SECOND, SECOND / 2, SECOND);
        desk.pause(None, SECOND / 10);
        let answers = if together {
            desk.book(&many, &[(2, None, &[1])])[2..].to_vec()
        } else {
            (0..2).flat_map(|_| desk.book(&many, &[(1, None, &[1])])[2..].to_vec()).collect()
        };
        answers.chunks(3).map(|answer| (answer[1], answer[2])).collect::<Vec<_>>()
    };
    assert_eq!(starts(true), starts(false));
    assert_eq!(starts(true).len(), 2, "one after another");
}

#[test]
fn the_other_scripts_reply_number_and_time_first() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "others", Some(NOW));
    let logs: [Log<'_>; 2] = [("calls", &[(4, SECOND), (2, 10)]), ("points", &[(9, SECOND)])];
    assert_eq!(desk.usage(&logs), [NOW, 0, 0, 0, 0, 0, 0, 0, 0, 0], "of nothing");
    assert_eq!(desk.book(&logs, &[(2, None, &[1, 4])]), [NOW, 0, 1, 0, 2]);
    assert_eq!(desk.usage(&logs), [NOW, 2, 0, 0, 2, 0, 10, 8, 0, 0]);
    assert_eq!(desk.hand_back(&logs, &[(NOW, &[1, 4])]), NOW);
    desk.number -= 1;
    assert_eq!(desk.hand_back(&logs, &[(NOW, &[1, 4])]), NOW, "the same again");
    assert_eq!(desk.hand_back(&logs[..1], &[]), NOW, "nothing");
    assert_eq!(desk.hand_back(&logs, &[(NOW, &[0, 0])]), NOW, "nothing of each");
    assert_eq!(desk.usage(&logs), [NOW, 1, 0, 0, 1, 0, 0, 4, 0, 0]);
    assert_eq!(desk.pause(None, 0), [NOW, 0, 1]);
    assert_eq!(desk.pause(None, 7), [NOW, 7, 1]);
    assert_eq!(desk.pause(None, 5), [NOW, 7, 0], "the same incident");
    desk.told -= 1;
    assert_eq!(desk.pause(None, 9), [NOW, 7, 0], "the same message again");
    assert_eq!(desk.usage(&logs), [NOW, 1, 0, 7, 1, 0, 7, 4, 0, 7]);
    let left = |left: i64| [4, SECOND, SECOND, left, SECOND / 2];
    assert_eq!(desk.report("calls", &left(3)), [NOW, 0], "as many as the log allows");
    assert_eq!(desk.known_for(&logs), [-1, -1, -1]);
    assert_eq!(desk.report("calls", &left(2)), [NOW, 1], "one less");
    assert_eq!(desk.usage(&logs), [NOW, 1, 1, 7, 1, 0, 7, 4, 0, 7], "two are left");
    assert_eq!(desk.known_for(&logs), [0, -1, -1]);
    desk.told -= 1;
    desk.now = Some(NOW + SECOND / 8);
    assert_eq!(desk.report("calls", &left(2)), [NOW + SECOND / 8, 1], "the same message again, later");
    assert_eq!(desk.report("points", &[]), [NOW + SECOND / 8, 0], "nothing");
}

#[test]
fn a_message_after_a_later_one_is_outdated() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "outdated", Some(NOW));
    desk.number = 7;
    desk.book(&FOUR, &[(1, None, &[1])]);
    desk.number = 6;
    let outdated = Reply::Error("OUTDATED a later message of this sender has been seen".to_owned());
    assert_eq!(desk.try_book(&FOUR, &[(1, None, &[1])]), outdated);
    assert_eq!(desk.try_ask(&FOUR, &[(NOW, &[1])], &[]), outdated);
    desk.pause(None, 0);
    let left = [9, SECOND, SECOND, 4, SECOND];
    assert_eq!(desk.report("points", &left), [NOW, 5], "each stream has numbers of its own");
    desk.told -= 2;
    assert_eq!(desk.try_pause(None, 9), outdated);
    assert_eq!(desk.try_report("points", &left), outdated);
    assert_eq!(desk.usage(&FOUR), [NOW, 1, 0, 0]);
}

#[test]
fn of_two_senders_of_one_name_the_second_is_told() {
    let server = must(RedisServer::start());
    let one: [Run<'_>; 1] = [(1, None, &[1])];
    let duplicate = Reply::Error("DUPLICATE another process sends under the same name".to_owned());
    for supplied in [Some(NOW), None] {
        let mut desk = Desk::new(&server, if supplied.is_some() { "names" } else { "names by the server" }, supplied);
        desk.previous = 3;
        desk.number = 5;
        desk.book(&FOUR, &one);
        for looks_first in [true, false] {
            (desk.number, desk.looks_first) = (7, looks_first);
            assert_eq!(desk.try_book(&FOUR, &one), duplicate);
            assert_eq!(desk.try_book(&TWO, &[(1, None, &[1, 1])]), duplicate);
            let newest = desk.newest("log:calls");
            assert_eq!(desk.try_ask(&FOUR, &[(newest, &[1])], &[]), duplicate);
            assert_eq!((desk.int("LLEN", "log:calls"), desk.int("EXISTS", "log:points")), (1, 0));
        }
        desk.number = 5;
        assert_eq!(desk.book(&FOUR, &one)[2..3], [1], "the same message again has its answer");
        let lasts = desk.int("PTTL", "replay:1:asks");
        assert!(supplied.is_some() || (12_000..13_251).contains(&lasts), "and is remembered for no longer: {lasts}");
        (desk.number, desk.previous) = (7, 5);
        desk.book(&FOUR, &one);
        assert_eq!(desk.int("LLEN", "log:calls"), 2, "who knows of it goes on");
    }
}

#[test]
fn a_stamp_keeps_all_its_digits() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "digits", Some(NOW));
    desk.insist = true;
    let one: [Log<'_>; 1] = [("calls", &[(1, 9_999_999)])];
    assert_eq!(desk.book(&one, &[(2, None, &[1])]), [NOW, 9_999_999, 1, 0, 1]);
    assert_eq!(desk.book(&one, &[(1, None, &[1])]), [NOW, 9_999_999]);
    desk.pause(None, 1_234_567);
    let next = NOW + 9_999_999;
    let promised = (next + 250_000).to_string();
    assert_eq!(texts(&desk.of("LRANGE", "log:calls", &["0", "-1"])), [NOW.to_string()]);
    let unpack = "local state, out = cmsgpack.unpack(redis.call('GET', KEYS[1])), {}
        for i, part in ipairs({ struct.unpack('<d', state[14]), state[1][1][2], state[1][1][3], state[1][1][4][KEYS[2]], state[3][1] }) do
          out[i] = string.format('%.0f', part)
        end
        return out";
    let (state, log) = (desk.key("state"), desk.key("log:calls"));
    let state = texts(&must(desk.client.command(&["EVAL", unpack, "2", &state, &log])));
    let period = (NOW + 9_999_999 + 500_000).to_string();
    assert_eq!(state, [&*period, &next.to_string(), &promised, "1", &(NOW + 1_234_567).to_string()]);
}

#[test]
fn time_is_the_servers_unless_a_test_supplies_it() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "time", None);
    let time = |desk: &mut Desk<'_>| {
        let parts = texts(&must(desk.client.command(&["TIME"])));
        must(parts[0].parse::<i64>()) * SECOND + must(parts[1].parse::<i64>())
    };
    let before = time(&mut desk);
    let mut stamps = vec![desk.book(&FOUR, &[(1, None, &[1])])[0]];
    assert_eq!(desk.newest("log:calls"), stamps[0], "what is entered is what is told");
    stamps.extend([desk.hand_back(&FOUR, &[]), desk.pause(None, 5)[0], desk.usage(&FOUR)[0]]);
    let after = time(&mut desk);
    assert!(before <= stamps[0] && stamps.is_sorted() && stamps[3] <= after, "{before} {stamps:?} {after}");
    desk.now = Some(NOW);
    let said = [desk.book(&FOUR, &[])[0], desk.hand_back(&FOUR, &[]), desk.pause(None, 5)[0], desk.usage(&FOUR)[0]];
    assert_eq!(said, [NOW; 4]);
}

#[test]
fn log_time_is_never_less_than_known_and_no_more_than_the_latest() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "log time", Some(NOW));
    desk.book(&FOUR, &[(1, None, &[1])]);
    assert_eq!(desk.int("EXISTS", "state"), 0);
    desk.now = Some(NOW - 3_600 * SECOND);
    assert_eq!(desk.book(&FOUR, &[])[0], NOW, "the clock was set back");
    assert_eq!(desk.int("EXISTS", "state"), 1);
    desk.known = 0;
    desk.now = Some(NOW - 3_600 * SECOND + 10);
    assert_eq!(desk.usage(&FOUR), [NOW + 10, 1, 0, 0], "for everybody");
    desk.now = Some(NOW + SECOND);
    desk.latest = NOW + 20;
    assert_eq!(desk.pause(None, 0)[0], NOW + 20, "and ahead");
    desk.known = NOW + 30;
    assert_eq!(desk.book(&FOUR, &[])[0], NOW + 30, "what is known counts more");
}
