//! Which hosts cannot be reached by a client: after connects to one failed in a row, one call at a time goes to see, and the others wait.

mod row;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

use self::row::{Look, Row};
use crate::client::route::Route;
use crate::client::url::Target;
use crate::config::plan::Registered;
use crate::counts::GivesUp;
use crate::error::Error;

/// How many hosts are told apart, of all clients together; of more, callers do not wait.
const MOST_HOSTS: usize = 1_000;
/// How often hosts are looked for that nobody has called for long.
const SWEEP: Duration = Duration::from_secs(60);
/// How long a call without a deadline waits, before it goes and sees for itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// The hosts that a process could not connect to lately.
#[derive(Debug, Default)]
pub(crate) struct Reachability {
    hosts: Mutex<Hosts>,
    hasher: RandomState,
    /// How many there are: mostly none, so that nobody takes the lock.
    failing: AtomicUsize,
    clients: AtomicU64,
}

/// A client: another may reach a host by another proxy, or with another certificate.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Client(u64);

#[derive(Debug, Default)]
struct Hosts {
    /// By the hash of client, host and port.
    by_hash: HashMap<u64, Arc<Host>>,
    /// When hosts were last looked for that nobody has called for long.
    swept_at: Option<Instant>,
}

#[derive(Debug)]
struct Host {
    row: Mutex<Row>,
    /// Wakes everybody: a connect succeeded.
    connected: Notify,
    /// Wakes whoever goes to see next: it goes earlier.
    earlier: Notify,
}

/// A call to a host. Dropped before it is known whether that can be reached, it leaves going to see to the next.
#[derive(Debug)]
#[must_use = "a visit that is dropped says nothing of the host"]
pub(crate) struct Visit<'a> {
    reachability: &'a Reachability,
    client: Client,
    target: &'a Target<'a>,
    look: Look,
    /// When it went on.
    pub(crate) since: Instant,
}

impl Reachability {
    /// One more client.
    pub(crate) fn client(&self) -> Client {
        Client(self.clients.fetch_add(1, Ordering::Relaxed))
    }

