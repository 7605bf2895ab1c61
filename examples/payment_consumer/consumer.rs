//! One consumer: takes entries out of the queue, makes what they say, and acknowledges them.
//!
//! It has no orderly end. When its stdin ends, whoever started it has gone, and so does it; others claim what it had in hand.

use std::error::Error;
use std::io::{self, Read as _};
use std::sync::Arc;
use std::{process, thread};

use redis::RedisResult;
use tokio::time::{Instant, sleep};

use crate::explain::explain;
use crate::hands::{Hands, Held};
use crate::order::Order;
use crate::pay::Payer;
use crate::queue::{Entry, LOST_AFTER, Queue};

/// An entry that was delivered more often is a dead letter.
const MOST_DELIVERIES: u32 = 5;

/// What a consumer needs to know.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What the group calls it
    #[arg(long)]
    pub(crate) name: String,
    /// The URL of the Redis with the queue, and with what the throttles share
    #[arg(long)]
    pub(crate) redis: String,
    /// Host and port of each gateway
    #[arg(long = "gateway")]
    pub(crate) gateways: Vec<String>,
}

/// What the tasks of a consumer share.
#[derive(Clone)]
struct Consumer {
    /// Nobody blocks it by reading.
    queue: Queue,
    hands: Hands,
    payer: Arc<Payer>,
}

pub(crate) async fn run(args: Args) -> Result<(), Box<dyn Error>> {
    end_with_stdin();
    let reads = Queue::open(&args.redis, &args.name).await?;
    let queue = Queue::open(&args.redis, &args.name).await?;
    let consumer = Consumer { queue, hands: Hands::empty(), payer: Arc::new(Payer::new(&args).await?) };
    tokio::try_join!(consumer.clone().keep(), consumer.consume(reads))?;
    Ok(())
}

/// A thread listens, so that nothing here can be too busy to end.
fn end_with_stdin() {
    thread::spawn(|| {
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        process::exit(1);
    });
}

impl Consumer {
    /// Says again and again what is in hand. A payment may wait for its slot for longer than entries of the dead lie.
    async fn keep(mut self) -> RedisResult<()> {
        loop {
            sleep(LOST_AFTER / 4).await;
            self.queue.keep(&self.hands.ids()).await?;
        }
    }

    async fn consume(mut self, mut reads: Queue) -> RedisResult<()> {
        let (mut cursor, mut claimed) = ("0-0".to_owned(), Instant::now());
        loop {
            let room = self.hands.room().await;
            if claimed.elapsed() >= LOST_AFTER / 4 {
                claimed = Instant::now();
                let entries;
                (cursor, entries) = self.queue.claim(room, &cursor).await?;
                self.take(entries).await?;
            }
            let entries = reads.read(room.min(16)).await?;
            self.take(entries).await?;
        }
    }

    async fn take(&mut self, entries: Vec<Entry>) -> RedisResult<()> {
        for entry in entries {
            let Some(order) = Order::of(&entry.fields) else {
                self.queue.bury(&entry, "not an order").await?;
                continue;
            };
            let Some(held) = self.hands.take(&entry.id).await else { continue };
            if entry.deliveries > MOST_DELIVERIES {
                self.queue.bury(&entry, "failed too often").await?;
            } else {
                tokio::spawn(self.clone().make(entry, order, held));
            }
        }
        Ok(())
    }

    /// Makes an order, and acknowledges its entry after success only. Otherwise it lies there until somebody claims it.
    async fn make(mut self, entry: Entry, order: Order, _held: Held) {
        match self.payer.pay(&order, &entry.id).await {
            Ok(status) if status.is_success() => {
                if let Err(error) = self.queue.done(&entry.id).await {
                    eprintln!("not acknowledged: {}", explain(&error));
                }
            }
            // The gateway has its reasons, which people read of dead letters.
            Ok(_) => {}
            Err(error) => eprintln!("not sent: {}", explain(&*error)),
        }
    }
}
