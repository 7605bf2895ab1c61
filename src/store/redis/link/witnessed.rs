//! A call whose answer comes with what the server says of its replicas.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};

use super::{Failure, Link, is_unknown_script};
use crate::error::StoreError;
use crate::ledger::Reply;
use crate::store::redis::call::Call;
use crate::store::redis::fault::Fault;
use crate::store::redis::sentinel::role::Role;

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
        let (mut connection, generation) = self.connection().await.map_err(Failure::from)?;
        let (script, encode) = (call.script(), |cmd: &mut Cmd| call.write(cmd));
        let mut said = said(&mut connection, script.by_hash(&encode), replicas, patience).await;
        if let Ok([Err(error), ..]) = &said
            && is_unknown_script(error)
        {
            said = self::said(&mut connection, script.by_body(&encode), replicas, patience).await;
        }
        let [answer, before, after] = said.map_err(|error| self.failed(error, generation))?;
        let answer = self.judged(answer, connection, generation, call).await?;
        let role = |said: Said| match said {
            Ok(said) => self.read(generation, false, || Role::of(&said).ok_or_else(StoreError::senseless)),
            Err(error) if Fault::of(&error) == Fault::Lasting => {
                Err(Failure { error: self.refused(error, None), heals_by_connecting: false, passes: false })
            }
            Err(error) => Err(self.failed(error, generation)),
        };
        Ok(Witnessed { answer, before: role(before)?, after: role(after)? })
    }
}

type Said = Result<Value, RedisError>;

async fn said(
    connection: &mut MultiplexedConnection,
    call: Cmd,
    replicas: usize,
    patience: Duration,
) -> Result<[Said; 3], RedisError> {
    let mut all = redis::pipe();
    // Whatever was written by the first of these is written before what the last one says.
    all.add_command(call).cmd("ROLE");
    if replicas > 0 {
        all.cmd("WAIT").arg(replicas).arg(patience.as_millis().max(1).to_string());
        all.cmd("ROLE");
    }
    all.ignore_errors();
    let said: Vec<Said> = all.query_async(connection).await?;
    let mut said = said.into_iter();
    let mut next = || said.next().unwrap_or(Ok(Value::Nil));
    let (answer, before) = (next(), next());
    let after = match next() {
        Ok(Value::Nil) => before.clone(),
        Ok(_) => next(),
        Err(error) => Err(error),
    };
    Ok([answer, before, after])
}
