//! Which keys there are, and who changes none.

use std::collections::BTreeMap;
use std::time::Duration;

use outgate::ledger::Log as StoredLog;
use outgate::ledger::{Ask, Body, Message, MessageId, Pause, Run, ScopeId, Slots, Term};
use outgate::testing::{RedisServer, Reply, RespClient};
use outgate::{RedisStore, Store};

use crate::{Desk, Log, SECOND, must, texts};

/// Every key, its content, and when it expires.
pub(crate) fn keyspace(client: &mut RespClient) -> BTreeMap<String, (Reply, Reply)> {
    let keys = texts(&must(client.command(&["KEYS", "*"])));
    let mut of = |verb: &str, key: &str| must(client.command(&[verb, key]));
    keys.into_iter().map(|key| (key.clone(), (of("DUMP", &key), of("PEXPIRETIME", &key)))).collect()
}

/// Commands that the server has run since it was asked last, but those of this question.
fn commands(client: &mut RespClient) -> Vec<String> {
    let stats = must(client.command(&["INFO", "commandstats"]));
    let names = stats.text().unwrap_or_default().lines().filter_map(|line| line.strip_prefix("cmdstat_"));
    let names = names.filter_map(|line| line.split_once(':')).map(|(name, _)| name.to_owned());
    let mut names: Vec<String> = names.filter(|name| !["info", "config|resetstat"].contains(&&**name)).collect();
    must(client.command(&["CONFIG", "RESETSTAT"]));
    names.sort();
    names
}

#[tokio::test]
async fn all_keys_of_one_upstream_share_a_hash_slot_but_not_all_upstreams_do() {
    let server = must(RedisServer::start());
    let slots = must(RedisServer::start_with(&["--cluster-enabled", "yes"]));
    let store = must(RedisStore::builder(&server.url()).prefix("mine").connect().await);
    let scope = Some(ScopeId::from_bits(0xab));
    let terms = || [Term::new(4, 60 * SECOND), Term::new(20, 90 * SECOND)];
    let logs = [
        StoredLog::new("calls", terms()),
        StoredLog::new("calls", terms()).of(scope),
        StoredLog::new("points", terms()).of(scope),
    ];
    for upstream in ["api.example", "other"] {
        let message =
            |sender, stream: &str, body: Body| Message::new(upstream, MessageId::new(sender, stream, 1), body);
        let ask = Ask::new(logs.clone(), vec![Run::new(2, [1, 1, 2])]);
        let grant = must(store.apply(&message(1, "ab", ask.into())).await).grant();
        let now = grant.unwrap_or_else(|| unreachable!()).now;
        let back = Ask::hand_back(logs.clone(), vec![Slots::new(1, now, [1, 1, 2])]);
        must(store.apply(&message(2, "ab", back.into())).await);
        for scope in [None, scope] {
            let pause = Body::Pause { scope, pause: Pause::new(Duration::from_secs(9)) };
            must(store.apply(&message(3, if scope.is_some() { "!s" } else { "!" }, pause)).await);
        }
        let mut ask = Ask::new(logs.clone(), vec![Run::new(1, [4, 4, 4])]);
        ask.insist = true;
        must(store.apply(&message(u64::MAX, "ab", ask.into())).await);
        must(store.apply(&Message::new(upstream, MessageId::nobodys(), Body::usage(logs.clone()))).await);
    }
    let mut client = must(server.client());
    let found = keyspace(&mut client);
    let scope = format!("/{:032x}", 0xab);
    let names = [
        "/:log:calls",
        "/:log:points",
        "/:state",
        ":log:calls",
        ":replay:1:ab",
        ":replay:2:ab",
        ":replay:3:!",
        ":replay:3:!s",
        ":replay:ffffffffffffffff:ab",
        ":state",
    ];
    let of_upstream = |upstream: &str| names.map(|name| format!("mine:v1:{{{upstream}}}{}", name.replace('/', &scope)));
    let mut expected = [of_upstream("api.example"), of_upstream("other")].concat();
    // In which format the prefix is kept.
    expected.push("mine:v1:{~format}".to_owned());
    expected.sort();
    assert_eq!(found.keys().cloned().collect::<Vec<_>>(), expected);
    for (key, (_, expires)) in &found {
        assert!(expires.int().is_some_and(|at| at > 0), "{key} never expires: {expires:?}");
    }
    let slot = |key: &String| must(slots.command(&["CLUSTER", "KEYSLOT", key])).int();
    let of_upstreams = ["api.example", "other"].map(|upstream| of_upstream(upstream).each_ref().map(slot));
    let is_one = |slots: &[Option<i64>; 10]| slots[0].is_some() && slots.iter().all(|slot| *slot == slots[0]);
    assert!(of_upstreams.iter().all(is_one), "all keys of one upstream lie in one slot: {of_upstreams:?}");
    assert_ne!(of_upstreams[0], of_upstreams[1], "but not all upstreams in one");
}

