//! A refusal that comes back through the middleware.

use std::time::Duration;

use outgate::testing::{Shape, StrictUpstream};
use outgate::{Cause, Error, Limit, MemoryStore, Passage, Throttle, Upstream};

use crate::client;

/// Two processes that believe in 100 calls a second at an upstream which allows one each second.
fn processes() -> [Throttle; 2] {
    let store = MemoryStore::new();
    [(); 2].map(|()| {
        let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_second(100));
        Throttle::builder().store(store.clone()).upstream(up).build().unwrap()
    })
}

#[tokio::test]
async fn a_429_silences_every_process_for_as_long_as_it_says() {
    let upstream = StrictUpstream::builder().limit(1, Duration::from_secs(1), Shape::SlidingLog).start().unwrap();
    let [first, second] = processes();
    let statuses = [client(&first).get(upstream.url()).send().await, client(&first).get(upstream.url()).send().await];
    assert_eq!(statuses.map(|response| response.unwrap().status().as_u16()), [200, 429]);
    for throttle in [&first, &second] {
        match throttle.try_acquire("up").await {
            Err(Error::Throttled { retry_after, paused: Some(pause), .. }) => {
                let half = Duration::from_millis(500);
                assert!(retry_after > half && pause.left > half, "{pause:?}");
                assert_eq!((pause.cause, pause.status), (Cause::Refusal, Some(429)));
            }
            other => panic!("{other:?}"),
        }
    }
    let response = client(&second).get(upstream.url()).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.extensions().get::<Passage>().unwrap().waited > Duration::from_millis(500));
    assert_eq!((upstream.admitted(), upstream.refused()), (2, 1));
}