    /// Lets a call go that has waited since `now`; where its host cannot be reached it waits until a connect succeeds, or until it
    /// is its turn to go and see.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`], when its time is up; [`Error::TooManyWaiting`]; what says that it can never go; [`Error::OutsideRuntime`].
    pub(crate) async fn visit<'a>(
        &'a self,
        client: Client,
        target: &'a Target<'a>,
        route: &Route,
        now: Instant,
    ) -> Result<Visit<'a>, Error> {
        let visit = |look, since| Visit { reachability: self, client, target, look, since };
        let Some(found) = self.find(client, target, now) else { return Ok(visit(Look::default(), now)) };
        let is_observed = route.registered.observer.is_some();
        if is_observed || !found.row().is_down() {
            return Ok(visit(Look::default(), now));
        }
        Handle::try_current().map_err(|_| route.told(Error::OutsideRuntime))?;
        // It waits as others do, and what can never go does not.
        let Registered { crowd, upstream, .. } = &*route.registered;
        route.charges().map_err(|error| route.told(error))?;
        let member = (!route.now_or_never).then(|| crowd.admit(false, &upstream.name)).transpose();
        let member = member.map_err(|error| route.told(error))?;
        let _outside = member.as_ref().map(|member| crowd.waits_outside(member.ticket, now));
        let waits = GivesUp::of(&route.registered.counts);
        let until = route.deadline().unwrap_or(now + PATIENCE);
        // Boxed, as every call would have room for it.
        let looks = Box::pin(timeout_at(if route.now_or_never { now } else { until }, found.wait())).await;
        waits.end();
        match looks {
            Ok(look) => Ok(visit(look, Instant::now())),
            Err(_) if route.deadline().is_none() && !route.now_or_never => Ok(visit(Look::default(), Instant::now())),
            Err(_) => Err(found.unreachable(target, route)),
        }
    }

    #[inline]
    fn any_fails(&self) -> bool {
        self.failing.load(Ordering::Relaxed) > 0
    }

    #[inline]
    fn find(&self, client: Client, target: &Target<'_>, now: Instant) -> Option<Arc<Host>> {
        if !self.any_fails() {
            return None;
        }
        let mut hosts = self.lock();
        if hosts.swept_at.is_none_or(|at| at + SWEEP <= now) {
            hosts.sweep(now);
            self.failing.store(hosts.by_hash.len(), Ordering::Relaxed);
        }
        hosts.by_hash.get(&self.key(client, target)).map(Arc::clone)
    }

    fn key(&self, client: Client, target: &Target<'_>) -> u64 {
        self.hasher.hash_one((client, target.server()))
    }

    /// The host of a connect that failed, unless there are too many.
    fn enter(&self, client: Client, target: &Target<'_>, now: Instant) -> Option<Arc<Host>> {
        let host = self.key(client, target);
        let mut hosts = self.lock();
        if hosts.by_hash.len() >= MOST_HOSTS && !hosts.by_hash.contains_key(&host) {
            hosts.make_room(now);
            if hosts.by_hash.len() >= MOST_HOSTS {
                return None;
            }
        }
        let found = Arc::clone(hosts.by_hash.entry(host).or_insert_with(|| Arc::new(Host::new(now))));
        self.failing.store(hosts.by_hash.len(), Ordering::Relaxed);
        Some(found)
    }

    fn lock(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hosts {
    /// Forgets those that nobody has called for long.
    fn sweep(&mut self, now: Instant) {
        self.by_hash.retain(|_, host| !host.row().is_unused(now));
        self.swept_at = Some(now);
    }

    /// Forgets those, too, that answered the last time, and then those for which nobody waits, where that is not enough.
    fn make_room(&mut self, now: Instant) {
        self.sweep(now);
        for matters in [Row::fails, Row::is_down] {
            if self.by_hash.len() >= MOST_HOSTS {
                self.by_hash.retain(|_, host| matters(&host.row()));
            }
        }
    }
}

impl Host {
    fn new(now: Instant) -> Self {
        let (connected, earlier) = (Notify::new(), Notify::new());
        Self { row: Mutex::new(Row::new(now)), connected, earlier }
    }

    /// Waits until a connect succeeds, or until it is the caller's turn to go and see.
    async fn wait(&self) -> Look {
        let mut connected = pin!(self.connected.notified());
        connected.as_mut().enable();
        select! {
            biased;
            look = self.look() => look,
            () = connected => Look::default(),
        }
    }

    /// Waits until it is the caller's turn. A caller that is polled no more holds nobody up.
    async fn look(&self) -> Look {
        loop {
            let next = match self.row().admit(Instant::now(), fastrand::f64()) {
                Ok(look) => return look,
                Err(next) => next,
            };
            select! {
                () = sleep_until(next) => {}
                () = self.earlier.notified() => {}
            }
        }
    }

    fn unreachable(&self, target: &Target<'_>, route: &Route) -> Error {
        let (upstream, host) = (Arc::clone(&route.registered.upstream.name), target.shown());
        let error = Error::Unreachable { upstream, host, retry_after: self.row().next_look(Instant::now()) };
        tracing::debug!(upstream = &*route.registered.upstream.name, %error, "refused");
        route.told(error)
    }

    fn row(&self) -> MutexGuard<'_, Row> {
        self.row.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visit<'_> {
    /// The host can be reached: a response came, or the call was lost only after connecting.
    #[inline]
    pub(crate) fn connected(mut self) {
        if !self.reachability.any_fails() {
            return;
        }
        let now = Instant::now();
        self.look = Look::default();
        if let Some(host) = self.reachability.find(self.client, self.target, now)
            && host.row().connect(now)
        {
            host.connected.notify_waiters();
        }
    }

    /// It cannot.
    pub(crate) fn failed(mut self, upstream: &str) {
        let now = Instant::now();
        self.look = Look::default();
        let host = self.reachability.enter(self.client, self.target, now);
        if host.is_some_and(|host| host.row().fail(now, fastrand::f64())) {
            let host = &*self.target.shown();
            tracing::warn!(upstream, host, "cannot be connected to: one call at a time goes to see");
        }
    }
}

impl Drop for Visit<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.look == Look::default() {
            return;
        }
        let now = Instant::now();
        if let Some(host) = self.reachability.find(self.client, self.target, now)
            && host.row().pass_on(self.look, now)
        {
            host.earlier.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_host_that_nobody_calls_any_more_is_forgotten_as_others_are_called() {
        let target = |url: &str| Target::kept(&url.parse().unwrap());
        let (reachability, gone, other) = (Reachability::default(), target("http://gone/"), target("http://other/"));
        let client = reachability.client();
        let visit = |target| Visit {
            reachability: &reachability,
            client,
            target,
            look: Look::default(),
            since: Instant::now(),
        };
        visit(&gone).failed("up");
        let failing = || reachability.failing.load(Ordering::Relaxed);
        for _ in 0..3 {
            visit(&other).connected();
            assert_eq!(failing(), 1);
            tokio::time::advance(SWEEP / 4).await;
        }
        tokio::time::advance(2 * SWEEP).await;
        visit(&other).connected();
        assert_eq!(failing(), 0, "nobody takes the lock any more");
    }

    #[tokio::test(start_paused = true)]
    async fn hosts_that_answer_again_leave_room_for_one_that_fails() {
        let (reachability, now) = (Reachability::default(), Instant::now());
        let targets = (0..=MOST_HOSTS).map(|nth| Target::kept(&format!("http://{nth}.example/").parse().unwrap()));
        let targets: Vec<_> = targets.collect();
        let client = reachability.client();
        let visit = |target| Visit { reachability: &reachability, client, target, look: Look::default(), since: now };
        let fall = |target| (0..3).for_each(|_| visit(target).failed("up"));
        let is_down = |target| reachability.find(client, target, now).is_some_and(|host| host.row().is_down());
        fall(&targets[0]);
        for answers in &targets[1..MOST_HOSTS] {
            visit(answers).failed("up");
            visit(answers).connected();
        }
        fall(&targets[MOST_HOSTS]);
        assert!(is_down(&targets[0]) && is_down(&targets[MOST_HOSTS]));
    }

    #[tokio::test(start_paused = true)]
    async fn hosts_that_failed_once_leave_room_for_one_that_is_down() {
        let (reachability, now) = (Reachability::default(), Instant::now());
        let [crawler, payments] = [reachability.client(), reachability.client()];
        let targets = (0..=MOST_HOSTS).map(|nth| Target::kept(&format!("http://{nth}.example/").parse().unwrap()));
        let targets: Vec<_> = targets.collect();
        let visit =
            |client, target| Visit { reachability: &reachability, client, target, look: Look::default(), since: now };
        for target in &targets {
            visit(crawler, target).failed("up");
        }
        (0..3).for_each(|_| visit(payments, &targets[0]).failed("up"));
        assert!(reachability.find(payments, &targets[0], now).is_some_and(|host| host.row().is_down()));
    }
}
