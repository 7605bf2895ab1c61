//! What others do, written plainly: each decision is one round trip on a connection shared by all callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _, Value};

use crate::server::Failure;

/// One window of a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    pub(crate) quota: u32,
    pub(crate) window: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Ping,
    Set,
    /// A script that does nothing: what any script costs.
    Nothing,
    /// The barest log as Outgate keeps it: what its rule alone costs.
    BareList,
    SortedSet,
    Multi,
    FixedWindow,
    Stream,
    SubBuckets,
}

const NOTHING: &str = "return 1";

/// A log in a list, and nothing about lost replies, pauses, others who wait, or different limits.
/// KEYS: log. ARGV: quota, window (ms).
const BARE_LIST: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local entry = redis.call('LINDEX', KEYS[1], -ARGV[1])
if entry and entry + ARGV[2] * 1000 > now then return 0 end
redis.call('RPUSH', KEYS[1], now)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
";

/// A log in a sorted set: score is the server's time, member is a number of the caller's.
/// KEYS: log. ARGV: quota, window (µs), window (ms), member.
const SORTED_SET: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - ARGV[2])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], now, ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
";

/// A log in a stream, trimmed as it grows; its oldest entry is looked at only when it is full.
/// KEYS: log. ARGV: quota, window (ms).
const STREAM: &str = "
local time = redis.call('TIME')
local expired = time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[2]
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[1]) then
  local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1][1]
  if tonumber(string.match(oldest, '^%d+')) > expired then return 0 end
end
redis.call('XADD', KEYS[1], 'MINID', expired + 1, '*', 'c', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
";

/// Counts by sixtieths of each window in one hash, with the sum and the oldest sixtieth of each.
/// KEYS: counts. ARGV: for each limit quota and window (ms), the longest last.
const SUB_BUCKETS: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local key, current = KEYS[1], {}
for i = 1, #ARGV, 2 do
  local quota, window = tonumber(ARGV[i]), ARGV[i + 1]
  local bucket = math.floor(now * 60 / window)
  local state = redis.call('HMGET', key, window .. ':sum', window .. ':oldest')
  local sum, oldest = tonumber(state[1] or 0), tonumber(state[2] or bucket)
  if oldest < bucket - 60 then
    for b = oldest, math.min(bucket - 61, oldest + 60) do
      local count = redis.call('HGET', key, window .. ':' .. b)
      if count then
        sum = redis.call('HINCRBY', key, window .. ':sum', -count)
        redis.call('HDEL', key, window .. ':' .. b)
      end
    end
    oldest = bucket - 60
  end
  if not state[2] or oldest > tonumber(state[2]) then redis.call('HSET', key, window .. ':oldest', oldest) end
  if sum >= quota then return 0 end
  current[i] = bucket
end
for i = 1, #ARGV, 2 do
  redis.call('HINCRBY', key, ARGV[i + 1] .. ':' .. current[i], 1)
  redis.call('HINCRBY', key, ARGV[i + 1] .. ':sum', 1)
end
redis.call('PEXPIRE', key, ARGV[#ARGV])
return 1
";

/// A way to decide, on a connection.
#[derive(Clone)]
pub(crate) struct Baseline {
    way: Way,
    connection: MultiplexedConnection,
    key: String,
    limits: Vec<Quota>,
    hash: String,
    members: Arc<AtomicU64>,
}

impl Baseline {
    /// Connects as Outgate does. Of several limits the longest comes last; only sub-buckets keep more than that one.
    pub(crate) async fn connect(way: Way, url: &str, key: &str, limits: &[Quota]) -> Result<Self, Failure> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(1)))
            .set_response_timeout(Some(Duration::from_secs(5)))
            .set_pipeline_buffer_size(1_024);
        let mut connection = client(url)?.get_multiplexed_async_connection_with_config(&config).await?;
        let hash = match way.script() {
            Some(body) => redis::cmd("SCRIPT").arg("LOAD").arg(body).query_async(&mut connection).await?,
            None => String::new(),
        };
        Ok(Self { way, connection, key: key.to_owned(), limits: limits.to_vec(), hash, members: Arc::default() })
    }

    /// Whether a call may go now. What decides nothing says yes.
    pub(crate) async fn decide(&mut self) -> Result<bool, Failure> {
        let Some(&Quota { quota, window }) = self.limits.last() else { return Err("no limit".into()) };
        let connection = &mut self.connection;
        match self.way {
            Way::Ping => redis::cmd("PING").exec_async(connection).await?,
            Way::Set => redis::cmd("SET").arg(&self.key).arg("0123456789abcdef").exec_async(connection).await?,
            Way::Nothing | Way::BareList | Way::SortedSet | Way::Stream | Way::SubBuckets => {
                let mut cmd = redis::cmd("EVALSHA");
                cmd.arg(&self.hash).arg(1).arg(&self.key);
                if self.way == Way::SubBuckets {
                    for limit in &self.limits {
                        cmd.arg(limit.quota).arg(ms(limit.window));
                    }
                } else {
                    cmd.arg(quota);
                }
                if self.way == Way::SortedSet {
                    let member = self.members.fetch_add(1, Ordering::Relaxed);
                    cmd.arg(us(window)).arg(ms(window)).arg(member);
                } else if matches!(self.way, Way::Stream | Way::BareList) {
                    cmd.arg(ms(window));
                }
                return Ok(cmd.query_async(connection).await?);
            }
            Way::Multi => {
                let now = us(SystemTime::now().duration_since(UNIX_EPOCH)?);
                let member = self.members.fetch_add(1, Ordering::Relaxed);
                let mut pipe = redis::pipe();
                pipe.atomic();
                pipe.cmd("ZREMRANGEBYSCORE").arg(&self.key).arg(0).arg(now - us(window)).ignore();
                pipe.cmd("ZRANGE").arg(&self.key).arg(0).arg(-1);
                pipe.cmd("ZADD").arg(&self.key).arg(now).arg(member).ignore();
                pipe.cmd("EXPIRE").arg(&self.key).arg(window.as_secs().max(1)).ignore();
                let (members,): (Vec<Value>,) = pipe.query_async(connection).await?;
                return Ok(members.len() < quota as usize);
            }
            Way::FixedWindow => {
                let number = us(SystemTime::now().duration_since(UNIX_EPOCH)?) / us(window);
                let key = format!("{}:{number}", self.key);
                let mut pipe = redis::pipe();
                pipe.cmd("INCR").arg(&key).cmd("EXPIRE").arg(&key).arg(window.as_secs().max(1)).ignore();
                let (calls,): (u64,) = pipe.query_async(connection).await?;
                return Ok(calls <= u64::from(quota));
            }
        }
        Ok(true)
    }
}

