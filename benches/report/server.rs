//! The server that everything is measured on, and what it says about its own work.

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use outgate::testing::{RedisServer, Reply, RespClient};

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// A redis-server of our own, and a connection beside those that are measured.
pub(crate) struct Server {
    redis: RedisServer,
    admin: RespClient,
}

/// What the server has done since it was started, as it counts it.
pub(crate) struct Counters {
    /// By command: how often it was called, and for how many µs.
    commands: HashMap<String, (f64, f64)>,
    input: f64,
    output: f64,
    cpu_us: f64,
}

/// What the server did between two moments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Calls of the commands that were asked about.
    pub(crate) calls: f64,
    /// µs that they took to execute.
    pub(crate) us: f64,
    /// µs of processor time of the whole server: sockets and parsing as well.
    pub(crate) cpu_us: f64,
    /// Bytes received and sent.
    pub(crate) wire: f64,
}

impl Server {
    pub(crate) fn start() -> Result<Self, Failure> {
        let redis = RedisServer::start()?;
        let mut admin = redis.client()?;
        admin.set_patience(Duration::from_secs(60))?;
        Ok(Self { redis, admin })
    }

    pub(crate) fn url(&self) -> String {
        self.redis.url()
    }

    pub(crate) fn pid(&self) -> Result<u32, Failure> {
        self.redis.pid().ok_or_else(|| "the server has ended".into())
    }

    pub(crate) fn version(&mut self) -> Result<String, Failure> {
        let info = self.command(&["INFO", "server"])?;
        let text = info.text().unwrap_or_default();
        let version = text.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(version.ok_or("a server without a version")?.to_owned())
    }

    /// One command; what Redis refuses is a failure.
    pub(crate) fn command(&mut self, words: &[&str]) -> Result<Reply, Failure> {
        match self.admin.command(words)? {
            Reply::Error(error) => Err(format!("{}: {error}", words.first().unwrap_or(&"")).into()),
            reply => Ok(reply),
        }
    }

    /// Forgets all keys.
    pub(crate) fn clear(&mut self) -> Result<(), Failure> {
        self.command(&["FLUSHALL", "SYNC"]).map(drop)
    }

    pub(crate) fn counters(&mut self) -> Result<Counters, Failure> {
        let info = self.command(&["INFO", "commandstats", "stats", "cpu"])?;
        Ok(Counters::read(info.text().unwrap_or_default()))
    }

    /// What the server has done since `before` was read, with regard to some commands.
    pub(crate) fn work_since(&mut self, before: &Counters, commands: &[&str]) -> Result<Work, Failure> {
        let after = self.counters()?;
        let mut work = after.less(before, commands);
        // Reading the counters goes over the wire, too.
        work.wire -= self.counters()?.less(&after, commands).wire;
        Ok(work)
    }

    /// Bytes that all keys take together, those of their names included.
    pub(crate) fn bytes(&mut self) -> Result<f64, Failure> {
        let Reply::Array(keys) = self.command(&["KEYS", "*"])? else { return Err("no list of keys".into()) };
        let mut bytes = 0.0;
        for key in keys.iter().filter_map(Reply::text) {
            let usage = self.command(&["MEMORY", "USAGE", key, "SAMPLES", "0"])?;
            // A key that has expired meanwhile takes none.
            bytes += count(usage.int().unwrap_or(0));
        }
        Ok(bytes)
    }
}

impl Counters {
    /// Reads what INFO says: `name:value`, and for a command `calls=…,usec=…` among others.
    fn read(info: &str) -> Self {
        let mut counters = Self { commands: HashMap::new(), input: 0.0, output: 0.0, cpu_us: 0.0 };
        for (name, value) in info.lines().filter_map(|line| line.split_once(':')) {
            let number = || value.parse().unwrap_or(0.0);
            if let Some(command) = name.strip_prefix("cmdstat_") {
                let field = |name: &str| {
                    let found = value.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
                    found.and_then(|number| number.parse().ok()).unwrap_or(0.0)
                };
                counters.commands.insert(command.to_owned(), (field("calls"), field("usec")));
            }
            match name {
                "total_net_input_bytes" => counters.input = number(),
                "total_net_output_bytes" => counters.output = number(),
                "used_cpu_sys" | "used_cpu_user" => counters.cpu_us += number() * 1e6,
                _ => {}
            }
        }
        counters
    }

    fn less(&self, before: &Self, commands: &[&str]) -> Work {
        let sum = |counters: &Self, part: fn(&(f64, f64)) -> f64| {
            commands.iter().filter_map(|&command| counters.commands.get(command)).map(part).sum::<f64>()
        };
        Work {
            calls: sum(self, |command| command.0) - sum(before, |command| command.0),
            us: sum(self, |command| command.1) - sum(before, |command| command.1),
            cpu_us: self.cpu_us - before.cpu_us,
            wire: (self.input + self.output) - (before.input + before.output),
        }
    }
}

impl Work {
    pub(crate) fn add(&mut self, more: Self) {
        self.calls += more.calls;
        self.us += more.us;
        self.cpu_us += more.cpu_us;
        self.wire += more.wire;
    }
}

/// A count as a number to reckon with.
#[expect(clippy::cast_precision_loss, reason = "no count comes near 2^53")]
pub(crate) const fn count(number: i64) -> f64 {
    number as f64
}
