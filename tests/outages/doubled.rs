//! Replies that come twice: what comes behind them on that connection answers the wrong messages.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use outgate::ledger::{Ask, Log, Message, MessageId, Run, Term};
use outgate::store::StoreError;
use outgate::testing::{FlakyProxy, Mode};
use outgate::{RedisStore, Store};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Queues of one store.
const QUEUES: u64 = 32;
/// How long a reply is on its way, so that there is always a message under way.
const DELAY: Duration = Duration::from_millis(50);
/// For how long replies are doubled: others are on their way before them, and others come behind.
const MOMENT: Duration = Duration::from_millis(25);
/// Messages of each queue that are sent after that.
const AFTER: usize = 10;

fn message(sender: u64, number: u64) -> Message {
    let log = Log::new("calls", [Term::new(1_000_000, 1_000_000)]);
    // By their last bits short replies are told from each other.
    let id = MessageId::new(sender, "", number * QUEUES + sender);
    Message::new(format!("up-{sender}"), id, Ask::new([log], vec![Run::new(1, [1])]))
}

/// Sends one message after another, until so many were sent after it was over: what failed of those.
async fn queue(store: Arc<RedisStore>, sender: u64, over: watch::Receiver<bool>) -> Vec<StoreError> {
    let (mut after, mut failed) = (0, Vec::new());
    for number in 1.. {
        // So that they do not come all at once.
        sleep(DELAY.mul_f64(fastrand::f64())).await;
        let is_over = *over.borrow();
        let answer = store.apply(&message(sender, number)).await;
        if is_over {
            after += 1;
            failed.extend(answer.err());
        }
        if after == AFTER {
            break;
        }
    }
    failed
}

/// Once replies are no longer doubled, every answer is its own.
pub(crate) async fn heals(store: RedisStore, proxies: &[FlakyProxy]) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (store, (tell, over)) = (Arc::new(store), watch::channel(false));
    // It is connected.
    store.apply(&message(0, 1)).await?;
    let mut queues = JoinSet::new();
    for sender in 1..=QUEUES {
        queues.spawn(queue(Arc::clone(&store), sender, over.clone()));
    }
    let set = |mode| proxies.iter().for_each(|proxy| proxy.set(mode));
    set(Mode::Delay(DELAY));
    sleep(3 * DELAY).await;
    set(Mode::DoubleReplies);
    sleep(MOMENT).await;
    set(Mode::Delay(DELAY));
    tell.send(true)?;
    let failed = queues.join_all().await.concat();
    assert!(failed.is_empty(), "{} of {QUEUES} times {AFTER} failed: {:?}", failed.len(), failed[0]);
    Ok(())
}
