//! A Redis Cluster of one's own.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::{RedisServer, Reply};

/// Slots of a Cluster.
const SLOTS: usize = 16_384;
/// How long the nodes may take to agree.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often they are begun anew: of nodes that a busy machine keeps from shaking hands in time none tries again.
const ATTEMPTS: usize = 4;
/// After how long nodes give up one that is silent, in milliseconds.
const NODE_TIMEOUT: &str = "1000";

/// A Redis Cluster of one's own: real `redis-server` processes, primaries with equal parts of the slots, and replicas of some.
///
/// It ends when this is dropped. A node is killed, frozen and started again as any [`RedisServer`] is; whom the others take it for
/// is told by [`primary`](Self::primary).
///
/// ```
/// # async fn shown() -> Result<(), Box<dyn std::error::Error>> {
/// use outgate::testing::RedisCluster;
///
/// let cluster = RedisCluster::start(3, 1)?; // or RedisCluster::start_with(3, 1, &["--save", ""])
/// let slot = cluster.slot_of("outgate:v1:{gateway}")?;
/// let from = cluster.primary(slot)?.ok_or("nobody has it")?;
/// let to = (from + 1) % 3;
/// cluster.begin_move(slot, from, to)?;
/// println!("{} keys go to {}", cluster.move_keys(slot, from, to)?, cluster.urls()[to]);
/// cluster.end_move(slot, to)?;
/// cluster.nodes()[to].stop(); // a replica takes over
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts so many primaries, and one replica of each of the first of them, and waits until all agree.
    ///
    /// # Errors
    ///
    /// As for [`RedisServer::start`], and when the nodes do not come to agree.
    pub fn start(primaries: usize, replicas: usize) -> io::Result<Self> {
        Self::start_with(primaries, replicas, &[])
    }

    /// The same, with more arguments for each `redis-server`, as for [`RedisServer::start_with`].
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start).
    pub fn start_with(primaries: usize, replicas: usize, extra: &[&str]) -> io::Result<Self> {
        let words = ["--cluster-enabled", "yes", "--cluster-port", "{free}", "--cluster-node-timeout", NODE_TIMEOUT];
        // What one primary lacks must not keep the others from serving.
        let words = [&words[..], &["--cluster-require-full-coverage", "no"], extra].concat();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let nodes =
                (0..primaries + replicas).map(|_| RedisServer::start_with(&words)).collect::<io::Result<_>>()?;
            let cluster = Self { nodes };
            match cluster.join(primaries) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut && attempts < ATTEMPTS => {}
                outcome => return outcome.map(|()| cluster),
            }
        }
    }

    /// Its nodes: first those that began as primaries, then the replicas, in the order of their primaries.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// For clients.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// The slot of a key.
    ///
    /// # Errors
    ///
    /// When no node answers.
    pub fn slot_of(&self, key: &str) -> io::Result<u16> {
        let slot = self.on_any(&["CLUSTER", "KEYSLOT", key])?.int().and_then(|slot| slot.try_into().ok());
        slot.ok_or_else(|| io::Error::other("no slot"))
    }

    /// Which node serves a slot, as every node that runs says; `None` while they do not agree, or while the one that they name does
    /// not run.
    ///
    /// # Errors
    ///
    /// When a node that runs does not answer.
    pub fn primary(&self, slot: u16) -> io::Result<Option<usize>> {
        let mut named = None;
        for node in self.nodes.iter().filter(|node| node.pid().is_some()) {
            let Reply::Array(ranges) = told(node, &["CLUSTER", "SLOTS"])? else { return Ok(None) };
            let port = ranges.iter().find_map(|range| port_in(range, slot));
            if port.is_none() || named.is_some_and(|named| named != port) {
                return Ok(None);
            }
            named = Some(port);
        }
        let is_named = |node: &RedisServer| Some(Some(i64::from(node.port()))) == named && node.pid().is_some();
        Ok(self.nodes.iter().position(is_named))
    }

    /// Begins to move a slot: from now on the one node sends calls of keys that it does not have to the other.
    ///
    /// # Errors
    ///
    /// When a node refuses.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) -> io::Result<()> {
        let (slot, from_id, to_id) = (slot.to_string(), self.id(from)?, self.id(to)?);
        told(&self.nodes[to], &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id])?;
        told(&self.nodes[from], &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id])?;
        Ok(())
    }

    /// Moves the keys that lie in a slot, and says how many.
    ///
    /// # Errors
    ///
    /// When a node refuses.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize) -> io::Result<usize> {
        let (slot, port) = (slot.to_string(), self.nodes[to].port().to_string());
        let mut moved = 0;
        loop {
            let Reply::Array(keys) = told(&self.nodes[from], &["CLUSTER", "GETKEYSINSLOT", &slot, "100"])? else {
                return Err(io::Error::other("no keys"));
            };
            let keys: Vec<&str> = keys.iter().filter_map(Reply::text).collect();
            if keys.is_empty() {
                return Ok(moved);
            }
            let words = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000"];
            let auth = self.nodes[to].password().map(|password| ["AUTH", password]);
            let auth = auth.as_ref().map_or(&[][..], |auth| &auth[..]);
            told(&self.nodes[from], &[&words[..], auth, &["KEYS"], &keys].concat())?;
            moved += keys.len();
        }
    }

    /// Ends a move: every primary is told who has the slot.
    ///
    /// # Errors
    ///
    /// When a node refuses.
    pub fn end_move(&self, slot: u16, to: usize) -> io::Result<()> {
        let (slot, id) = (slot.to_string(), self.id(to)?);
        // The new one first, so that it is never nobody's.
        let others = (0..self.nodes.len()).filter(|&node| node != to);
        for node in std::iter::once(to).chain(others) {
            let node = &self.nodes[node];
            // Replicas hear of it from their primaries.
            if !says(node, &["INFO", "replication"], &["role:slave"])? {
                told(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &id])?;
            }
        }
        Ok(())
    }

    fn join(&self, primaries: usize) -> io::Result<()> {
        for (place, node) in self.nodes.iter().enumerate() {
            told(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(place + 1).to_string()])?;
            if place < primaries {
                let [first, last] =
                    [place * SLOTS / primaries, (place + 1) * SLOTS / primaries - 1].map(|n| n.to_string());
                told(node, &["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
            }
        }
        let (port, bus) = (self.nodes[0].port().to_string(), bus_port(&self.nodes[0])?);
        for node in &self.nodes[1..] {
            told(node, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
        }
        let known = format!("cluster_known_nodes:{}", self.nodes.len());
        // A node that serves without all slots is "ok" before it has heard of the slots of others.
        let assigned = format!("cluster_slots_assigned:{SLOTS}");
        self.wait_until(|node| says(node, &["CLUSTER", "INFO"], &[&known, &assigned, "cluster_state:ok"]))?;
        for (place, replica) in self.nodes[primaries..].iter().enumerate() {
            told(replica, &["CLUSTER", "REPLICATE", &self.id(place)?])?;
        }
        for replica in &self.nodes[primaries..] {
            until(|| says(replica, &["INFO", "replication"], &["role:slave", "master_link_status:up"]))?;
        }
        let slaves = format!("{}", self.nodes.len() - primaries);
        self.wait_until(|node| {
            let nodes = told(node, &["CLUSTER", "NODES"])?;
            let replicas = nodes.text().map(|nodes| nodes.lines().filter(|line| line.contains("slave")).count());
            Ok(replicas.map(|count| count.to_string()) == Some(slaves.clone()))
        })
    }

    /// Waits until every node says so.
    fn wait_until(&self, says: impl Fn(&RedisServer) -> io::Result<bool>) -> io::Result<()> {
        self.nodes.iter().try_for_each(|node| until(|| says(node)))
    }

    fn id(&self, node: usize) -> io::Result<String> {
        let id = told(&self.nodes[node], &["CLUSTER", "MYID"])?;
        id.text().map(str::to_owned).ok_or_else(|| io::Error::other("no id"))
    }

    fn on_any(&self, words: &[&str]) -> io::Result<Reply> {
        let running = self.nodes.iter().find(|node| node.pid().is_some());
        told(running.ok_or_else(|| io::Error::other("no node runs"))?, words)
    }
}

/// Sends a command, which must not be refused.
fn told(node: &RedisServer, words: &[&str]) -> io::Result<Reply> {
    match node.command(words)? {
        Reply::Error(refusal) => Err(io::Error::other(refusal)),
        reply => Ok(reply),
    }
}

/// Whether a node's report has all of these lines.
fn says(node: &RedisServer, words: &[&str], lines: &[&str]) -> io::Result<bool> {
    let report = told(node, words)?;
    Ok(report.text().is_some_and(|report| lines.iter().all(|line| report.lines().any(|said| said == *line))))
}

fn bus_port(node: &RedisServer) -> io::Result<String> {
    let Reply::Array(said) = told(node, &["CONFIG", "GET", "cluster-port"])? else {
        return Err(io::Error::other("no port"));
    };
    said.get(1).and_then(Reply::text).map(str::to_owned).ok_or_else(|| io::Error::other("no port"))
}

/// The port of the primary of a range of `CLUSTER SLOTS`, where the slot lies in it.
fn port_in(range: &Reply, slot: u16) -> Option<i64> {
    let Reply::Array(parts) = range else { return None };
    let (first, last, Reply::Array(primary)) = (parts.first()?.int()?, parts.get(1)?.int()?, parts.get(2)?) else {
        return None;
    };
    (first..=last).contains(&slot.into()).then(|| primary.get(1)?.int()).flatten()
}

fn until(holds: impl Fn() -> io::Result<bool>) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !holds()? {
        if Instant::now() > deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the nodes do not agree"));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
