//! The Redis that the processes share.

use std::error::Error;
use std::io;
use std::process;

use outgate::testing::RedisServer;
use redis::aio::MultiplexedConnection;

/// A Redis, and how often its scripts were called.
pub(crate) struct Shared {
    pub(crate) url: String,
    /// Nobody else's keys, and nobody's of an earlier run.
    pub(crate) prefix: String,
    connection: MultiplexedConnection,
    /// Ends when this is dropped.
    _server: Option<RedisServer>,
}

impl Shared {
    /// Takes the Redis of a URL, or starts one.
    pub(crate) async fn open(url: Option<&str>) -> Result<Self, Box<dyn Error>> {
        let server = if url.is_none() { Some(RedisServer::start().map_err(explain)?) } else { None };
        let url = url.map(str::to_owned).or_else(|| server.as_ref().map(RedisServer::url)).unwrap_or_default();
        let client = redis::Client::open(&*url).map_err(|error| unusable(&error))?;
        let connection = client.get_multiplexed_async_connection().await.map_err(|error| unusable(&error))?;
        let prefix = format!("outgate-example-{}-{:08x}", process::id(), fastrand::u32(..));
        Ok(Self { url, prefix, connection, _server: server })
    }

    /// How many scripts Redis has run since it started, for whomever.
    pub(crate) async fn script_calls(&mut self) -> Result<u64, redis::RedisError> {
        let info: String = redis::cmd("INFO").arg("commandstats").query_async(&mut self.connection).await?;
        Ok(scripts_in(&info))
    }
}

/// The URL is left out: there may be a password in it.
fn unusable(error: &redis::RedisError) -> Box<dyn Error> {
    format!("this Redis cannot be used: {error}").into()
}

fn explain(error: io::Error) -> Box<dyn Error> {
    if error.kind() == io::ErrorKind::NotFound {
        "redis-server is not installed: `apt-get install redis-server` or `make test` installs it, and --redis URL does \
         without it"
            .into()
    } else {
        error.into()
    }
}

/// The calls of EVALSHA and EVAL in a reply to `INFO commandstats`.
fn scripts_in(info: &str) -> u64 {
    let calls = |line: &str| {
        let stats = ["cmdstat_evalsha:", "cmdstat_eval:"].iter().find_map(|name| line.strip_prefix(name))?;
        stats.split(',').find_map(|stat| stat.strip_prefix("calls=")).and_then(|calls| calls.parse::<u64>().ok())
    };
    info.lines().filter_map(calls).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_counted_and_nothing_else() {
        let info = "# Commandstats\r\ncmdstat_eval:calls=2,usec=9,failed_calls=0\r\ncmdstat_get:calls=7,usec=1\r\n\
                    cmdstat_evalsha:calls=40,usec=9\r\ncmdstat_evalsha_ro:calls=5\r\n";
        assert_eq!(scripts_in(info), 42);
        assert_eq!(scripts_in(""), 0);
    }
}
