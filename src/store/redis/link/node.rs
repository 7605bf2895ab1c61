//! What is asked of a node of a Cluster.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, RedisError, Value};

use super::{Failure, Link, is_unknown_script, run};
use crate::error::StoreError;
use crate::store::redis::cluster::redirect::Redirect;
use crate::store::redis::fault::Fault;
use crate::store::redis::script::Script;

/// Why a node of a Cluster gave no answer.
pub(in crate::store::redis) enum Missed {
    /// Another one is to be asked. The call did not act.
    Redirected(Redirect),
    Failed(Failure),
}

impl From<Failure> for Missed {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Link {
    /// A link to a node of a Cluster, which traces name.
    pub(in crate::store::redis) fn to_node(client: Client, response_timeout: Duration, node: &str) -> Self {
        Self { node: Some(node.into()), ..Self::new(client, response_timeout) }
    }

    /// Calls a script on a node of a Cluster; one that does not have the slot yet serves it only if it is told so, by `asking`.
    pub(in crate::store::redis) async fn call_node(
        &self,
        script: &Script,
        encode: &(impl Fn(&mut Cmd) + Sync),
        asking: bool,
    ) -> Result<Value, Missed> {
        let (mut connection, generation) = self.connection().await.map_err(Failure::from)?;
        let answer = if asking {
            run_asking(&mut connection, script, encode).await
        } else {
            run(&mut connection, script, encode).await
        };
        if let Some(redirect) = answer.as_ref().err().and_then(Redirect::of) {
            self.is_up();
            return Err(Missed::Redirected(redirect));
        }
        Ok(self.judged(answer, connection, generation, encode).await?)
    }

    /// Asks a node of a Cluster something else.
    pub(in crate::store::redis) async fn ask(&self, command: &Cmd) -> Result<Value, StoreError> {
        let (mut connection, generation) = self.connection().await?;
        match command.query_async(&mut connection).await {
            Ok(value) => {
                self.is_up();
                Ok(value)
            }
            Err(error) if Fault::of(&error) == Fault::Lasting => Err(self.refused(error, None)),
            Err(error) => Err(self.failed(error, generation).error),
        }
    }

    /// Another node serves in this one's place.
    pub(in crate::store::redis) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
        if self.down.swap(false, Ordering::Relaxed) {
            tracing::info!(node = self.node.as_deref(), "store up: other nodes serve in place of this one");
        }
    }
}

/// The same on a node that a slot is on its way to.
async fn run_asking(
    connection: &mut MultiplexedConnection,
    script: &Script,
    encode: &(impl Fn(&mut Cmd) + Sync),
) -> Result<Value, RedisError> {
    let asking = |cmd: Cmd| {
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(cmd).ignore_errors();
        both
    };
    for cmd in [script.by_hash(encode), script.by_body(encode)] {
        let answers: Vec<Result<Value, RedisError>> = asking(cmd).query_async(connection).await?;
        match answers.into_iter().next_back().unwrap_or(Ok(Value::Nil)) {
            Err(error) if is_unknown_script(&error) => {}
            answer => return answer,
        }
    }
    Ok(Value::Nil)
}
