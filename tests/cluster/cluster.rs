//! Worker processes, the log that they share, and the strict upstream that they call.

use std::error::Error;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use outgate::Limit;
use outgate::testing::{FlakyProxy, Mode, RedisServer, Reply, Shape, StrictUpstream};

use crate::fleet::Worker;
use crate::ms;
use crate::outcome::Outcome;
use crate::settings::{Demand, Manner, Settings};
use crate::worker::COST;

/// Who calls whom.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) name: String,
    /// What the workers obey.
    pub(crate) limits: Vec<Limit>,
    /// Whether the upstream insists on it. One that does not shows what throughput is without the pause after each refusal.
    pub(crate) insists: bool,
    /// How the upstream counts.
    pub(crate) shape: Shape,
    /// How long calls are on their way.
    pub(crate) delay: Range<Duration>,
    pub(crate) place: Place,
    /// What each process wants.
    pub(crate) demands: Vec<Demand>,
    /// How every process calls.
    pub(crate) manner: Manner,
}

/// Where the log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Redis,
    Memory,
}

#[derive(Debug)]
pub(crate) struct Cluster {
    plan: Plan,
    workers: Vec<Worker>,
    upstream: StrictUpstream,
    /// Through which the first workers reach Redis, each through its own.
    proxies: Vec<FlakyProxy>,
    redis: Option<RedisServer>,
    store_calls_before: usize,
}

impl Cluster {
    /// Everybody is up and connected, and nobody has called yet.
    pub(crate) fn start(plan: Plan) -> Result<Self, Box<dyn Error>> {
        Self::start_with(plan, &[], ms(0)..ms(0))
    }

    /// The same, against an upstream to which it takes so long to open a connection.
    pub(crate) fn start_far(plan: Plan, opening: Range<Duration>) -> Result<Self, Box<dyn Error>> {
        Self::start_with(plan, &[], opening)
    }

    /// The same, with a proxy between Redis and each of the first workers, in these modes.
    pub(crate) fn start_behind(plan: Plan, modes: &[Mode]) -> Result<Self, Box<dyn Error>> {
        Self::start_with(plan, modes, ms(0)..ms(0))
    }

    fn start_with(plan: Plan, modes: &[Mode], opening: Range<Duration>) -> Result<Self, Box<dyn Error>> {
        let builder = StrictUpstream::builder().opening_delay(opening);
        let mut upstream = builder.arrival_delay(plan.delay.clone()).telling_balance().cost_by(|request| {
            let cost = request.headers().get(COST).and_then(|cost| cost.to_str().ok());
            cost.and_then(|cost| cost.parse().ok()).unwrap_or(1)
        });
        for limit in plan.limits.iter().filter(|_| plan.insists) {
            upstream = upstream.limit(limit.quota().into(), limit.window(), plan.shape);
        }
        if plan.manner.seats > 0 {
            upstream = upstream
                .in_flight(plan.manner.seats.into())
                .response_delay(plan.manner.call.mul_f64(0.5)..plan.manner.call.mul_f64(1.5));
        }
        let upstream = upstream.start()?;
        let redis = if plan.place == Place::Redis { Some(RedisServer::start()?) } else { None };
        let proxies = modes.iter().map(|&mode| proxy(redis.as_ref(), mode)).collect::<Result<Vec<_>, _>>()?;
        let worker = |(number, &demand): (usize, &Demand)| {
            let (caller, limits) = (format!("worker-{number}"), plan.limits.clone());
            let redis = proxies.get(number).map(FlakyProxy::url).or_else(|| redis.as_ref().map(RedisServer::url));
            Worker::start(&Settings { upstream: upstream.url(), redis, limits, caller, demand, manner: plan.manner })
        };
        let workers = plan.demands.iter().enumerate().map(worker).collect::<Result<Vec<_>, _>>()?;
        workers.iter().try_for_each(Worker::ready)?;
        let store_calls_before = script_calls(redis.as_ref())?;
        Ok(Self { plan, workers, upstream, proxies, redis, store_calls_before })
    }

    /// Has every worker call.
    pub(crate) fn begin(&mut self) -> Result<(), Box<dyn Error>> {
        self.begin_only(0..self.workers.len())
    }

