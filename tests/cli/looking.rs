//! What a look shows of limits, and of upstreams that cannot be read.

use std::time::Duration;

use outgate::ledger::{Body, Message, MessageId, Presence, Renewal, ScopeId, ScopePresence};
use outgate::testing::RedisServer;
use outgate::{Limit, RedisStore, Reset, Store as _, Throttle, Upstream};

use tokio::task::JoinSet;

use crate::{json, outgate, uses_github};

#[tokio::test]
async fn the_next_unit_is_that_of_the_burst_as_well() {
    let server = RedisServer::start().unwrap();
    let (burst, plain) = (Limit::per_hour(100).burst(20), Limit::per_day(5_000));
    let ups = [
        Upstream::new("burst-first").limit(burst.clone()).limit(plain.clone()),
        Upstream::new("burst-last").limit(plain).limit(burst),
    ];
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let throttle = Throttle::builder().store(store).upstreams(ups).build().unwrap();
    for (name, of_burst) in [("burst-first", 0), ("burst-last", 1)] {
        for _ in 0..20 {
            drop(throttle.acquire(name).await.unwrap());
        }
        throttle.processes(name).await.unwrap();
        let next = async || throttle.usage(name).await.unwrap().limits[of_burst].next.as_millis();
        let before = next().await;
        let seen = json(&outgate(&server, &["status", name, "--json"]).await.well());
        let after = next().await;
        let limits = &seen[0]["limits"];
        let shown = limits[of_burst]["next_ms"].as_u64().unwrap().into();
        assert!(after > 0 && (after..=before).contains(&shown), "{after} {before} {seen}");
        assert_eq!(limits[1 - of_burst]["next_ms"], 0, "{seen}");
    }
}

#[tokio::test]
async fn an_upstream_that_cannot_be_read_hides_no_other() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let ups = ["github", "stripe"].map(|name| Upstream::new(name).limit(Limit::per_hour(3)));
    let throttle = Throttle::builder().store(store).upstreams(ups).build().unwrap();
    for name in ["github", "stripe"] {
        drop(throttle.acquire(name).await.unwrap());
        throttle.processes(name).await.unwrap();
    }
    server.command(&["SET", "outgate:v1:{mail}:processes", "1"]).unwrap();
    let why = "the key outgate:v1:{mail}:processes holds a string where Outgate keeps a hash: delete it, or choose another prefix";
    let wrong = format!("outgate: mail cannot be read: {why}\n");

    let ended = outgate(&server, &["status"]).await;
    assert_eq!((ended.code, &*ended.wrong), (Some(1), &*wrong));
    let heads: Vec<_> = ended.said.lines().filter(|line| !line.starts_with(' ')).collect();
    let row = format!("mail: cannot be read: {why}");
    assert_eq!(heads, ["github: 1 process, nobody waits", &row, "stripe: 1 process, nobody waits"]);

    let ended = outgate(&server, &["status", "--json"]).await;
    assert_eq!((ended.code, &*ended.wrong), (Some(1), &*wrong));
    let all = json(&ended.said);
    assert_eq!(all[1], serde_json::json!({ "upstream": "mail", "shares": null, "error": why }));
    assert_eq!([0, 2].map(|at| &all[at]["limits"][0]["used"]), [1, 1]);

    let ended = outgate(&server, &["limits"]).await;
    assert_eq!((ended.code, &*ended.said, &*ended.wrong), (Some(1), "github: 3/h\nstripe: 3/h\n", &*wrong));
    outgate(&server, &["status", "stripe"]).await.well();
    outgate(&server, &["pause", "stripe", "5m"]).await.well();
    assert_eq!(outgate(&server, &["pause", "mail", "5m"]).await.wrong(), format!("outgate: {why}\n"));
}

#[tokio::test]
async fn who_has_left_is_not_said_to_be_in_use() {
    let server = RedisServer::start().unwrap();
    uses_github(&server).await.close().await;
    let wrong = outgate(&server, &["status", "github"]).await.wrong();
    assert_eq!(wrong, "outgate: no process has used an upstream \"github\" lately; in use: none\n");
}