#[test]
fn who_is_refused_changes_nothing_anywhere() {
    let server = must(RedisServer::start());
    let logs: [Log<'_>; 2] = [("calls", &[(4, 60 * SECOND)]), ("5f/points", &[(9, 90 * SECOND), (7, 30 * SECOND)])];
    for (upstream, pause, insist) in [("full", 0, false), ("paused", 60 * SECOND, false), ("claimed", 0, true)] {
        let mut desk = Desk::new(&server, upstream, None);
        desk.book(&logs, &[(3, None, &[1, 1])]);
        if pause > 0 {
            desk.pause(Some("5f"), pause);
        }
        desk.insist = insist;
        desk.book(&logs, &[(2, None, &[3, 3])]);
        desk.insist = false;
        let before = keyspace(&mut desk.client);
        assert!(before.len() > 3);
        for (sender, wait) in [(2, 0), (2, 5), (3, SECOND)] {
            desk.sender = sender;
            let answer = desk.book(&logs, &[(3, Some(wait), &[2, 2]), (2, Some(wait), &[3, 1])]);
            assert_eq!((answer[1], answer[2]), (0, 0), "{upstream}: refused, nobody waits: {answer:?}");
            assert!(!desk.said.remembered);
            assert_eq!(keyspace(&mut desk.client), before, "{upstream}, {wait}");
        }
        desk.usage(&logs);
        desk.book(&logs, &[]);
        assert_eq!(keyspace(&mut desk.client), before, "{upstream}: nor who only looks");
    }
    let mut desk = Desk::new(&server, "untouched", None);
    let before = keyspace(&mut desk.client);
    desk.usage(&logs);
    desk.book(&logs, &[]);
    desk.pause(None, 0);
    assert_eq!(keyspace(&mut desk.client), before, "an upstream that nobody asked for stays away");
}

#[test]
fn a_put_off_that_repeats_writes_nothing() {
    let server = must(RedisServer::start());
    let logs: [Log<'_>; 2] = [("calls", &[(4, 60 * SECOND)]), ("5f/points", &[(9, 90 * SECOND), (7, 60 * SECOND)])];
    for (upstream, pause) in [("full", 0), ("paused", 60 * SECOND)] {
        let mut desk = Desk::new(&server, upstream, None);
        desk.book(&logs, &[(4, None, &[1, 1])]);
        if pause > 0 {
            desk.pause(None, pause);
        }
        for sender in 1..10 {
            desk.sender = sender;
            desk.book(&logs, &[(3, None, &[1, 1])]);
            assert!(desk.said.remembered, "{upstream}: it is counted");
            desk.previous = desk.number - 1;
            let before = keyspace(&mut desk.client);
            commands(&mut desk.client);
            for _ in 0..3 {
                assert!(desk.book(&logs, &[(3, None, &[1, 1])])[1] > 0, "{upstream}: put off again");
                assert!(!desk.said.remembered, "and a copy of it may act");
                assert_eq!(desk.said.others, i64::try_from(sender).unwrap_or(0) - 1);
            }
            let run = commands(&mut desk.client);
            assert_eq!(run, ["eval", "get", "lindex", "time"], "{upstream}: nothing but reads");
            assert_eq!(keyspace(&mut desk.client), before, "{upstream}");
            desk.previous = 0;
        }
    }
}
