//! What goes wrong, chosen at random.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;
use outgate::testing::Mode;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Redis stands still.
    FreezeRedis(Duration),
    /// Redis answers nobody (`CLIENT PAUSE`).
    PauseClients(Duration),
    /// Redis forgets its scripts.
    ForgetScripts,
    /// Redis closes all connections.
    KillConnections,
    /// Redis is killed and started again, with its data.
    Restart,
    /// The connection of one process, or of all, misbehaves for a while.
    Connection { of: Option<usize>, mode: Mode, lasting: Duration },
    /// From now on replies to a process take so long.
    Latency { of: usize, replies: Duration },
    /// A process is killed, and another starts in its place.
    KillWorker(usize),
    /// A process stands still.
    FreezeWorker(usize, Duration),
    /// Redis loses its data.
    Flush,
    /// Redis is killed and started again without its data.
    RestartEmpty,
    /// Redis is short of memory, and evicts what it likes.
    Evict(Duration),
}

impl Fault {
    /// The next one. Only where it may, Redis loses data.
    pub(crate) fn next(random: &mut Rng, workers: usize, may_lose: bool) -> Self {
        let lasting = some(random, 200..1_500);
        let worker = random.usize(0..workers);
        match random.u8(0..if may_lose { 16 } else { 13 }) {
            0 => Self::FreezeRedis(lasting),
            1 => Self::PauseClients(lasting),
            2 => Self::ForgetScripts,
            3 => Self::KillConnections,
            4 | 5 => Self::Restart,
            6..9 => {
                let of = if random.bool() { Some(worker) } else { None };
                let modes = [
                    Mode::SwallowReplies,
                    Mode::CutBeforeReply(random.usize(1..5)),
                    Mode::GarbleReplies,
                    Mode::DoubleReplies,
                    Mode::Refuse,
                    Mode::Blackhole,
                ];
                Self::Connection { of, mode: modes[random.usize(0..modes.len())], lasting }
            }
            9 | 10 => Self::Latency { of: worker, replies: some(random, 0..80) },
            11 => Self::KillWorker(worker),
            12 => Self::FreezeWorker(worker, lasting),
            13 => Self::Flush,
            14 => Self::RestartEmpty,
            _ => Self::Evict(lasting),
        }
    }
}

fn some(random: &mut Rng, ms: Range<u64>) -> Duration {
    Duration::from_millis(random.u64(ms))
}
