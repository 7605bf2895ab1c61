//! A call whose answer comes with what the server says of its replicas.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};

use super::{Failure, Link, is_unknown_script};
use crate::error::StoreError;
use crate::ledger::Reply;
use crate::store::redis::call::Call;
use crate::store::redis::fault::Fault;
use crate::store::redis::sentinel::role::Role;

/// For how long a key is kept that is written only so that replicas confirm it.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// An answer, and what the server said to `ROLE` behind it: at once, and after so many replicas had all that was written by then, or did
/// not have it in time.
pub(in crate::store::redis) struct Witnessed {
    pub(in crate::store::redis) answer: Reply,
    pub(in crate::store::redis) before: Role,
    pub(in crate::store::redis) after: Role,
}

impl Link {
    /// Calls a script, and waits until so many replicas have what it wrote.
    pub(in crate::store::redis) async fn call_witnessed(
        &self,
        call: Call<'_>,
        replicas: usize,
        patience: Duration,
    ) -> Result<Witnessed, Failure> {
        let (mut connection, generation) = self.connection_for(call).await?;
        let (script, encode) = (call.script(), |cmd: &mut Cmd| call.write(cmd));
        let mut said = said(&mut connection, script.by_hash(&encode), replicas, patience).await;
        if let Ok([Err(error), ..]) = &said
            && is_unknown_script(error)
        {
            said = self::said(&mut connection, script.by_body(&encode), replicas, patience).await;
        }
        let [answer, before, acked, after] = said.map_err(|error| self.failed(error, generation))?;
        let answer = self.judged(answer, connection.clone(), generation, call).await?;
        let role = |said: Said| match said {
            Ok(said) => self.read(generation, || Role::of(&said).ok_or_else(StoreError::senseless)),
            Err(error) if Fault::of(&error) == Fault::Lasting => {
                Err(Failure { error: self.refused(error, None), heals_by_connecting: false, passes: false })
            }
            Err(error) => Err(self.failed(error, generation)),
        };
        let before = role(before)?;
        if let Role::Replica(contact) = before {
            // It refuses to wait for any: that is no fault, as another one is the primary.
            return Ok(Witnessed { answer, before, after: Role::Replica(contact) });
        }
        let mut after = role(after)?;
        if acked.is_ok_and(|acked| waited_for_nothing(&before, &acked, &after, replicas)) {
            let said = waits_for_write(&mut connection, &self.prefix, replicas, patience).await;
            after = role(said.map_err(|error| self.failed(error, generation))?)?;
        }
        Ok(Witnessed { answer, before, after })
    }
}

type Said = Result<Value, RedisError>;

/// Whether `WAIT` came back although not as many replicas have what was written. From 7.2 on it waits for what its own connection wrote
/// last: for nothing where the script wrote nothing, however much others have written.
fn waited_for_nothing(before: &Role, acked: &Value, after: &Role, replicas: usize) -> bool {
    let (Role::Primary(before), Role::Primary(after)) = (before, after) else { return false };
    let came_back = matches!(acked, Value::Int(acked) if usize::try_from(*acked).is_ok_and(|acked| acked >= replicas));
    came_back && after.replicas_with(before.written()) < replicas
}

/// Has a server say what it is once so many replicas have what the connection wrote, or did not have it in time.
fn wait(all: &mut Pipeline, replicas: usize, patience: Duration) {
    all.cmd("WAIT").arg(replicas).arg(patience.as_millis().max(1).to_string()).cmd("ROLE");
}

/// What a server says to `ROLE` after so many replicas had all that was written before, or did not have it in time.
async fn waits_for_write(
    connection: &mut MultiplexedConnection,
    prefix: &str,
    replicas: usize,
    patience: Duration,
) -> Result<Said, RedisError> {
    let mut all = redis::pipe();
    all.cmd("SET").arg(format!("{prefix}:v1:{{~wait}}")).arg("").arg("PX").arg(KEPT_FOR.as_millis().to_string());
    wait(&mut all, replicas, patience);
    all.ignore_errors();
    let said: Vec<Said> = all.query_async(connection).await?;
    Ok(said.into_iter().nth(2).unwrap_or(Ok(Value::Nil)))
}

/// The answer, what the server says to `ROLE`, how many replicas had that in time, and what it says then.
async fn said(
    connection: &mut MultiplexedConnection,
    call: Cmd,
    replicas: usize,
    patience: Duration,
) -> Result<[Said; 4], RedisError> {
    let mut all = redis::pipe();
    // Whatever was written by the first of these is written before what the last one says.
    all.add_command(call).cmd("ROLE");
    if replicas > 0 {
        wait(&mut all, replicas, patience);
    }
    all.ignore_errors();
    let said: Vec<Said> = all.query_async(connection).await?;
    let mut said = said.into_iter();
    let mut next = || said.next().unwrap_or(Ok(Value::Nil));
    let (answer, before, acked) = (next(), next(), next());
    let after = match &acked {
        Ok(Value::Nil) => before.clone(),
        Ok(_) => next(),
        Err(error) => Err(error.clone()),
    };
    Ok([answer, before, acked, after])
}
