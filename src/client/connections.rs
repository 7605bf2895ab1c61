//! Which calls probably open a connection: those that bring more in flight to their host than there were lately. A client keeps the
//! connections of calls before, and opens another only where all of them are in use.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Url;
use tokio::time::Instant;

use crate::ledger::ScopeHasher;

/// A connection that is idle for so long may be closed: by reqwest after 90 s, by most servers after 60 or 75.
const LATELY: Duration = Duration::from_secs(60);
/// In how many parts that time passes.
const PARTS: usize = 6;
/// Hosts that are remembered for one upstream: some megabytes.
const MAX_HOSTS: usize = 65_536;

/// The calls in flight to one host, and how many there were at most in each part of the time lately.
#[derive(Clone, Copy, Debug, Default)]
struct Host {
    in_flight: u32,
    /// The last part is the present one.
    most: [u32; PARTS + 1],
    part: u64,
}

impl Host {
    /// A call goes out in a part of the time. Says whether there were never as many in flight lately.
    fn begin(&mut self, part: u64) -> bool {
        self.pass(part);
        let lately = self.most.into_iter().max().unwrap_or(0);
        self.in_flight += 1;
        self.most[PARTS] = self.most[PARTS].max(self.in_flight);
        self.in_flight > lately
    }

    /// The headers of its response are here, or it has failed.
    fn end(&mut self, part: u64) {
        self.pass(part);
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    fn pass(&mut self, part: u64) {
        if part <= self.part {
            return;
        }
        let passed = usize::try_from(part - self.part).unwrap_or(usize::MAX).min(PARTS + 1);
        self.most.rotate_left(passed % (PARTS + 1));
        self.most[PARTS + 1 - passed..].fill(self.in_flight);
        self.part = part;
    }

    /// Whether it has no open connection, as far as is known.
    fn is_quiet(mut self, part: u64) -> bool {
        self.pass(part);
        self.most == [0; PARTS + 1]
    }
}

/// The calls in flight to the hosts of one upstream.
#[derive(Debug)]
pub(crate) struct Connections {
    hosts: Mutex<Hosts>,
    hasher: ScopeHasher,
    epoch: Instant,
}

#[derive(Debug, Default)]
struct Hosts {
    /// By the hash of host and port.
    by_hash: HashMap<u64, Host, ScopeHasher>,
    /// The part of the time in which those were looked for last that have no connection: they are none in between.
    swept_in: Option<u64>,
}

impl Hosts {
    /// The host, if there is room for it.
    fn host(&mut self, host: u64, part: u64) -> Option<&mut Host> {
        let is_full = self.by_hash.len() >= MAX_HOSTS && !self.by_hash.contains_key(&host);
        if is_full && self.swept_in < Some(part) {
            self.by_hash.retain(|_, host| !host.is_quiet(part));
            self.swept_in = Some(part);
        }
        let is_known = self.by_hash.len() < MAX_HOSTS || self.by_hash.contains_key(&host);
        is_known.then(|| self.by_hash.entry(host).or_default())
    }
}

/// A call in flight, until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight<'a> {
    connections: &'a Connections,
    host: u64,
    is_cold: bool,
}

impl Connections {
    pub(crate) fn new() -> Self {
        Self { hosts: Mutex::default(), hasher: ScopeHasher::default(), epoch: Instant::now() }
    }

    /// A call goes out at `now`.
    #[inline]
    pub(crate) fn begin(&self, url: &Url, now: Instant) -> InFlight<'_> {
        let host = self.hasher.hash_one((url.host_str(), url.port_or_known_default()));
        let part = self.part(now);
        // Among so many hosts a call to another mostly opens a connection.
        let is_cold = self.lock().host(host, part).is_none_or(|host| host.begin(part));
        InFlight { connections: self, host, is_cold }
    }

    fn part(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_secs() / (LATELY.as_secs() / PARTS as u64)
    }

    fn lock(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InFlight<'_> {
    /// Whether it probably opens a connection.
    pub(crate) const fn is_cold(&self) -> bool {
        self.is_cold
    }
}

impl Drop for InFlight<'_> {
    #[inline]
    fn drop(&mut self) {
        let part = self.connections.part(Instant::now());
        if let Some(host) = self.connections.lock().by_hash.get_mut(&self.host) {
            host.end(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_cold_that_brings_more_in_flight_than_there_were_lately() {
        // At which part, `+` a call goes out, `-` one is answered; and which of those that went out were cold.
        let cases = [
            ("one after another", "0+-+-+-", "100"),
            ("more at once", "0+++---+++-+", "1110000"),
            ("one more than ever", "0++-++-+", "11010"),
            ("soon again", "0++--6++", "1100"),
            ("after a long silence", "0++--7++", "1111"),
            ("fewer are in use", "0++-5-+-4++", "11001"),
            ("fewer are kept in use", "0+++---4+-3++", "111001"),
            ("in flight for long", "0++9--+", "110"),
            ("and longer", "0++9--6++-", "1100"),
        ];
        for (name, events, expected) in cases {
            let (mut host, mut part, mut cold) = (Host::default(), 0, String::new());
            for event in events.chars() {
                match event {
                    '+' => cold.push(if host.begin(part) { '1' } else { '0' }),
                    '-' => host.end(part),
                    digit => part += u64::from(digit.to_digit(10).unwrap()),
                }
            }
            assert_eq!(cold, expected, "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_host_and_port_has_its_own_and_no_more_are_remembered_than_are_of_use() {
        let (connections, url) = (Connections::new(), |text: &str| text.parse::<Url>().unwrap());
        let begin = |text: &str| connections.begin(&url(text), Instant::now());
        let first = begin("http://a/one");
        assert!(first.is_cold() && begin("https://a/").is_cold() && begin("http://b/").is_cold());
        drop(first);
        assert!(!begin("http://a:80/two").is_cold());
        for host in 0..MAX_HOSTS + 1_000 {
            assert!(begin(&format!("http://{host}.example/")).is_cold());
        }
        assert_eq!(connections.lock().by_hash.len(), MAX_HOSTS);
        tokio::time::advance(2 * LATELY).await;
        assert!(begin("http://another/").is_cold());
        assert_eq!(connections.lock().by_hash.len(), 1);
    }

    #[test]
    fn where_no_room_is_left_it_is_looked_for_once_in_each_part_of_the_time() {
        let mut hosts = Hosts::default();
        for host in 0..MAX_HOSTS as u64 {
            hosts.host(host, 0).unwrap().begin(0);
            hosts.host(host, 0).unwrap().end(0);
        }
        assert!(hosts.host(u64::MAX, 6).is_none(), "all were called lately");
        assert_eq!((hosts.by_hash.len(), hosts.swept_in), (MAX_HOSTS, Some(6)));
        for part in [6, 5] {
            assert!(hosts.host(u64::MAX, part).is_none());
            assert_eq!(hosts.swept_in, Some(6));
        }
        assert!(hosts.host(u64::MAX, 7).is_some());
        assert_eq!((hosts.by_hash.len(), hosts.swept_in), (1, Some(7)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_beside_thousands_of_others_is_remembered_too() {
        let (connections, url) = (Connections::new(), |text: &str| text.parse::<Url>().unwrap());
        let begin = |text: &str| connections.begin(&url(text), Instant::now());
        let _in_flight: Vec<_> = (0..5_000).map(|host| begin(&format!("http://{host}.example/"))).collect();
        assert!(begin("http://another/").is_cold());
        assert!(!begin("http://another/").is_cold());
    }
}
