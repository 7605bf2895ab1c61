//! What a look shows of limits, and of upstreams that cannot be read.

use outgate::testing::RedisServer;
use outgate::{Limit, RedisStore, Throttle, Upstream};

use crate::{json, outgate};

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
