//! The reply on every branch, and the one refusal.

use outgate::testing::{RedisServer, Reply};

use crate::{Desk, Log, NOW, Run, SECOND, must, texts};

const FOUR: [Log<'static>; 1] = [("calls", &[(4, SECOND)])];

#[test]
fn every_branch_of_book_replies_in_the_same_shape() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "shapes", Some(NOW));
    assert_eq!(desk.book(&FOUR, &[]), [NOW, 0], "nobody asks");
    assert_eq!(desk.book(&FOUR, &[(3, None, &[1])]), [NOW, 0, 1, 0, 3], "room for all");
    desk.number -= 1;
    assert_eq!(desk.book(&FOUR, &[(3, None, &[1])]), [NOW, 0, 1, 0, 3], "the same again");
    let one_of_three: [(u32, Option<i64>, &[u32]); 1] = [(3, None, &[1])];
    assert_eq!(desk.book(&FOUR, &one_of_three), [NOW, SECOND, 1, 0, 1], "some wait");
    desk.now = Some(NOW + 10);
    desk.number -= 1;
    assert_eq!(desk.book(&FOUR, &one_of_three), [NOW + 10, SECOND - 10, 1, -10, 1], "the same again, later");

    desk.sender = 2;
    let refused = [NOW + 10, 0, 0, SECOND - 10, 4, 0, 2 * SECOND - 10, 1];
    assert_eq!(desk.book(&FOUR, &[(5, Some(5), &[1])]), refused, "each refused is told its own time");
    let mixed: [(u32, Option<i64>, &[u32]); 2] = [(1, Some(5), &[1]), (1, None, &[1])];
    assert_eq!(desk.book(&FOUR, &mixed), [NOW + 10, SECOND - 10, 0, SECOND - 10, 1], "one refused, one waits");
    desk.now = Some(NOW + SECOND - 100);
    desk.horizon = 100;
    let ahead: [(u32, Option<i64>, &[u32]); 3] = [(1, None, &[1]), (1, Some(5), &[4]), (2, None, &[1])];
    let expected = [NOW + SECOND - 100, 0, 1, 100, 1, 0, SECOND + 100, 1, 1, 100, 2];
    assert_eq!(
        desk.book(&FOUR, &ahead),
        expected,
        "one booked, one refused, two booked: who waits for longer has no share"
    );
    let beside: [(u32, Option<i64>, &[u32]); 3] = [(1, None, &[2]), (1, None, &[1]), (1, None, &[2])];
    let expected = [NOW + SECOND - 100, SECOND + 100, 2, SECOND + 100, 1, 1, 100, 1];
    assert_eq!(desk.book(&FOUR, &beside), expected, "one waits, one goes before it, one waits");

    assert_eq!(desk.held, [0, 0]);
    assert_eq!(desk.hold(3 * SECOND), [NOW + SECOND - 100, 3 * SECOND, 1]);
    assert_eq!(desk.book(&FOUR, &[(1, None, &[1])]), [NOW + SECOND - 100, 3 * SECOND], "held");
    assert_eq!(desk.held, [3 * SECOND, 0]);
    desk.home = "claim";
    assert_eq!(desk.hold(3 * SECOND), [NOW + SECOND - 100, 3 * SECOND, 1]);
    desk.insist = true;
    assert_eq!(desk.book(&FOUR, &[(1, None, &[4])]), [NOW + SECOND - 100, 3 * SECOND], "a caller insists");
    desk.sender = 3;
    assert_eq!(desk.book(&FOUR, &[(1, None, &[1])]), [NOW + SECOND - 100, 4 * SECOND], "after another one's claim");
}

