//! The Sentinels: who is asked which server is the primary.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ProtocolVersion, PushInfo, RedisError, Value};
use tokio::spawn;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout, timeout_at};

use super::news::News;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::fault::{Fault, Said, of_connecting};
use crate::store::redis::link::{connect, or_why_not, refusal, tuned, unreachable};
use crate::store::redis::tls;

/// How long a Sentinel may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How much longer the others may take, once most have answered.
const GRACE: Duration = Duration::from_millis(100);
/// What is published when the primary is another, or is about to be.
const EVENTS: [&str; 2] = ["+switch-master", "+promoted-slave"];

/// The Sentinels that watch a primary of this name.
pub(super) struct Sentinels {
    name: Arc<str>,
    all: Vec<Arc<Sentinel>>,
}

struct Sentinel {
    client: Client,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Sentinels {
    pub(super) fn new(name: &str, clients: Vec<Client>) -> Self {
        let sentinel = |client| Arc::new(Sentinel { client: tuned(client), connection: Mutex::default() });
        Self { name: name.into(), all: clients.into_iter().map(sentinel).collect() }
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// The latest that any of them knows.
    pub(super) async fn news(&self) -> Result<News, StoreError> {
        let (answers, mut answered) = unbounded_channel();
        for sentinel in &self.all {
            let (sentinel, name, answers) = (Arc::clone(sentinel), Arc::clone(&self.name), answers.clone());
            // One that is not waited for any more ends all the same: it is asked over the same connection next time.
            spawn(timeout(2 * PATIENCE, async move { answers.send(sentinel.news(&name).await) }));
        }
        drop(answers);
        let (mut news, mut failure) = (Vec::new(), unreachable("no Sentinel answers"));
        let mut deadline = Instant::now() + PATIENCE;
        while let Ok(Some(said)) = timeout_at(deadline, answered.recv()).await {
            match said {
                Ok(said) => {
                    news.push(said);
                    if 2 * news.len() > self.all.len() {
                        deadline = deadline.min(Instant::now() + GRACE);
                    }
                }
                // What waiting does not heal tells more than that somebody else does not run.
                Err(error) if failure.kind() != StoreErrorKind::Refused => failure = error,
                Err(_) => {}
            }
        }
        News::latest(news, self.all.len()).ok_or(failure)
    }

    /// Subscribes to one of them, counted round and round.
    pub(super) async fn subscribe(&self, n: usize) -> Result<Subscription, StoreError> {
        let sentinel = self.all.get(n % self.all.len().max(1)).ok_or_else(|| unreachable("no Sentinel is known"))?;
        let (sender, events) = unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE))
            .set_push_sender(sender);
        let info = sentinel.client.get_connection_info().clone();
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let failed = |error| unreachable("a Sentinel cannot be subscribed to").caused_by(Said(error));
        let client = Client::open(info.set_redis_settings(settings)).map_err(failed)?;
        tls::choose_provider();
        let connecting = timeout(2 * PATIENCE, client.get_multiplexed_async_connection_with_config(&config)).await;
        let mut connection =
            connecting.map_err(|_| unreachable("a Sentinel does not answer")).and_then(|made| made.map_err(failed))?;
        connection.subscribe(EVENTS.as_slice()).await.map_err(failed)?;
        Ok(Subscription { connection, events, name: Arc::clone(&self.name) })
    }
}

impl Sentinel {
    async fn news(&self, name: &str) -> Result<News, StoreError> {
        // While it is used nobody keeps it: who is not heard in time is asked over another one.
        let kept = self.kept().take();
        let asked = async {
            if let Some(mut connection) = kept {
                match Self::said(&mut connection, name).await {
                    // While nobody asked it was closed, as idle ones are.
                    Err(error) if error.is_connection_dropped() => {}
                    said => return Ok((connection, said?)),
                }
            }
            let mut connection = connect(&self.client, PATIENCE).await?;
            let said = Self::said(&mut connection, name).await?;
            Ok((connection, said))
        };
        let (connection, said) = or_why_not(&self.client, PATIENCE, asked).await.map_err(failed)?;
        if let [Ok(Value::Nil), ..] = said.as_slice() {
            let words = format!("the Sentinels watch no primary of the name {name:?}");
            return Err(StoreError::new(StoreErrorKind::Refused, words));
        }
        let said = said.into_iter().collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let [primary, itself, replicas] = said.as_slice() else { return Err(StoreError::senseless()) };
        let news = News::of(primary, itself, replicas).ok_or_else(StoreError::senseless)?;
        *self.kept() = Some(connection);
        Ok(news)
    }

    async fn said(
        connection: &mut MultiplexedConnection,
        name: &str,
    ) -> Result<Vec<Result<Value, RedisError>>, RedisError> {
        let mut all = redis::pipe();
        for about in ["GET-MASTER-ADDR-BY-NAME", "MASTER", "REPLICAS"] {
            all.cmd("SENTINEL").arg(about).arg(name);
        }
        all.ignore_errors();
        all.query_async(connection).await
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Option<MultiplexedConnection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(error: RedisError) -> StoreError {
    if of_connecting(&error) == Fault::Lasting {
        return refusal("a Sentinel refuses to answer", error);
    }
    unreachable("a Sentinel does not answer").caused_by(Said(error))
}

/// What one Sentinel publishes.
pub(super) struct Subscription {
    connection: MultiplexedConnection,
    events: UnboundedReceiver<PushInfo>,
    name: Arc<str>,
}

impl Subscription {
    /// Waits for a change of the primary for so long; `false` when there was none. Fails once nothing more is to be heard.
    pub(super) async fn changed(&mut self, within: Duration) -> Result<bool, StoreError> {
        let deadline = Instant::now() + within;
        while let Ok(event) = timeout_at(deadline, self.events.recv()).await {
            let ended = || unreachable("a subscription to a Sentinel has ended");
            let PushInfo { kind, data } = event.ok_or_else(ended)?;
            match kind {
                redis::PushKind::Disconnection => return Err(ended()),
                redis::PushKind::Message if self.concerns_us(&data) => return Ok(true),
                _ => {}
            }
        }
        // One that stands still would say nothing either.
        let answer: Result<Value, RedisError> = redis::cmd("PING").query_async(&mut self.connection).await;
        let failed = |error| unreachable("a Sentinel does not answer").caused_by(Said(error));
        answer.map(|_| false).map_err(failed)
    }

    fn concerns_us(&self, data: &[Value]) -> bool {
        let words: Option<String> = data.last().and_then(|text| redis::from_redis_value_ref(text).ok());
        words.is_some_and(|words| words.split(' ').any(|word| *word == *self.name))
    }
}
