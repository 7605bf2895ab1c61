//! Answers that a cache gives for the upstream, which has not seen the call.

use std::time::Duration;

use outgate::{Feedback, Limit, Throttle, Upstream};
use tokio::time::advance;

use crate::breaking::{Answer, Canned, breaking, call};

#[tokio::test(start_paused = true)]
async fn an_answer_of_a_cache_says_nothing_of_the_upstream() {
    let canned = Canned::new(Answer::Status(401));
    let client = canned.behind(&breaking(|up| up));
    for _ in 0..3 {
        assert_eq!(call(&client).await, Ok(401));
    }
    advance(Duration::from_secs(1)).await;
    canned.answers(Answer::Cached(200));
    assert_eq!(call(&client).await, Ok(200), "it goes to see");
    canned.answers(Answer::Status(401));
    let calls = canned.calls();
    for _ in 0..5 {
        let _ = call(&client).await;
    }
    assert!(canned.calls() <= calls + 1, "{} calls more", canned.calls() - calls);
    canned.answers(Answer::Status(200));
    advance(Duration::from_secs(10)).await;
    assert_eq!((call(&client).await, call(&client).await), (Ok(200), Ok(200)));
}

/// So does a ban that was longer than a pause may last, and which one call tests.
#[tokio::test(start_paused = true)]
async fn nor_does_it_end_a_pause() {
    let canned = Canned::new(Answer::Cached(200));
    let up =
        Upstream::new("loopback").host("127.0.0.1").limit(Limit::per_hour(1_000)).max_pause(Duration::from_secs(60));
    let throttle = Throttle::builder().upstream(up).build().unwrap();
    let client = canned.behind(&throttle);
    throttle.report("loopback", &Feedback::refused(Duration::from_secs(600))).await.unwrap();
    advance(Duration::from_secs(61)).await;
    assert_eq!(call(&client).await, Ok(200), "it goes to see");
    assert!(throttle.usage("loopback").await.unwrap().paused.is_some());
    canned.answers(Answer::Status(200));
    assert_eq!(call(&client).await, Ok(200), "and so does the next");
    assert!(throttle.usage("loopback").await.unwrap().paused.is_none());
}
