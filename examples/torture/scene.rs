//! The processes, their Redis, and the upstream.

use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

use outgate::testing::{FlakyProxy, Mode, RedisServer, Reply, Shape, StrictUpstream};

use crate::child::Child;
use crate::fault::Fault;
use crate::run::QUOTA;
use crate::worker;

const WORKERS: usize = 4;

pub(crate) struct Scene {
    pub(crate) upstream: StrictUpstream,
    redis: RedisServer,
    /// One before each worker's Redis.
    proxies: Vec<FlakyProxy>,
    workers: Vec<Child>,
    /// They throttle by themselves while Redis cannot be reached.
    locally: bool,
}

impl Scene {
    /// Everybody calls.
    pub(crate) fn start(locally: bool) -> Result<Self, Box<dyn Error>> {
        let limit = StrictUpstream::builder().limit(QUOTA.into(), Duration::from_secs(1), Shape::SlidingLog);
        let (upstream, redis) = (limit.start()?, RedisServer::start_with(&["--appendonly", "yes"])?);
        let proxies = (0..WORKERS).map(|_| FlakyProxy::start(redis.addr())).collect::<Result<Vec<_>, _>>()?;
        let workers = proxies.iter().map(|proxy| worker(&upstream, proxy, locally)).collect::<Result<_, _>>()?;
        Ok(Self { upstream, redis, proxies, workers, locally })
    }

    pub(crate) fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Has something go wrong, and waits until it is over. Says for how long nobody could reach Redis.
    pub(crate) fn strike(&mut self, fault: Fault) -> Result<Duration, Box<dyn Error>> {
        let began = Instant::now();
        match fault {
            Fault::FreezeRedis(lasting) => {
                self.redis.pause()?;
                sleep(lasting);
                self.redis.resume()?;
            }
            Fault::PauseClients(lasting) => {
                self.redis(&["CLIENT", "PAUSE", &lasting.as_millis().to_string(), "ALL"])?;
                sleep(lasting);
            }
            Fault::ForgetScripts => self.redis(&["SCRIPT", "FLUSH"])?,
            Fault::KillConnections => self.redis(&["CLIENT", "KILL", "TYPE", "normal"])?,
            Fault::Restart => self.redis.restart()?,
            Fault::Connection { of, mode, lasting } => {
                let struck = |place: &usize| of.is_none_or(|of| of == *place);
                let of_before: Vec<Mode> = self.proxies.iter().map(FlakyProxy::mode).collect();
                (0..WORKERS).filter(struck).for_each(|place| self.proxies[place].set(mode));
                sleep(lasting);
                (0..WORKERS).filter(struck).for_each(|place| self.proxies[place].set(of_before[place]));
                if of.is_some() || matches!(mode, Mode::CutBeforeReply(_)) {
                    return Ok(Duration::ZERO);
                }
            }
            Fault::Latency { of, replies } => {
                self.proxies[of].set(Mode::Delay(replies));
                return Ok(Duration::ZERO);
            }
            Fault::KillWorker(of) => {
                self.workers[of] = worker(&self.upstream, &self.proxies[of], self.locally)?;
                return Ok(Duration::ZERO);
            }
            Fault::FreezeWorker(of, lasting) => {
                self.workers[of].signal("STOP")?;
                sleep(lasting);
                self.workers[of].signal("CONT")?;
                return Ok(Duration::ZERO);
            }
            Fault::Flush => self.redis(&["FLUSHALL"])?,
            Fault::RestartEmpty => {
                self.redis(&["FLUSHALL"])?;
                self.redis.restart()?;
            }
            Fault::Evict(lasting) => {
                self.redis(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random", "maxmemory", "1"])?;
                sleep(lasting);
                self.redis(&["CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "0"])?;
            }
        }
        Ok(began.elapsed())
    }

    fn redis(&self, words: &[&str]) -> Result<(), Box<dyn Error>> {
        match self.redis.command(words)? {
            Reply::Error(error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

fn worker(upstream: &StrictUpstream, proxy: &FlakyProxy, locally: bool) -> std::io::Result<Child> {
    Child::start(&worker::Args { upstream: upstream.url(), redis: proxy.url(), locally })
}
