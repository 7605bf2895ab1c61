//! Upstreams that share limits with others: each is seen with what is its own.

use std::time::Duration;

use outgate::ledger::ScopeId;
use outgate::testing::RedisServer;
use outgate::{Limit, RedisStore, Scope, Throttle, Upstream};
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;
use tokio::time::sleep;

use crate::{json, outgate};

async fn throttle(server: &RedisServer, upstreams: impl IntoIterator<Item = Upstream>) -> Throttle {
    let store = RedisStore::connect(&server.url()).await.unwrap();
    Throttle::builder().store(store).upstreams(upstreams).build().unwrap()
}

/// What is seen of one.
async fn seen(server: &RedisServer, name: &str) -> Value {
    json(&outgate(server, &["status", name, "--json"]).await.well())[0].take()
}

#[tokio::test]
async fn the_pause_and_the_rate_of_one_are_its_own_and_those_of_all_are_shown_where_they_are_worse() {
    let server = RedisServer::start().unwrap();
    let up = |name| Upstream::new(name).limit(Limit::per_second(20)).shares("account", [Limit::per_second(100)]);
    let throttle = throttle(&server, ["files", "mail"].map(up)).await;
    for name in ["files", "mail"] {
        drop(throttle.acquire(name).await.unwrap());
        throttle.processes(name).await.unwrap();
    }
    let permit = throttle.acquire("files").await.unwrap();
    let headers = HeaderMap::from_iter([(RETRY_AFTER, "600".parse().unwrap())]);
    throttle.answered(&permit, StatusCode::TOO_MANY_REQUESTS, &headers);
    while throttle.usage("files").await.unwrap().paused.is_none() {
        sleep(Duration::from_millis(5)).await;
    }
    let own = ScopeId::of(b"files upstream").to_string();
    outgate(&server, &["slow", "files", "50%", "10m", "--scope", &own]).await.well();

    let minutes = |seen: &Value| seen["paused_ms"].as_u64().unwrap().div_ceil(60_000);
    let shown = async || {
        let (files, mail) = (seen(&server, "files").await, seen(&server, "mail").await);
        ([&files, &mail].map(minutes), [&files, &mail].map(|seen| seen["rate"].as_f64().unwrap()))
    };
    assert_eq!(shown().await, ([10, 0], [0.5, 1.0]));
    let text = outgate(&server, &["status", "files"]).await.well();
    let count = |words: &str| text.matches(words).count();
    assert_eq!((count("  paused for 9m "), count("paused"), count("slowed down to 50%")), (1, 1, 1), "{text}");

    outgate(&server, &["pause", "mail", "20m"]).await.well();
    outgate(&server, &["slow", "mail", "75%", "10m"]).await.well();
    assert_eq!(shown().await, ([20, 20], [0.5, 0.75]));
    outgate(&server, &["release", "files"]).await.well();
    assert_eq!(shown().await, ([0, 0], [1.0, 1.0]));
}

#[tokio::test]
async fn calls_per_second_are_those_of_the_upstream_where_it_counts_them() {
    let server = RedisServer::start().unwrap();
    let up = |name| Upstream::new(name).shares("account", [Limit::per_second(1_000)]);
    let files = up("files").limit(Limit::per_second(1_000));
    let tasks = up("tasks").limit(Limit::per_second(1_000).each(Scope::bearer_token()));
    let throttle = throttle(&server, [files, tasks, up("mail")]).await;
    // A busy machine may look too late.
    for _ in 0..30 {
        drop(throttle.acquire("tasks").scope("s3cret").await.unwrap());
        for name in ["files"].into_iter().chain(["mail"; 20]) {
            drop(throttle.acquire(name).await.unwrap());
        }
        for name in ["files", "tasks", "mail"] {
            throttle.processes(name).await.unwrap();
        }
        let all = json(&outgate(&server, &["status", "--json"]).await.well());
        let calls = [0, 1, 2].map(|at| all[at]["calls_per_second"].as_u64().unwrap());
        assert_eq!([0, 1, 2].map(|at| &all[at]["upstream"]), ["files", "mail", "tasks"], "{all}");
        if calls == [1, 22, 1] {
            return;
        }
        sleep(Duration::from_millis(1_100)).await;
    }
    panic!("they are never told apart");
}