#[test]
fn a_process_takes_an_equal_share_of_what_is_free() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "shares", Some(NOW));
    assert_eq!(desk.book(&FOUR, &[(9, None, &[1])]), [NOW, SECOND, 1, 0, 4], "alone it takes all");
    desk.now = Some(NOW + SECOND);
    desk.sender = 2;
    assert_eq!(desk.book(&FOUR, &[(4, None, &[1])]), [NOW + SECOND, 0, 1, 0, 2], "half of four");
    desk.sender = 3;
    assert_eq!(desk.book(&FOUR, &[(4, None, &[1])]), [NOW + SECOND, 0, 1, 0, 1], "a third of two, rounded up");
    desk.sender = 1;
    assert_eq!(desk.book(&FOUR, &[(5, None, &[1])]), [NOW + SECOND, SECOND, 1, 0, 1], "the rest");
}

#[test]
fn the_other_scripts_reply_the_time_first() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "others", Some(NOW));
    let logs: [Log<'_>; 2] = [("calls", &[(4, SECOND), (2, 10)]), ("points", &[(9, SECOND)])];
    assert_eq!(desk.usage(&logs), [NOW, 0, 0, 0, 0, 0, 0, 0, 0, 0], "of nothing");
    assert_eq!(desk.book(&logs, &[(2, None, &[1, 4])]), [NOW, 0, 1, 0, 2]);
    assert_eq!(desk.usage(&logs), [NOW, 2, 0, 0, 2, 0, 10, 8, 0, 0]);
    assert_eq!(desk.hand_back(&["calls", "points"], &[(NOW, &[1, 4])]), [NOW]);
    desk.number -= 1;
    assert_eq!(desk.hand_back(&["calls", "points"], &[(NOW, &[1, 4])]), [NOW], "the same again");
    assert_eq!(desk.hand_back(&["calls"], &[]), [NOW], "nothing");
    assert_eq!(desk.hand_back(&["calls", "points"], &[(NOW, &[0, 0])]), [NOW], "nothing of each");
    assert_eq!(desk.usage(&logs), [NOW, 1, 0, 0, 1, 0, 0, 4, 0, 0]);
    assert_eq!(desk.hold(0), [NOW, 0, 1]);
    assert_eq!(desk.hold(7), [NOW, 7, 1]);
    assert_eq!(desk.hold(5), [NOW, 7, 0], "the same incident");
    desk.told -= 1;
    assert_eq!(desk.hold(9), [NOW, 7, 0], "the same message again");
    assert_eq!(desk.usage(&logs), [NOW, 1, 0, 7, 1, 0, 7, 4, 0, 7]);
    let remaining = |left: u32| [4, SECOND, SECOND, left.into(), SECOND / 2].map(|part| part.to_string());
    assert_eq!(desk.learn("calls", false, &remaining(3)), [NOW, 0, 0], "as many as the log allows");
    assert_eq!(
        desk.learn("calls", true, &remaining(2)),
        [NOW, 2, 0],
        "one less, and one to come, which explains the refusal"
    );
    assert_eq!(desk.usage(&logs), [NOW, 1, 2, SECOND / 4, 1, 0, 7, 4, 0, 7]);
    assert_eq!(desk.learn("points", true, &[]), [NOW, 0, 50], "nothing explains it");
    desk.told -= 1;
    desk.now = Some(NOW + SECOND);
    assert_eq!(desk.learn("points", true, &[]), [NOW + SECOND, 0, 50], "the same message again, later");
    assert_eq!(desk.learn("points", false, &[]), [NOW + SECOND, 0, 49], "it has widened nothing");
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
    assert_eq!(desk.try_hand_back(&["calls"], &[(NOW, &[1])]), outdated);
    desk.hold(0);
    assert_eq!(desk.learn("points", true, &[]), [NOW, 0, 50], "holds and lessons have numbers of their own");
    desk.told -= 2;
    assert_eq!(desk.try_hold(9), outdated);
    assert_eq!(desk.try_learn("points", true, &[]), outdated);
    assert_eq!(desk.usage(&FOUR), [NOW, 1, 0, 0]);
}

