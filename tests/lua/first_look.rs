//! The commonest ask is answered by the lane alone, and no other ask is.

use outgate::testing::RedisServer;

use crate::{Desk, Log, NOW, SECOND, must};

const PLENTY: [Log<'_>; 1] = [("calls", &[(4, SECOND)])];

/// Whether an ask got past the lane: only the rest of `book.lua` reads with `MGET`.
fn past_the_lane(desk: &mut Desk<'_>, ask: impl FnOnce(&mut Desk<'_>)) -> bool {
    must(desk.client.command(&["CONFIG", "RESETSTAT"]));
    ask(desk);
    let stats = must(desk.client.command(&["INFO", "commandstats"]));
    stats.text().is_some_and(|stats| stats.contains("cmdstat_mget"))
}

#[test]
fn the_lane_answers_where_there_is_room_for_all_and_nothing_else_to_heed() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "lane", Some(NOW));
    let one = |desk: &mut Desk<'_>| drop(desk.book(&PLENTY, &[(1, None, &[1])]));
    assert!(!past_the_lane(&mut desk, one), "one caller");
    assert!(!past_the_lane(&mut desk, |desk| drop(desk.book(&PLENTY, &[(1, Some(5), &[2])]))), "of a larger cost");
    assert!(past_the_lane(&mut desk, |desk| drop(desk.book(&PLENTY, &[(2, None, &[1])]))), "no room for both");
    desk.home = "kinds";
    assert!(
        past_the_lane(&mut desk, |desk| drop(desk.book(&PLENTY, &[(1, None, &[1]), (1, None, &[2])]))),
        "two kinds"
    );
    desk.home = "again";
    assert!(!past_the_lane(&mut desk, one));
    desk.number -= 1;
    assert!(past_the_lane(&mut desk, one), "the same message again");
    desk.previous = desk.number - 1;
    assert!(!past_the_lane(&mut desk, one), "after the message that is remembered");
    desk.previous = 0;
    desk.home = "held";
    desk.hold(5);
    assert!(past_the_lane(&mut desk, one), "held");
    desk.home = "two";
    let two: [Log<'_>; 2] = [("calls", &[(4, SECOND)]), ("points", &[(4, SECOND)])];
    assert!(past_the_lane(&mut desk, |desk| drop(desk.book(&two, &[(1, None, &[1, 1])]))), "two logs");
}

#[test]
fn a_log_that_only_the_lane_writes_stays_short() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "short", Some(NOW));
    for call in 0..500 {
        desk.now = Some(NOW + call * SECOND / 3);
        assert_eq!(desk.book(&PLENTY, &[(1, None, &[1])])[1..], [0, 1, 0, 1]);
        assert!((1..=4 + 64).contains(&desk.int("LLEN", "log:calls")), "call {call}");
    }
}
