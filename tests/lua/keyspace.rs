//! Which keys there are, and that who is refused leaves none.

use std::collections::BTreeMap;
use std::time::Duration;

use outgate::ledger::Log as StoredLog;
use outgate::ledger::Term;
use outgate::ledger::{Ask, HandBack, Hold, Home, MessageId, Run, Slots};
use outgate::testing::{RedisServer, Reply, RespClient};
use outgate::{RedisStore, Store};

use crate::{Desk, Log, SECOND, must, texts};

/// Every key, its content, and when it expires.
fn keyspace(client: &mut RespClient) -> BTreeMap<String, (Reply, Reply)> {
    let keys = texts(&must(client.command(&["KEYS", "*"])));
    let mut of = |verb: &str, key: &str| must(client.command(&[verb, key]));
    keys.into_iter().map(|key| (key.clone(), (of("DUMP", &key), of("PEXPIRETIME", &key)))).collect()
}

#[tokio::test]
async fn all_keys_of_one_upstream_share_a_hash_slot_but_not_all_upstreams_do() {
    let server = must(RedisServer::start());
    let slots = must(RedisServer::start_with(&["--cluster-enabled", "yes"]));
    let store = must(RedisStore::builder(&server.url()).prefix("mine").connect().await);
    let homes =
        [Home::new("api.example", Some("5f3a")), Home::new("api.example", Some("77c1")), Home::new("other", None)];
    let logs =
        [StoredLog::new("calls", [Term::new(2, 60 * SECOND)]), StoredLog::new("points", [Term::new(20, 60 * SECOND)])];
    for home in &homes {
        let grant = must(store.book(&Ask::new(home.clone(), 1, 1, logs.clone(), vec![Run::new(2, [1, 5])])).await);
        let slots = vec![Slots::new(1, grant.now, [1, 5])];
        must(store.hand_back(&HandBack::new(home.clone(), 2, 1, logs.clone(), slots)).await);
        must(store.hold(home, MessageId::new(3, 1), &Hold::new(Duration::from_secs(9))).await);
        let mut ask = Ask::new(home.clone(), u64::MAX, 1, logs.clone(), vec![Run::new(1, [2, 5])]);
        ask.insist = true;
        must(store.book(&ask).await);
        must(store.usage(home, &logs).await);
    }
    let mut client = must(server.client());
    let found = keyspace(&mut client);
    let names = [
        "asking",
        "claim",
        "log:calls",
        "log:points",
        "seen:1",
        "seen:2",
        "seen:3:told",
        "seen:ffffffffffffffff",
        "told",
    ];
    let of_home = |home: &Home| {
        let (upstream, scope) = home.split();
        names.map(|name| format!("mine:v1:{{{upstream}}}{scope}:{name}"))
    };
    let mut expected: Vec<String> = homes.iter().flat_map(of_home).collect();
    expected.sort();
    assert_eq!(found.keys().cloned().collect::<Vec<_>>(), expected);
    for (key, (_, expires)) in &found {
        assert!(expires.int().is_some_and(|at| at > 0), "{key} never expires: {expires:?}");
    }
    let slot = |key: &String| must(slots.command(&["CLUSTER", "KEYSLOT", key])).int();
    let of_homes: Vec<_> = homes.iter().map(|home| of_home(home).each_ref().map(slot)).collect();
    assert!(
        of_homes.iter().all(|slots| slots[0].is_some() && slots.iter().all(|slot| *slot == slots[0])),
        "{of_homes:?}"
    );
    assert_eq!(of_homes[0], of_homes[1], "all keys of one upstream lie in one slot");
    assert_ne!(of_homes[0], of_homes[2], "but not all upstreams in one");
}

#[test]
fn who_is_refused_changes_nothing_anywhere() {
    let server = must(RedisServer::start());
    let logs: [Log<'_>; 2] = [("calls", &[(4, 60 * SECOND)]), ("points", &[(9, 90 * SECOND), (7, 30 * SECOND)])];
    for (home, hold, insist) in [("full", 0, false), ("held", 60 * SECOND, false), ("claimed", 0, true)] {
        let mut desk = Desk::new(&server, home, None);
        desk.book(&logs, &[(3, None, &[1, 1])]);
        if hold > 0 {
            desk.hold(hold);
        }
        desk.insist = insist;
        desk.book(&logs, &[(2, None, &[3, 3])]);
        desk.insist = false;
        let before = keyspace(&mut desk.client);
        assert!(before.len() > 3);
        for (sender, wait) in [(2, 0), (2, 5), (3, SECOND)] {
            desk.sender = sender;
            let reply = desk.book(&logs, &[(3, Some(wait), &[2, 2]), (2, Some(wait), &[3, 1])]);
            assert_eq!((reply[1], reply[2]), (0, 0), "{home}: refused, nobody waits: {reply:?}");
            assert_eq!(keyspace(&mut desk.client), before, "{home}, {wait}");
        }
        desk.usage(&logs);
        desk.book(&logs, &[]);
        assert_eq!(keyspace(&mut desk.client), before, "{home}: nor who only looks");
    }
    let mut desk = Desk::new(&server, "untouched", None);
    let before = keyspace(&mut desk.client);
    desk.usage(&logs);
    desk.book(&logs, &[]);
    desk.hold(0);
    assert_eq!(keyspace(&mut desk.client), before, "a home that nobody asked for stays away");
}
