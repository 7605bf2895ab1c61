//! A call on a node of a Cluster, which may send it elsewhere.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};

use super::{Failure, Link, is_unknown_script, run};
use crate::ledger::Reply;
use crate::store::redis::call::Call;
use crate::store::redis::cluster::redirect::Redirect;
use crate::store::redis::fault::has_slot;

/// Why a node of a Cluster gave no answer.
pub(in crate::store::redis) enum Missed {
    /// Another one is to be asked. The call did not act.
    Redirected(Redirect),
    /// It has the slot, and refuses the call.
    Refused(Failure),
    Failed(Failure),
}

impl From<Failure> for Missed {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Link {
    /// Calls a script on a node of a Cluster; one that does not have the slot yet serves it only if it is told so, by `asking`.
    pub(in crate::store::redis) async fn call_node(&self, call: Call<'_>, asking: bool) -> Result<Reply, Missed> {
        let (mut connection, generation) = self.connection_for(call).await?;
        let answer = if asking {
            run_asking(&mut connection, call).await
        } else {
            run(&mut connection, call.script(), &|cmd| call.write(cmd)).await
        };
        if let Some(redirect) = answer.as_ref().err().and_then(Redirect::of) {
            self.is_up(generation, true);
            return Err(Missed::Redirected(redirect));
        }
        let refuses = answer.as_ref().is_err_and(has_slot);
        let answer = self.judged(answer, connection, generation, call).await;
        answer.map_err(if refuses { Missed::Refused } else { Missed::Failed })
    }
}

/// The same on a node that a slot is on its way to.
async fn run_asking(connection: &mut MultiplexedConnection, call: Call<'_>) -> Result<Value, RedisError> {
    let (script, encode) = (call.script(), |cmd: &mut Cmd| call.write(cmd));
    let asking = |cmd: Cmd| {
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(cmd).ignore_errors();
        both
    };
    for cmd in [script.by_hash(&encode), script.by_body(&encode)] {
        let answers: Vec<Result<Value, RedisError>> = asking(cmd).query_async(connection).await?;
        let mut answers = answers.into_iter();
        let (asked, answer) = (answers.next(), answers.next().unwrap_or(Ok(Value::Nil)));
        match (asked, answer) {
            (_, Err(error)) if is_unknown_script(&error) => {}
            // It sends the call back, as it was not asked.
            (Some(Err(refusal)), Err(error)) if error.code() == Some("MOVED") => return Err(refusal),
            (_, answer) => return answer,
        }
    }
    Ok(Value::Nil)
}
