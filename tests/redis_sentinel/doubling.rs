//! Replies of a primary that come twice.

use outgate::RedisStore;
use outgate::testing::{FlakyProxy, RedisSentinel};

use crate::Outcome;
use crate::doubled::heals;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_replies_of_a_primary_are_no_longer_doubled_every_answer_is_its_own() -> Outcome {
    let redis = RedisSentinel::start(0)?;
    let proxy = FlakyProxy::start(redis.servers()[0].addr())?;
    // That is where the Sentinels say that it is.
    let port = proxy.addr().port().to_string();
    for sentinel in redis.sentinels() {
        sentinel.command(&["SENTINEL", "MONITOR", "proxied", "127.0.0.1", &port, "2"])?;
    }
    heals(RedisStore::sentinel("proxied", redis.urls()).connect().await?, &[proxy]).await
}
