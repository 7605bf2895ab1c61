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
