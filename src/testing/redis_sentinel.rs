//! A primary, its replicas, and Sentinels of one's own.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::{RedisServer, Reply};

/// How long they may take to know each other.
const PATIENCE: Duration = Duration::from_secs(30);
const SENTINELS: usize = 3;

/// A primary, replicas of it, and three Sentinels that make one of them primary in its place: real `redis-server` processes.
///
/// They end when this is dropped. Each is killed, frozen and started again as any [`RedisServer`] is. The Sentinels give up a server that
/// is silent for half a second.
///
/// ```
/// # fn shown() -> Result<(), Box<dyn std::error::Error>> {
/// use outgate::testing::RedisSentinel;
///
/// let all = RedisSentinel::start(2)?; // or RedisSentinel::start_with(2, &["--save", ""], &[])
/// let primary = all.primary()?.ok_or("the Sentinels do not agree")?;
/// println!("{} knows who leads: {}", all.urls()[0], all.servers()[primary].url());
/// all.sentinels()[2].stop(); // the other two are enough
/// all.fail_over()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RedisSentinel {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

impl RedisSentinel {
    /// What the Sentinels call the primary.
    pub const NAME: &str = "mymaster";

    /// Starts a primary, so many replicas and three Sentinels, and waits until all know each other: some 2 s.
    ///
    /// # Errors
    ///
    /// As for [`RedisServer::start`], and when they do not come to know each other.
    pub fn start(replicas: usize) -> io::Result<Self> {
        Self::start_with(replicas, &[], &[])
    }

    /// The same, with more arguments for each server, as for [`RedisServer::start_with`], and more lines in the configuration of
    /// each Sentinel, such as `requirepass word`. Sentinels are told the password of the servers.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start).
    pub fn start_with(replicas: usize, extra: &[&str], lines: &[&str]) -> io::Result<Self> {
        let primary = RedisServer::start_with(extra)?;
        let port = primary.port().to_string();
        let follows = [extra, &["--replicaof", "127.0.0.1", &port]].concat();
        let mut servers = vec![primary];
        for _ in 0..replicas {
            servers.push(RedisServer::start_with(&follows)?);
        }
        // Sentinels look at replicas every 10 s: what they see first had better be all.
        let all = Self { servers, sentinels: Vec::new() };
        wait_until(|| all.follow())?;
        let name = Self::NAME;
        let auth = all.servers[0].password().map(|password| format!("sentinel auth-pass {name} {password}\n"));
        let config = [
            format!("sentinel monitor {name} 127.0.0.1 {port} 2"),
            format!("sentinel down-after-milliseconds {name} 500"),
            format!("sentinel failover-timeout {name} 3000"),
            format!("sentinel parallel-syncs {name} {}", replicas.max(1)),
        ];
        let config = config.join("\n") + "\n" + &auth.unwrap_or_default() + &lines.join("\n") + "\n";
        let sentinels = (0..SENTINELS).map(|_| RedisServer::start_sentinel(&config)).collect::<io::Result<_>>()?;
        let all = Self { sentinels, ..all };
        wait_until(|| all.are_known())?;
        Ok(all)
    }

    /// First the server that began as the primary, then those that began as its replicas.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The Sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Of the Sentinels, for clients.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }

    /// Which server is the primary, as all Sentinels say that run; `None` while they do not agree.
    ///
    /// # Errors
    ///
    /// When a Sentinel that runs does not answer.
    pub fn primary(&self) -> io::Result<Option<usize>> {
        let mut named = None;
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.pid().is_some()) {
            let Reply::Array(address) = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::NAME])? else {
                return Ok(None);
            };
            let port = address.get(1).and_then(Reply::text).map(str::to_owned);
            if port.is_none() || named.as_ref().is_some_and(|named| *named != port) {
                return Ok(None);
            }
            named = Some(port);
        }
        Ok(self.servers.iter().position(|server| Some(Some(server.port().to_string())) == named))
    }

    /// Has the first Sentinel make a replica primary while the primary runs, which is not told for some seconds.
    ///
    /// # Errors
    ///
    /// When the Sentinel refuses.
    pub fn fail_over(&self) -> io::Result<()> {
        match self.sentinels[0].command(&["SENTINEL", "FAILOVER", Self::NAME])? {
            Reply::Error(refusal) => Err(io::Error::other(refusal)),
            _ => Ok(()),
        }
    }

    /// Whether all replicas have the data of the primary.
    fn follow(&self) -> io::Result<bool> {
        let replicas = format!("connected_slaves:{}", self.servers.len() - 1);
        let report = self.servers[0].command(&["INFO", "replication"])?;
        Ok(report.text().is_some_and(|report| report.contains(&replicas))
            && self.servers[1..].iter().all(|replica| {
                let report = replica.command(&["INFO", "replication"]);
                report.is_ok_and(|report| report.text().is_some_and(|report| report.contains("master_link_status:up")))
            }))
    }

    /// Whether each Sentinel knows the others, and all replicas as following.
    fn are_known(&self) -> io::Result<bool> {
        let others = (SENTINELS - 1).to_string();
        for sentinel in &self.sentinels {
            let itself = words(&sentinel.command(&["SENTINEL", "MASTER", Self::NAME])?);
            let knows = itself.windows(2).any(|two| two[0] == "num-other-sentinels" && two[1] == others);
            let Reply::Array(replicas) = sentinel.command(&["SENTINEL", "REPLICAS", Self::NAME])? else {
                return Ok(false);
            };
            let follows = |replica: &Reply| {
                let said = words(replica);
                let says = |name: &str, value: &str| said.windows(2).any(|two| two[0] == name && two[1] == value);
                says("master-link-status", "ok") && says("flags", "slave")
            };
            if !knows || replicas.iter().filter(|replica| follows(replica)).count() != self.servers.len() - 1 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn wait_until(holds: impl Fn() -> io::Result<bool>) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !holds()? {
        if Instant::now() > deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "servers and Sentinels do not know each other"));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn words(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Array(words) => words.iter().map(|word| word.text().unwrap_or_default().to_owned()).collect(),
        _ => Vec::new(),
    }
}