    /// Has some workers call.
    pub(crate) fn begin_only(&mut self, which: Range<usize>) -> Result<(), Box<dyn Error>> {
        let some = self.workers.get_mut(which).ok_or("nobody is left")?;
        Ok(some.iter_mut().try_for_each(Worker::begin)?)
    }

    /// Where the upstream is called.
    pub(crate) fn url(&self) -> String {
        self.upstream.url()
    }

    /// Waits until so long after the first arrival. Returns the upstream's clock.
    pub(crate) fn run_until(&self, end: Duration) -> i64 {
        loop {
            let (now, first) = (self.upstream.now(), self.upstream.stamps().first().copied());
            let left = first.map(|first| first + micros(end) - now);
            match left {
                Some(left) if left <= 0 => return now,
                left => thread::sleep(Duration::from_micros(left.unwrap_or(1_000).unsigned_abs())),
            }
        }
    }

    /// Has the upstream insist on another quota from now on. Returns its clock.
    pub(crate) fn set_quota(&self, quota: u64) -> i64 {
        let window = self.plan.limits.first().map_or(Duration::ZERO, Limit::window);
        self.upstream.set_limit(quota, window, self.plan.shape);
        self.upstream.now()
    }

    /// Has the upstream refuse the next call for no reason.
    pub(crate) fn refuse_next(&self) {
        self.upstream.refuse_next();
    }

    /// Changes what the proxies do from now on. Returns the upstream's clock.
    pub(crate) fn set_modes(&self, modes: &[Mode]) -> i64 {
        self.proxies.iter().zip(modes).for_each(|(proxy, &mode)| proxy.set(mode));
        self.upstream.now()
    }

    /// Kills the last worker as it stands. Returns the upstream's clock.
    pub(crate) fn kill_one(&mut self) -> Result<i64, Box<dyn Error>> {
        self.workers.pop().ok_or("nobody is left")?.kill()?;
        Ok(self.upstream.now())
    }

    /// Has a worker stand still for so long: nothing in it runs, and what it had planned comes late.
    pub(crate) fn suspend(&self, number: usize, duration: Duration) -> Result<(), Box<dyn Error>> {
        let worker = self.workers.get(number % self.workers.len().max(1)).ok_or("nobody is left")?;
        worker.signal("STOP")?;
        thread::sleep(duration);
        Ok(worker.signal("CONT")?)
    }

    /// Sends the workers' Redis a command.
    pub(crate) fn redis(&self, words: &[&str]) -> Result<(), Box<dyn Error>> {
        match self.redis.as_ref().ok_or("the log is not in Redis")?.command(words)? {
            Reply::Error(error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Ends every worker, and says what happened.
    pub(crate) fn finish(mut self) -> Result<Outcome, Box<dyn Error>> {
        self.workers.iter_mut().for_each(Worker::end);
        let results = self.workers.into_iter().map(Worker::results).collect::<Result<Vec<_>, _>>()?;
        let store_calls = script_calls(self.redis.as_ref())? - self.store_calls_before;
        let store_calls = self.redis.is_some().then_some(store_calls);
        Ok(Outcome { plan: self.plan, arrivals: self.upstream.arrivals(), results, store_calls })
    }
}

fn proxy(redis: Option<&RedisServer>, mode: Mode) -> Result<FlakyProxy, Box<dyn Error>> {
    let proxy = FlakyProxy::start(redis.ok_or("the log is not in Redis")?.addr())?;
    proxy.set(mode);
    Ok(proxy)
}

/// Calls of scripts that a server counts.
fn script_calls(redis: Option<&RedisServer>) -> Result<usize, Box<dyn Error>> {
    let Some(redis) = redis else {
        return Ok(0);
    };
    let stats = redis.command(&["INFO", "commandstats"])?;
    let stats = stats.text().ok_or("no statistics")?;
    let calls = |line: &str| {
        let line = line.strip_prefix("cmdstat_evalsha:").or_else(|| line.strip_prefix("cmdstat_eval:"))?;
        line.strip_prefix("calls=")?.split(',').next()?.parse::<usize>().ok()
    };
    Ok(stats.lines().filter_map(calls).sum())
}

pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
