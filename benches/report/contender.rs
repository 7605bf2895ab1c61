//! Who decides whether a call may go: Outgate, and what it is measured against.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outgate::{Error, Limit, RedisStore, Throttle, Upstream};
use tokio::time::sleep;
use trypema::hybrid::HybridRateLimiterProvider;
use trypema::redis::{RedisKey, RedisRateLimiterProvider};
use trypema::{RateLimit, RateLimitDecision, RateLimiterBuilder as _, WindowSize};

use crate::baselines::{Baseline, Quota, Way, client};
use crate::server::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    Outgate,
    /// Under three limits at once.
    OutgateThree,
    Trypema,
    /// Decides in its own process, and tells Redis every 10 ms.
    TrypemaHybrid,
    Baseline(Way),
}

/// Everybody who really limits.
pub(crate) const LIMITERS: [Contender; 10] = [
    Contender::Outgate,
    Contender::Baseline(Way::SortedSet),
    Contender::Baseline(Way::BareList),
    Contender::Baseline(Way::Multi),
    Contender::Baseline(Way::FixedWindow),
    Contender::Baseline(Way::Stream),
    Contender::Trypema,
    Contender::TrypemaHybrid,
    Contender::OutgateThree,
    Contender::Baseline(Way::SubBuckets),
];

pub(crate) const SORTED_SET: Contender = Contender::Baseline(Way::SortedSet);
pub(crate) const SET: Contender = Contender::Baseline(Way::Set);
pub(crate) const NOTHING: Contender = Contender::Baseline(Way::Nothing);
pub(crate) const PING: Contender = Contender::Baseline(Way::Ping);

/// More than any round uses up where each decision is the server's.
const AMPLE: Quota = Quota { quota: 1_000_000, window: Duration::from_secs(3_600) };

/// A contender at work. Clones share their connection.
#[derive(Clone)]
pub(crate) enum Decider {
    /// With the upstream's name.
    Outgate(Throttle, String),
    Trypema(Arc<RedisRateLimiterProvider>, RedisKey, RateLimit),
    TrypemaHybrid(Arc<HybridRateLimiterProvider>, RedisKey, RateLimit),
    Baseline(Baseline),
}

impl Contender {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Outgate => "**Outgate**",
            Self::OutgateThree => "**Outgate**, 3 limits",
            Self::Trypema => "trypema, Redis",
            Self::TrypemaHybrid => "trypema, hybrid",
            Self::Baseline(way) => way.name(),
        }
    }

    /// The name for where there is no Markdown.
    pub(crate) const fn plain(self) -> &'static str {
        match self {
            Self::Outgate => "Outgate",
            Self::Baseline(Way::SortedSet) => "log in a sorted set",
            Self::Baseline(Way::Stream) => "log in a stream",
            other => other.name(),
        }
    }

    pub(crate) const fn commands(self) -> &'static [&'static str] {
        match self {
            Self::Baseline(way) => way.commands(),
            _ => &["evalsha", "eval"],
        }
    }

    /// More than any round uses up.
    pub(crate) const fn ample(self) -> Quota {
        match self {
            Self::TrypemaHybrid => Quota { quota: u32::MAX, ..AMPLE },
            _ => AMPLE,
        }
    }

    /// One with a connection and a log of its own, under a quota; who keeps three limits has it for a minute and a second, too.
    pub(crate) async fn open(self, url: &str, name: &str, quota: Quota) -> Result<Decider, Failure> {
        let within = |secs| Quota { window: Duration::from_secs(secs).min(quota.window), ..quota };
        let mut three = vec![within(1), within(60), quota];
        three.dedup_by_key(|quota| quota.window);
        Ok(match self {
            Self::Outgate => Decider::Outgate(outgate(url, name, &[quota]).await?, name.to_owned()),
            Self::OutgateThree => Decider::Outgate(outgate(url, name, &three).await?, name.to_owned()),
            Self::Trypema => {
                let builder = RedisRateLimiterProvider::builder(client(url)?.get_connection_manager().await?);
                let (key, window, rate) = trypema(name, quota)?;
                Decider::Trypema(builder.window_size(window).disable_cleanup().build()?, key, rate)
            }
            Self::TrypemaHybrid => {
                let builder = HybridRateLimiterProvider::builder(client(url)?.get_connection_manager().await?);
                let (key, window, rate) = trypema(name, quota)?;
                Decider::TrypemaHybrid(builder.window_size(window).disable_cleanup().build()?, key, rate)
            }
            Self::Baseline(way) => {
                let limits = if way == Way::SubBuckets { three } else { vec![quota] };
                Decider::Baseline(Baseline::connect(way, url, name, &limits).await?)
            }
        })
    }
}

/// A throttle of one upstream, on a connection of its own.
pub(crate) async fn outgate(url: &str, name: &str, limits: &[Quota]) -> Result<Throttle, Failure> {
    let limit = |limit: &Quota| Limit::new(limit.quota, limit.window);
    let upstream = limits.iter().map(limit).fold(Upstream::new(name), Upstream::limit);
    Ok(Throttle::builder().store(RedisStore::connect(url).await?).upstream(upstream).build()?)
}

fn trypema(name: &str, quota: Quota) -> Result<(RedisKey, WindowSize, RateLimit), Failure> {
    let window = WindowSize::seconds(quota.window.as_secs())?;
    let rate = RateLimit::per_second(f64::from(quota.quota) / quota.window.as_secs_f64())?;
    Ok((RedisKey::try_from(name)?, window, rate))
}

impl Decider {
    /// Whether a call may go now. Outgate waits until it may.
    pub(crate) async fn decide(&mut self) -> Result<bool, Failure> {
        match self {
            Self::Outgate(throttle, name) => {
                drop(throttle.acquire(name).await?);
                Ok(true)
            }
            Self::Trypema(provider, key, rate) => {
                Ok(matches!(provider.absolute().inc(key, rate, 1).await?, RateLimitDecision::Allowed))
            }
            Self::TrypemaHybrid(provider, key, rate) => {
                Ok(matches!(provider.absolute().inc(key, rate, 1).await?, RateLimitDecision::Allowed))
            }
            Self::Baseline(baseline) => baseline.decide().await,
        }
    }

    /// The same, without waiting.
    async fn decide_now(&mut self) -> Result<bool, Failure> {
        let Self::Outgate(throttle, name) = self else { return self.decide().await };
        match throttle.try_acquire(name).await {
            Ok(_) => Ok(true),
            Err(Error::Throttled { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Makes sure that whoever takes part does limit: of five calls under a quota of three in a second the first three go, and
/// when the second is over another.
pub(crate) async fn check(url: &str) -> Result<(), Failure> {
    let quota = Quota { quota: 3, window: Duration::from_secs(1) };
    let mut deciders = Vec::new();
    for (number, contender) in LIMITERS.into_iter().enumerate() {
        deciders.push((contender, contender.open(url, &format!("up{number}"), quota).await?));
    }
    // A fixed window begins with the second.
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_micros();
    sleep(Duration::from_micros(1_010_000 - u64::from(elapsed))).await;
    for (contender, decider) in &mut deciders {
        let mut verdicts = Vec::new();
        for _ in 0..5 {
            verdicts.push(decider.decide_now().await?);
        }
        if verdicts != [true, true, true, false, false] {
            return Err(format!("{} does not limit: {verdicts:?}", contender.name()).into());
        }
    }
    sleep(quota.window + Duration::from_millis(200)).await;
    for (contender, decider) in &mut deciders {
        if !decider.decide_now().await? {
            return Err(format!("{} does not forget", contender.name()).into());
        }
    }
    Ok(())
}