#[tokio::test]
async fn a_terminal_obeys_nothing_that_processes_say() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let scope = ScopeId::of(b"m-17");
    let mut presence = Presence::default();
    (presence.described, presence.scopes) = (7, vec![ScopePresence::new(0, scope)]);
    let text = "25/s\u{1b}]0;owned\u{7}\u{9b}31m\n\u{7f}";
    let about = serde_json::json!({
        "kinds": [{ "name": "x-\u{1b}[2J", "everybody": false, "salt": null }],
        "limits": [{ "text": text, "kind": 0, "quota": 25, "in_log": [0, 0, 1] }],
        "logs": [{ "kind": 0, "unit": "calls", "terms": [[25, 1_000_000, 0]] }],
        "names": [[scope.to_string(), "bot\u{1b}[1A"]],
    });
    for name in ["shop", "a\u{1b}]0;owned\u{7}b"] {
        let renewal = Renewal::new(name, presence.clone(), Duration::from_secs(60)).about(about.to_string());
        let message = Message::new(name, MessageId::new(7, "there", 1), Body::Renew(renewal));
        store.apply(&message).await.unwrap();
    }
    let said = outgate(&server, &["status"]).await.well();
    let limit = "25/s\u{fffd}]0;owned\u{fffd}\u{fffd}31m\u{fffd}\u{fffd}";
    assert_eq!(said, format!("shop: 1 process, nobody waits\n  {limit:<32}       0 of 25, bot\u{fffd}[1A\n"));
    assert_eq!(outgate(&server, &["limits"]).await.well(), format!("shop: {limit}\n"));

    let is_obeyed = |letter: char| letter.is_control() && letter != '\n';
    let said = outgate(&server, &["status", "--json"]).await.well();
    assert!(!said.contains(is_obeyed), "{said:?}");
    assert_eq!(json(&said)[0]["limits"][0]["limit"], text, "programs are told all");
    for args in [&["--scope", "nobody"][..], &["--value", "m-17", "--kind", "other"]] {
        let wrong = outgate(&server, &[&["pause", "shop", "5m"], args].concat()).await.wrong();
        assert!(wrong.contains("\u{fffd}[") && !wrong.contains(is_obeyed), "{wrong:?}");
    }
}

#[tokio::test]
async fn processes_that_know_other_boundaries_describe_the_same() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let maps = Upstream::new("maps").limit(Limit::per_day(10_000).resets(Reset::daily("UTC")));
    let throttle = Throttle::builder().store(store.clone()).upstream(maps).build().unwrap();
    drop(throttle.acquire("maps").await.unwrap());
    let text = throttle.processes("maps").await.unwrap().descriptions[0].2.to_string();
    let terms = &json(&text)["logs"][0]["terms"][0];
    let mut says = 1;
    let mut there = async |described: u64, quota: i64, later: i64| {
        let numbers = terms.as_array().unwrap().iter().map(|number| number.as_i64().unwrap()).enumerate();
        let other: Vec<_> = numbers
            .map(|(at, number)| match at {
                0 => quota,
                4.. => number + later,
                _ => number,
            })
            .collect();
        let text = text.replace(&terms.to_string(), &serde_json::json!(other).to_string());
        let mut presence = Presence::default();
        presence.described = described;
        let renewal = Renewal::new("maps", presence, Duration::from_secs(60)).about(text);
        let message = Message::new("maps", MessageId::new(described, "there", says), Body::Renew(renewal));
        says += 1;
        store.apply(&message).await.unwrap();
    };
    let otherwise =
        async || json(&outgate(&server, &["status", "--json"]).await.well())[0]["described_otherwise"].clone();
    there(7, 10_000, 1_000).await;
    there(8, 10_000, -2_000).await;
    assert_eq!(otherwise().await, 0);
    there(9, 9_000, 0).await;
    assert_eq!(otherwise().await, 1);
}

#[tokio::test]
async fn where_none_can_be_read_programs_are_told_of_each() {
    let server = RedisServer::start().unwrap();
    for name in ["mail", "shop"] {
        server.command(&["SET", &format!("outgate:v1:{{{name}}}:processes"), "1"]).unwrap();
    }
    let ended = outgate(&server, &["status", "--json"]).await;
    let all = json(&ended.said);
    assert_eq!((ended.code, &all[0]["upstream"], &all[1]["upstream"]), (Some(1), &"mail".into(), &"shop".into()));
    assert!(all[0]["error"].is_string() && all[1]["error"].is_string(), "{all}");
    assert!(
        ended.wrong.contains("mail cannot be read") && ended.wrong.contains("shop cannot be read"),
        "{}",
        ended.wrong
    );
}

/// What is booked has not started.
#[tokio::test]
async fn calls_of_a_second_are_never_more_than_the_limit_allows() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let up = Upstream::new("up").limit(Limit::per_second(10));
    let throttle = Throttle::builder().store(store).upstream(up).build().unwrap();
    drop(throttle.acquire("up").await.unwrap());
    throttle.processes("up").await.unwrap();
    let mut callers = JoinSet::new();
    for _ in 0..40 {
        let call = throttle.acquire("up");
        callers.spawn(async move { drop(call.await) });
    }
    tokio::task::yield_now().await;
    let mut most = 0;
    while throttle.snapshot().upstream("up").unwrap().callers > 0 {
        let seen = json(&outgate(&server, &["status", "--json"]).await.well());
        most = most.max(seen[0]["calls_per_second"].as_u64().unwrap());
        assert!(most <= 10, "{seen}");
    }
    assert!(most > 0);
}
