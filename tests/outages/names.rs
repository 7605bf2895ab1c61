//! Two processes of one name: a machine that was cloned while it ran.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use outgate::ledger::{Message, NOBODY};
use outgate::store::Applying;
use outgate::store::StoreError;
use outgate::testing::RedisServer;
use outgate::testing::oracle::worst_window;
use outgate::{Limit, RedisStore, Store};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::scene::{Outcome, throttle};
use crate::traces::Recorder;

const NAME: u64 = 7;
const CALLERS: usize = 8;
const QUOTA: u32 = 20;
const WINDOW: Duration = Duration::from_millis(400);

/// A store that knows the first name of its process as one that others have, too.
#[derive(Clone, Debug)]
struct Namesake {
    inner: RedisStore,
    first: Arc<OnceLock<u64>>,
    /// When the process took another name.
    renamed: Arc<OnceLock<Instant>>,
}

impl Namesake {
    fn new(server: &RedisServer) -> Result<Self, StoreError> {
        Ok(Self { inner: RedisStore::open(&server.url())?, first: Arc::default(), renamed: Arc::default() })
    }

    fn name(&self, sender: u64) -> u64 {
        if sender == NOBODY {
            return NOBODY; // It asks for the time.
        }
        if *self.first.get_or_init(|| sender) == sender {
            return NAME;
        }
        self.renamed.get_or_init(Instant::now);
        sender
    }
}

impl Store for Namesake {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        let mut message = message.clone();
        message.id.sender = self.name(message.id.sender);
        Applying::pending(async move { self.inner.apply(&message).await })
    }
}

#[tokio::test]
async fn two_processes_of_one_name_share_the_quota_as_soon_as_one_is_told() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let server = RedisServer::start()?;
    let limit = Limit::new(QUOTA, WINDOW).guard(Duration::from_millis(100));
    let stores = [Namesake::new(&server)?, Namesake::new(&server)?];
    let begin = Instant::now();
    let mut callers = JoinSet::new();
    for store in &stores {
        let throttle = throttle(store.clone(), limit.clone())?;
        for _ in 0..CALLERS {
            let throttle = throttle.clone();
            callers.spawn(async move {
                let mut starts = Vec::new();
                while begin.elapsed() < Duration::from_secs(4) {
                    drop(throttle.acquire("up").await?);
                    starts.push(i64::try_from(begin.elapsed().as_micros()).unwrap_or(i64::MAX));
                }
                Ok::<_, outgate::Error>(starts)
            });
        }
    }
    let mut starts = callers.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    starts.sort_unstable();
    let window = i64::try_from(WINDOW.as_micros())?;
    let renamed: Vec<_> = stores.iter().filter_map(|store| store.renamed.get()).collect();
    let first = renamed.first().ok_or("nobody was told")?.duration_since(begin);
    assert!(first < WINDOW, "with the first messages: {first:?}");
    let told = i64::try_from(first.as_micros())?;
    let worst = worst_window(&starts, window);
    assert!(worst.count <= u64::from(QUOTA) + CALLERS as u64, "one message at most acts twice: {worst:?}");
    let after: Vec<i64> = starts.iter().copied().filter(|&start| start > told + window).collect();
    let worst = worst_window(&after, window);
    assert!(worst.count <= u64::from(QUOTA), "{worst:?}");
    assert!(after.len() > 60, "and the quota is used: {}", after.len());
    let told = recorder.news().into_iter().filter(|line| line.starts_with("WARN another process has the same name"));
    assert_eq!(told.count(), renamed.len(), "each is warned once");
    Ok(())
}
