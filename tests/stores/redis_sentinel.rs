//! A store in a primary that Sentinels name, to be checked.

use outgate::RedisStore;
use outgate::testing::{RedisSentinel, RedisServer};

use super::redis::{Redis, Servers, must};

impl Servers for RedisSentinel {
    /// What it has, its replica has as well.
    fn all(&self) -> &[RedisServer] {
        &self.servers()[..1]
    }
}

impl Redis<RedisSentinel> {
    pub(super) async fn by_sentinels() -> Self {
        let redis = must(RedisSentinel::start(1));
        let builder = || RedisStore::sentinel(RedisSentinel::NAME, redis.urls());
        let (store, running) = (must(builder().connect().await), must(builder().prefix("running").connect().await));
        let another = must(builder().connect().await);
        Self::of(redis, [store, another], running)
    }
}
