//! The largest messages, logs and replies.

use outgate::ledger::{self, Ask, Bucket, Message, MessageId, Term};
use outgate::testing::RedisServer;
use outgate::{RedisStore, Store};

use crate::desk::Slot;
use crate::{Desk, Log, NOW, Run, SECOND, must};

const MILLION: u32 = 1_000_000;

#[test]
fn ten_thousand_units_are_granted_and_handed_back_in_one_message_each() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "batch", Some(NOW));
    let logs: [Log<'_>; 1] = [("points", &[(10_000, SECOND)])];
    assert_eq!(desk.book(&logs, &[(1_000, None, &[10])]), [NOW, 0, 1, 0, 1_000]);
    assert_eq!(desk.int("LLEN", "log:points"), 10_000);
    assert_eq!(desk.hand_back(&logs, &[(NOW, &[10_000])]), NOW);
    assert_eq!(desk.int("EXISTS", "log:points"), 0);

    let each: Vec<Run<'_>> = (0..1_000).map(|_| (1, Some(SECOND), &[10][..])).collect();
    assert_eq!(desk.book(&logs, &each), [NOW, 0, 1, 0, 1_000], "a thousand runs of one");
    assert_eq!(desk.int("LLEN", "log:points"), 10_000);
    let slots: Vec<Slot<'_>> = (0..1_000).map(|_| (NOW, &[10][..])).collect();
    assert_eq!(desk.hand_back(&logs, &slots), NOW, "a thousand slots of one");
    assert_eq!(desk.int("EXISTS", "log:points"), 0);
}

#[test]
fn a_thousand_callers_each_get_a_start_of_their_own() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "spread", Some(NOW));
    let logs: [Log<'_>; 1] = [("points", &[(10, 100)])];
    let reply = desk.book(&logs, &[(1_000, None, &[10])]);
    let expected: Vec<i64> = (0..1_000).flat_map(|caller| [1, caller * 100, 1]).collect();
    assert_eq!(reply[2..], expected, "granted");
    let again = desk.book(&logs, &[(1_000, Some(5), &[10])]);
    let expected: Vec<i64> = (1_000..2_000).flat_map(|caller| [0, caller * 100, 1]).collect();
    assert_eq!(again[2..], expected, "refused");
    desk.number -= 2;
    assert_eq!(desk.book(&logs, &[(1_000, None, &[10])]), reply, "remembered in full");
    let slots: Vec<Slot<'_>> = (0..1_000).map(|caller| (NOW + caller * 100, &[10][..])).collect();
    assert_eq!(desk.hand_back(&logs, &slots), NOW);
    assert_eq!(desk.int("EXISTS", "log:points"), 0);
}

#[test]
fn a_quota_of_a_million_fills_to_the_last_unit() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "million", Some(NOW));
    let logs: [Log<'_>; 1] = [("points", &[(MILLION, SECOND)])];
    for _ in 0..99 {
        assert_eq!(desk.book(&logs, &[(1_000, None, &[10])]), [NOW, 0, 1, 0, 1_000]);
    }
    assert_eq!(desk.book(&logs, &[(9_999, None, &[1])]), [NOW, 0, 1, 0, 9_999]);
    assert_eq!(desk.book(&logs, &[(2, None, &[1])]), [NOW, SECOND, 1, 0, 1]);
    assert_eq!(desk.usage(&logs), [NOW, i64::from(MILLION), 0, SECOND]);
    assert_eq!(desk.hand_back(&logs, &[(NOW, &[MILLION])]), NOW);
    assert_eq!(desk.book(&logs, &[(1, None, &[MILLION])]), [NOW, 0, 1, 0, 1], "one caller of a million units");
    assert_eq!(desk.book(&logs, &[(1, None, &[1])]), [NOW, SECOND]);
}

#[test]
fn what_lies_deep_in_a_million_entries_is_kept_without_a_search() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "deep", Some(NOW));
    let logs: [Log<'_>; 1] = [("points", &[(MILLION, SECOND)])];
    for deep in 0..50 {
        desk.now = Some(NOW + deep);
        desk.book(&logs, &[(1, None, &[1])]);
    }
    desk.now = Some(NOW + 1_000);
    assert_eq!(desk.book(&logs, &[(1, None, &[MILLION - 50])]), [NOW + 1_000, 0, 1, 0, 1]);
    assert_eq!(desk.int("LLEN", "log:points"), i64::from(MILLION));

    // Deep, absent among the deep, and absent at the tail.
    let starts = (0..50).chain(500..525).chain(2_000..2_025);
    let slots: Vec<Slot<'_>> = starts.map(|start| (NOW + start, &[1][..])).collect();
    assert_eq!(desk.hand_back(&logs, &slots), NOW + 1_000);
    assert_eq!(desk.int("LLEN", "log:points"), i64::from(MILLION));
    assert_eq!(calls_of("lrem", &server), 0);

    assert_eq!(desk.hand_back(&logs, &[(NOW + 1_000, &[1])]), NOW + 1_000, "near the tail");
    assert_eq!(desk.int("LLEN", "log:points"), i64::from(MILLION) - 1);
    assert_eq!(calls_of("lrem", &server), 1);
}

#[test]
fn a_debt_of_any_size_enters_no_more_than_makes_others_wait() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "debts", Some(NOW));
    for (name, quota, debt, entered) in [
        ("few", 20_000, 19_999, 19_999),
        ("all", 20_000, 20_000, 20_000),
        ("more", 20_000, u32::MAX, 20_000),
        ("many", 64_000, u32::MAX, 64_000),
    ] {
        let logs: [Log<'_>; 1] = [(name, &[(quota, SECOND), (7, 1_000)])];
        desk.debts = vec![debt];
        let left = i64::from(quota) - entered;
        let expected = if left > 0 { vec![NOW, 1_000] } else { vec![NOW, SECOND] };
        (desk.horizon, desk.sender) = (0, desk.sender + 1);
        assert_eq!(desk.book(&logs, &[(1, None, &[1])]), expected, "{name}");
        assert_eq!(desk.int("LLEN", &format!("log:{name}")), entered, "{name}");
    }
}

/// How often a command was called.
fn calls_of(command: &str, server: &RedisServer) -> u32 {
    let stats = must(server.command(&["INFO", "commandstats"]));
    let stat = format!("cmdstat_{command}:calls=");
    let calls = stats.text().and_then(|stats| stats.split_once(stat.as_str())).map(|(_, rest)| rest);
    calls.and_then(|rest| rest.split(',').next()).map_or(0, |calls| must(calls.parse()))
}

/// As where a window became a bucket.
#[tokio::test]
async fn a_level_of_which_only_the_log_is_known_is_reckoned_once() {
    let server = must(RedisServer::start());
    let store = must(RedisStore::connect(&server.url()).await);
    let log = |term| ledger::Log::new("tokens", [term]);
    let filled = log(Term::new(20_000, 60 * SECOND));
    let asked = log(Term::bucket(Bucket::new(3_000_000, 60_000_000_000)));
    let mut reads = Vec::new();
    for (number, log, units) in [(1, filled, 20_000), (2, asked.clone(), 1), (3, asked.clone(), 1), (4, asked, 1)] {
        let ask = Ask::new(vec![log], vec![ledger::Run::new(1, [units])]);
        must(store.apply(&Message::new("up", MessageId::new(1, "s", number), ask)).await);
        reads.push(calls_of("lrange", &server));
    }
    assert!(reads[1] > reads[0], "{reads:?}");
    assert_eq!(reads[1..], [reads[1]; 3], "{reads:?}");
}