impl Way {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ping => "`PING`",
            Self::Set => "`SET`",
            Self::Nothing => "a script that does nothing",
            Self::BareList => "the bare rule on a list, one script",
            Self::SortedSet => "log in a sorted set, one script",
            Self::Multi => "log in a sorted set, `MULTI`",
            Self::FixedWindow => "fixed window, `INCR` and `EXPIRE`",
            Self::Stream => "log in a stream, one script",
            Self::SubBuckets => "sub-buckets in a hash, 3 limits",
        }
    }

    /// The commands that the server counts for it. What a script or a transaction calls is part of that.
    pub(crate) const fn commands(self) -> &'static [&'static str] {
        match self {
            Self::Ping => &["ping"],
            Self::Set => &["set"],
            Self::Nothing | Self::BareList | Self::SortedSet | Self::Stream | Self::SubBuckets => &["evalsha"],
            Self::Multi => &["multi", "exec"],
            Self::FixedWindow => &["incr", "expire"],
        }
    }

    const fn script(self) -> Option<&'static str> {
        match self {
            Self::Nothing => Some(NOTHING),
            Self::BareList => Some(BARE_LIST),
            Self::SortedSet => Some(SORTED_SET),
            Self::Stream => Some(STREAM),
            Self::SubBuckets => Some(SUB_BUCKETS),
            Self::Ping | Self::Set | Self::Multi | Self::FixedWindow => None,
        }
    }
}

/// A client as Outgate's: small messages leave at once.
pub(crate) fn client(url: &str) -> Result<Client, Failure> {
    let settings = TcpSettings::default().set_nodelay(true);
    Ok(Client::open(url.into_connection_info()?.set_tcp_settings(settings))?)
}

const fn us(duration: Duration) -> u128 {
    duration.as_micros()
}

const fn ms(duration: Duration) -> u128 {
    duration.as_millis()
}
