//! An upstream that is observed: requests go on as if we were not there, and what responses say is taken note of.

use std::time::Duration;

use outgate::testing::{Shape, StrictUpstream};
use outgate::{Error, Limit, MemoryStore, Passage, Throttle, Upstream};

use crate::{client, plain};

#[tokio::test]
async fn nothing_is_refused_held_up_or_sent_again() {
    let upstream = StrictUpstream::builder().limit(2, Duration::from_secs(60), Shape::SlidingLog).start().unwrap();
    let up = || Upstream::new("up").host("127.0.0.1").limit(Limit::per_minute(3));
    let store = MemoryStore::new();
    let observing = up().observe().retry_refused(5).break_after_unauthorized(1);
    let observing = Throttle::builder().store(store.clone()).upstream(observing).build().unwrap();
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let response = client(&observing).get(upstream.url()).send().await.unwrap();
        let passage = response.extensions().get::<Passage>().unwrap();
        assert_eq!((passage.waited, passage.late), (Duration::ZERO, Duration::ZERO));
        statuses.push(response.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert_eq!(upstream.arrivals().len(), 4, "none is sent again");
    let observed = observing.usage("up").await.unwrap().observed.unwrap();
    assert_eq!((observed.calls, observed.undecided), (4, 1), "the last one's shadow waits in the pause");
    // Whoever is not observed hears of the pause.
    let throttling = Throttle::builder().store(store).upstream(up().max_wait(Duration::ZERO)).build().unwrap();
    let refused = client(&throttling).get(upstream.url()).send().await.unwrap_err();
    assert!(matches!(Error::find(&refused), Some(Error::Throttled { .. })), "{refused:?}");
}

#[tokio::test]
async fn calls_to_a_host_that_cannot_be_reached_go_on_as_well() {
    let nobody = outgate::testing::Fault::RefuseConnection.start().unwrap();
    let (up, store) = (Upstream::new("up").host("127.0.0.1").limit(Limit::per_minute(100)), MemoryStore::new());
    let of = |up: Upstream| Throttle::builder().store(store.clone()).upstream(up).build().unwrap();
    let throttle = of(up.clone().observe());
    let client = reqwest_middleware::ClientBuilder::new(plain()).with(throttle.middleware()).build();
    for _ in 0..20 {
        assert!(client.get(nobody.url()).send().await.unwrap_err().is_connect());
    }
    assert_eq!(throttle.usage("up").await.unwrap().observed.unwrap().calls, 20);
    throttle.close().await;
    assert_eq!(of(up).usage("up").await.unwrap().limits[0].used, 0, "their slots went back");
}
