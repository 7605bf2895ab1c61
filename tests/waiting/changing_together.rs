//! Upstreams that are changed again while they are being changed, as from two threads: here in the moment in which the first change tells of
//! one of its upstreams, and of the other not yet.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use outgate::{Acquire, Error, Limit, Throttle, Upstream};
use tokio::time::sleep;
use tracing::{Dispatch, Event, Subscriber};
use tracing_subscriber::layer::{self, Layer, SubscriberExt as _};

const SECOND: Duration = Duration::from_secs(1);

type Acquiring = <Acquire as IntoFuture>::IntoFuture;

/// Does something at the next event.
struct Meanwhile(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl<S: Subscriber> Layer<S> for Meanwhile {
    fn on_event(&self, _: &Event<'_>, _: layer::Context<'_, S>) {
        let first = self.0.lock().unwrap().take();
        if let Some(act) = first {
            act();
        }
    }
}

fn up(name: &str) -> Upstream {
    Upstream::new(name).limit(Limit::per_minute(1))
}

/// Replaces both upstreams, of which the second is changed by `again` meanwhile.
fn replace_both(throttle: &Throttle, again: impl FnOnce() + Send + 'static) {
    // Beside a single subscriber, what another test's thread traces first is never asked of it.
    let _second = Dispatch::new(tracing_subscriber::registry());
    let meanwhile = Meanwhile(Mutex::new(Some(Box::new(again))));
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(meanwhile));
    throttle.update_all([up("first"), up("second").max_waiting(100)]).unwrap();
}

fn throttle() -> Throttle {
    Throttle::builder().upstream(up("first")).upstream(up("second")).build().unwrap()
}

/// A caller who waits for the second, and is polled once.
async fn waiting(throttle: &Throttle) -> Arc<Mutex<Pin<Box<Acquiring>>>> {
    drop(throttle.acquire("second").await.unwrap());
    let waits = Arc::new(Mutex::new(Box::pin(throttle.acquire("second").into_future())));
    assert!(poll(&waits).is_pending());
    sleep(SECOND).await;
    waits
}

fn poll(waits: &Mutex<Pin<Box<Acquiring>>>) -> Poll<Result<(), Error>> {
    waits.lock().unwrap().as_mut().poll(&mut Context::from_waker(Waker::noop())).map_ok(drop)
}

#[tokio::test(start_paused = true)]
async fn who_waits_while_another_change_is_under_way_waits_on() {
    let throttle = throttle();
    let waits = waiting(&throttle).await;
    let (other, waiter) = (throttle.clone(), Arc::clone(&waits));
    replace_both(&throttle, move || {
        other.update(up("second").limit(Limit::per_hour(9))).unwrap();
        assert!(poll(&waiter).is_pending());
    });
    sleep(61 * SECOND).await;
    let waits = Arc::into_inner(waits).unwrap().into_inner().unwrap();
    assert_eq!(waits.await.unwrap().waited().as_secs(), 62);
}

#[tokio::test(start_paused = true)]
async fn who_waits_while_another_removes_the_upstream_is_told_so() {
    let throttle = throttle();
    let waits = waiting(&throttle).await;
    let (other, waiter) = (throttle.clone(), Arc::clone(&waits));
    replace_both(&throttle, move || {
        other.remove("second").unwrap();
        let told = poll(&waiter);
        assert!(matches!(told, Poll::Ready(Err(Error::UnknownUpstream { .. }))), "{told:?}");
    });
}

#[tokio::test(start_paused = true)]
async fn as_many_may_wait_as_the_last_change_says() {
    let throttle = throttle();
    let other = throttle.clone();
    replace_both(&throttle, move || other.update(up("second").max_waiting(1)).unwrap());
    let _waits = waiting(&throttle).await;
    let refused = throttle.acquire("second").await.map(drop);
    assert!(matches!(refused, Err(Error::TooManyWaiting { max_waiting: 1, .. })), "{refused:?}");
}
