//! Requests while the store cannot answer, by policy.

use std::time::Duration;

use outgate::ledger::Message;
use outgate::store::{Applying, StoreError, StoreErrorKind, WithoutStore};
use outgate::testing::{Shape, StrictUpstream};
use outgate::{Error, Limit, Passage, Store, Throttle, Upstream};

use crate::client;

/// A store that cannot be reached.
#[derive(Debug)]
struct Away;

impl Store for Away {
    fn apply<'a>(&'a self, _: &'a Message) -> Applying<'a> {
        Applying::ready(Err(StoreError::new(StoreErrorKind::Unreachable, "it is away")))
    }
}

fn throttle(policy: WithoutStore) -> Throttle {
    let up = Upstream::new("loopback").host("127.0.0.1").limit(Limit::per_hour(2)).retry_refused(1);
    Throttle::builder().store(Away).without_store(policy).upstream(up).build().unwrap()
}

fn strict() -> StrictUpstream {
    StrictUpstream::builder().limit(2, Duration::from_secs(60), Shape::SlidingLog).start().unwrap()
}

#[tokio::test]
async fn a_response_says_that_its_call_went_without_the_store_and_a_pause_is_kept_all_the_same() {
    let (upstream, throttle) = (strict(), throttle(WithoutStore::SendUnthrottled));
    let client = client(&throttle);
    let get = || client.get(upstream.url()).timeout(Duration::from_secs(5)).send();
    for _ in 0..2 {
        let response = get().await.unwrap();
        let passage = response.extensions().get::<Passage>().unwrap();
        assert!(passage.without_store && passage.waited < Duration::from_millis(500), "{passage:?}");
    }
    // The upstream refuses the third for most of a minute: longer than it would wait to be sent again.
    let refused = get().await.unwrap_err();
    assert!(matches!(Error::find(&refused), Some(Error::Throttled { paused: Some(_), .. })), "{refused:?}");
    let refused = get().await.unwrap_err();
    assert!(matches!(Error::find(&refused), Some(Error::Throttled { paused: Some(_), .. })), "{refused:?}");
    assert_eq!((upstream.admitted(), upstream.refused()), (2, 1));
}

#[tokio::test]
async fn a_request_that_is_refused_for_want_of_the_store_is_not_sent() {
    let (upstream, throttle) = (strict(), throttle(WithoutStore::Refuse));
    for _ in 0..2 {
        let error = client(&throttle).get(upstream.url()).send().await.unwrap_err();
        assert!(matches!(Error::find(&error), Some(Error::StoreUnavailable { .. })), "{error:?}");
    }
    assert_eq!(upstream.arrivals(), [], "nothing arrives");
}