#[test]
fn of_two_senders_of_one_name_the_second_is_told() {
    let server = must(RedisServer::start());
    let one: [Run<'_>; 1] = [(1, None, &[1])];
    let duplicate = Reply::Error("DUPLICATE another process sends under the same name".to_owned());
    let two: [Log<'_>; 2] = [FOUR[0], ("points", &[(4, SECOND)])];
    for supplied in [Some(NOW), None] {
        let mut desk = Desk::new(&server, if supplied.is_some() { "names" } else { "names by the server" }, supplied);
        desk.previous = 3;
        desk.number = 5;
        desk.book(&FOUR, &one);
        // The lane, and the general way.
        for logs in [&FOUR[..], &two] {
            desk.number = 7;
            assert_eq!(desk.try_book(logs, &one), duplicate);
            let newest = desk.newest("log:calls");
            assert_eq!(desk.try_hand_back(&["calls"], &[(newest, &[1])]), duplicate);
            assert_eq!((desk.int("LLEN", "log:calls"), desk.int("EXISTS", "log:points")), (1, 0));
        }
        desk.number = 5;
        assert_eq!(desk.book(&FOUR, &one)[2..3], [1], "the same message again has its answer");
        let lasts = desk.int("PTTL", "seen:1");
        assert!(supplied.is_some() || (1_000..1_251).contains(&lasts), "and is remembered for no longer: {lasts}");
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
    desk.hold(1_234_567);
    let next = NOW + 9_999_999;
    let promised = (next + 250_000).to_string();
    assert_eq!(texts(&desk.of("LRANGE", "log:calls", &["0", "-1"])), [NOW.to_string()]);
    assert_eq!(desk.of("ZSCORE", "asking", &["1"]).text(), Some(&*promised));
    let unpack = "local out = cmsgpack.unpack(redis.call('GET', KEYS[1]))
        if type(out[1]) == 'table' then out = out[1] end
        if type(out[4]) == 'table' then out[4] = out[4][KEYS[2]] end
        for i, part in ipairs(out) do out[i] = type(part) == 'number' and string.format('%.0f', part) or part end
        return out";
    let (claim, seen, hold) = (desk.key("claim"), desk.key("seen:1"), desk.key("told"));
    let hold = texts(&must(desk.client.command(&["EVAL", unpack, "1", &hold])));
    let stop = (NOW + 1_234_567).to_string();
    assert_eq!(hold, [&*stop, "0", "1", "0", &stop]);
    let log = desk.key("log:calls");
    let claim = texts(&must(desk.client.command(&["EVAL", unpack, "2", &claim, &log])));
    assert_eq!(claim, ["1", &next.to_string(), &promised, "1"]);
    let seen = texts(&must(desk.client.command(&["EVAL", unpack, "1", &seen])));
    assert_eq!(seen, ["2", &(NOW + 9_999_999 + 250_000).to_string(), &next.to_string()]);
}

#[test]
fn time_is_the_servers_unless_a_test_supplies_it() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "time", None);
    let time = |desk: &mut Desk<'_>| {
        let parts: Vec<i64> =
            texts(&must(desk.client.command(&["TIME"]))).iter().map(|part| must(part.parse())).collect();
        parts[0] * SECOND + parts[1]
    };
    let before = time(&mut desk);
    let said = [desk.book(&FOUR, &[(1, None, &[1])]), desk.hand_back(&["calls"], &[]), desk.hold(5), desk.usage(&FOUR)];
    let after = time(&mut desk);
    let stamps = said.map(|reply| reply[0]);
    assert!(before <= stamps[0] && stamps.is_sorted() && stamps[3] <= after, "{before} {stamps:?} {after}");
    assert_eq!(desk.newest("log:calls"), stamps[0], "what is entered is what is told");
    desk.now = Some(NOW);
    let said = [desk.book(&FOUR, &[]), desk.hand_back(&["calls"], &[]), desk.hold(5), desk.usage(&FOUR)];
    assert_eq!(said.map(|reply| reply[0]), [NOW; 4]);
}