#[tokio::test]
async fn a_token_has_one_scope_of_the_upstream_alone_and_one_of_all_that_share() {
    let server = RedisServer::start().unwrap();
    let (own, common) = (Limit::per_hour(5), Limit::per_hour(9).each(Scope::bearer_token()));
    let up = Upstream::new("files").scope_by(Scope::bearer_token()).limit(own).shares("account", [common.clone()]);
    let throttle = throttle(&server, [up, Upstream::new("mail").shares("account", [common])]).await;
    for _ in 0..2 {
        drop(throttle.acquire("files").scope_of("bearer_token", "s3cret").await.unwrap());
    }
    for name in ["files", "mail"] {
        drop(throttle.acquire(name).scope_of("bearer_token", "other").await.unwrap());
        throttle.processes(name).await.unwrap();
    }
    let used_of_files = async || {
        let files = seen(&server, "files").await;
        let limits = files["limits"].as_array().unwrap().iter();
        let line = |limit: &Value| (limit["used"].as_u64().unwrap(), limit["quota"].as_u64().unwrap());
        let mut lines: Vec<_> = limits.map(line).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(used_of_files().await, [(1, 5), (2, 5), (2, 9), (2, 9)]);
    let slow = async |name: &str, kind: &[&str]| {
        let args = [&["slow", name, "10%", "10m", "--value", "s3cret"][..], kind].concat();
        outgate(&server, &args).await
    };
    slow("files", &[]).await.well();
    assert_eq!(used_of_files().await, [(1, 5), (2, 1), (2, 9), (2, 9)]);
    outgate(&server, &["release", "files"]).await.well();
    slow("files", &["--kind", "account/bearer_token"]).await.well();
    assert_eq!(used_of_files().await, [(1, 5), (2, 1), (2, 5), (2, 9)]);
    outgate(&server, &["release", "files"]).await.well();
    for (name, kind) in
        [("files", &["--kind", "bearer_token"][..]), ("mail", &["--kind", "bearer_token"]), ("mail", &[])]
    {
        slow(name, kind).await.well();
    }
    assert_eq!(used_of_files().await, [(1, 5), (2, 1), (2, 1), (2, 9)]);
    let wrong = slow("files", &["--kind", "x-merchant"]).await.wrong();
    assert!(wrong.ends_with("there are: bearer_token, account/bearer_token\n"), "{wrong}");
}

/// While a release is rolled out some of its processes share its limits with others, or have other shards.
#[tokio::test]
async fn all_processes_are_told_wherever_they_keep_the_upstream() {
    let server = RedisServer::start().unwrap();
    let alone = || Upstream::new("mail").limit(Limit::per_hour(5));
    let under = |name| alone().shares(name, [Limit::per_hour(9)]);
    let sharded = |shards| Upstream::new("mail").limit(Limit::per_hour(5).each(Scope::header("x-m"))).shards(shards);
    for releases in [vec![under("account"), alone(), under("before")], vec![sharded(2), sharded(8), sharded(8)]] {
        let mut processes = Vec::new();
        for release in releases {
            let process = throttle(&server, [release]).await;
            drop(process.acquire("mail").await.unwrap());
            process.processes("mail").await.unwrap();
            processes.push(process);
        }
        let states = async || {
            let mut states = Vec::new();
            for process in &processes {
                let usage = process.usage("mail").await.unwrap();
                let used: u32 = usage.limits.iter().map(|limit| limit.used).sum();
                states.push((usage.paused.is_some(), usage.rate, used > 0));
            }
            states
        };
        assert_eq!(states().await, [(false, 1.0, true); 3]);
        outgate(&server, &["pause", "mail", "5m"]).await.well();
        outgate(&server, &["slow", "mail", "50%", "5m"]).await.well();
        assert_eq!(states().await, [(true, 0.5, true); 3]);
        outgate(&server, &["release", "mail"]).await.well();
        outgate(&server, &["reset", "mail", "--yes"]).await.well();
        assert_eq!(states().await, [(false, 1.0, false); 3]);
        for process in processes {
            process.close().await;
        }
    }
}
