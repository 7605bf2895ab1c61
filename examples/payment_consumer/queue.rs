//! The queue: a Redis Stream, and a group of consumers.

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError, RedisResult, cmd, pipe};

use crate::order::Order;

const STREAM: &str = "payments";
const DEAD: &str = "payments:dead";
const GROUP: &str = "consumers";
/// An entry of which its consumer says nothing for so long is lost to it. Consumers say so four times as often.
pub(crate) const LOST_AFTER: Duration = Duration::from_secs(1);
/// How long a read waits for entries.
const BLOCK: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(10);

/// An entry, and how often it was delivered, this time included.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: String,
    pub(crate) fields: HashMap<String, String>,
    pub(crate) deliveries: u32,
}

type Entries = Vec<(String, HashMap<String, String>)>;

/// The queue, as one consumer sees it. Reads block its connection: what must not wait for them takes another.
#[derive(Clone)]
pub(crate) struct Queue {
    connection: MultiplexedConnection,
    consumer: String,
}

impl Queue {
    pub(crate) async fn open(url: &str, consumer: &str) -> RedisResult<Self> {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        let connection = Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Self { connection, consumer: consumer.to_owned() })
    }

    /// Makes the group, and puts orders into the queue.
    pub(crate) async fn fill(&mut self, orders: impl Iterator<Item = Order>) -> RedisResult<()> {
        let mut pipe = pipe();
        pipe.cmd("XGROUP").arg(&["CREATE", STREAM, GROUP, "0", "MKSTREAM"]).ignore();
        for order in orders {
            pipe.cmd("XADD").arg(&[STREAM, "*"]);
            for (name, value) in order.fields() {
                pipe.arg(name).arg(value);
            }
            pipe.ignore();
        }
        pipe.query_async(&mut self.connection).await
    }

    /// Entries that were never delivered.
    pub(crate) async fn read(&mut self, most: usize) -> RedisResult<Vec<Entry>> {
        let mut read = cmd("XREADGROUP");
        read.arg(&["GROUP", GROUP, &self.consumer, "COUNT"]).arg(most).arg("BLOCK").arg(millis(BLOCK));
        read.arg(&["STREAMS", STREAM, ">"]);
        let streams: Option<Vec<(String, Entries)>> = read.query_async(&mut self.connection).await?;
        let entries = streams.into_iter().flatten().flat_map(|(_, entries)| entries);
        Ok(entries.map(|(id, fields)| Entry { id, fields, deliveries: 1 }).collect())
    }

    /// Entries that others left, or this consumer itself, looked for from a cursor on; and the next cursor.
    pub(crate) async fn claim(&mut self, most: usize, cursor: &str) -> RedisResult<(String, Vec<Entry>)> {
        let mut claim = cmd("XAUTOCLAIM");
        claim.arg(&[STREAM, GROUP, &self.consumer]).arg(millis(LOST_AFTER)).arg(cursor).arg("COUNT").arg(most);
        let (cursor, entries, _): (String, Entries, Vec<String>) = claim.query_async(&mut self.connection).await?;
        let mut claimed = Vec::new();
        for (id, fields) in entries {
            let mut pending = cmd("XPENDING");
            pending.arg(&[STREAM, GROUP, &id, &id, "1"]);
            let pending: Vec<(String, String, u64, u32)> = pending.query_async(&mut self.connection).await?;
            // Without a count, another consumer has just acknowledged it.
            if let Some(&(_, _, _, deliveries)) = pending.first() {
                claimed.push(Entry { id, fields, deliveries });
            }
        }
        Ok((cursor, claimed))
    }

    /// Says that this consumer still has these entries, so that nobody claims them.
    pub(crate) async fn keep(&mut self, ids: &[String]) -> RedisResult<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut keep = cmd("XCLAIM");
        keep.arg(&[STREAM, GROUP, &self.consumer, "0"]).arg(ids).arg("JUSTID");
        keep.query_async(&mut self.connection).await
    }

    /// Acknowledges an entry, which also leaves the stream.
    pub(crate) async fn done(&mut self, id: &str) -> RedisResult<()> {
        self.leave(pipe().atomic(), id).await
    }

    /// Makes an entry a dead letter, for people to look at.
    pub(crate) async fn bury(&mut self, entry: &Entry, why: &str) -> RedisResult<()> {
        let mut pipe = pipe();
        pipe.atomic().cmd("XADD").arg(&[DEAD, "*", "entry", &entry.id, "why", why]);
        for (name, value) in &entry.fields {
            pipe.arg(name).arg(value);
        }
        pipe.ignore();
        self.leave(&mut pipe, &entry.id).await
    }

    async fn leave(&mut self, pipe: &mut redis::Pipeline, id: &str) -> RedisResult<()> {
        pipe.cmd("XACK").arg(&[STREAM, GROUP, id]).ignore();
        pipe.cmd("XDEL").arg(&[STREAM, id]).ignore();
        pipe.query_async(&mut self.connection).await
    }

    /// How many entries wait or are under way, and how many are dead letters.
    pub(crate) async fn left(&mut self) -> Result<(u32, u32), RedisError> {
        pipe().cmd("XLEN").arg(STREAM).cmd("XLEN").arg(DEAD).query_async(&mut self.connection).await
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
