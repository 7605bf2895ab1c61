//! How long the script takes on a short log and on a long one.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::baselines::Quota;
use crate::contender::{Contender, SORTED_SET};
use crate::page::{Page, Target};
use crate::race::Threads;
use crate::server::{Failure, Server};
use crate::spread::Spread;

const LENGTHS: [u32; 3] = [100, 5_000, 1_000_000];
const WINDOW: Duration = Duration::from_secs(3_600);
/// Asks in a round: the last of them trims what the others have pushed out of the window, as happens again and again on a
/// log in use.
const ASKS: u32 = 65;
/// So long ago that it counts no more, guard and all.
const EXPIRED: Duration = Duration::from_secs(3_700);

/// Pushes so many stamps, evenly between two. KEYS: list. ARGV: stamps, first, last.
const FILL_LIST: &str = "
local from, step = tonumber(ARGV[2]), (ARGV[3] - ARGV[2]) / ARGV[1]
for at = 0, ARGV[1] - 1, 1000 do
  local stamps = {}
  for i = at, math.min(at + 999, ARGV[1] - 1) do stamps[i - at + 1] = string.format('%.0f', from + i * step) end
  redis.call('RPUSH', KEYS[1], unpack(stamps))
end
";

/// The same into a sorted set, with numbers as members that no caller has.
const FILL_SET: &str = "
local from, step = tonumber(ARGV[2]), (ARGV[3] - ARGV[2]) / ARGV[1]
for i = 0, ARGV[1] - 1 do redis.call('ZADD', KEYS[1], string.format('%.0f', from + i * step), 1000000000 + i) end
";

pub(crate) fn run(page: &mut Page) -> Result<(), Failure> {
    page.section("Script time against the length of the log");
    page.text(&format!(
        "A limit of N per hour with N calls in its log, and one caller. For each round the log is put back to N entries of which \
         {ASKS} have just ceased to count; {ASKS} asks of a new process follow, of which the first is not counted. Once in N calls the log is trimmed, which is not among them. µs for \
         each script call, by `INFO commandstats`.",
    ));
    let mut server = Server::start()?;
    let mut logs = Vec::new();
    for length in LENGTHS {
        logs.push(Log::new(&mut server, Contender::Outgate, length)?);
        logs.push(Log::new(&mut server, SORTED_SET, length)?);
    }
    for _ in 0..page.rounds(45) {
        for log in &mut logs {
            log.round(&mut server)?;
        }
    }
    let spreads: Vec<_> = logs.iter().map(|log| Spread::of(log.us.clone())).collect();
    let rows: Vec<_> = LENGTHS
        .iter()
        .zip(spreads.chunks(2))
        .map(|(length, spreads)| {
            let cells = spreads.iter().map(|spread| spread.cell(2));
            [length.to_string()].into_iter().chain(cells).collect()
        })
        .collect();
    page.table(&["N", Contender::Outgate.name(), SORTED_SET.name()], &rows);
    page.target(
        "script time, largest ÷ smallest of N = 100, 5,000 and 1,000,000",
        flat(&logs),
        "",
        Target::AtMost(1.2),
    );
    Ok(())
}

/// A log of some length, and the rounds on it.
struct Log {
    contender: Contender,
    quota: Quota,
    length: u32,
    name: String,
    key: String,
    us: Vec<f64>,
}

impl Log {
    fn new(server: &mut Server, contender: Contender, length: u32) -> Result<Self, Failure> {
        let ours = contender == Contender::Outgate;
        // The sorted set forgets at once what counts no more, so that it needs room for the asks.
        let quota = Quota { quota: if ours { length } else { length + ASKS }, window: WINDOW };
        let name = format!("{}{length}", if ours { "log" } else { "set" });
        let key = if ours { format!("outgate:v1:{{{name}}}:log:calls") } else { name.clone() };
        let expired = if ours { ASKS } else { 0 };
        let (first, last) = (stamp(Duration::from_secs(3_000)), stamp(Duration::from_secs(1)));
        let fill = if ours { FILL_LIST } else { FILL_SET };
        server.command(&["EVAL", fill, "1", &key, &(length - expired).to_string(), &first, &last])?;
        Ok(Self { contender, quota, length, name, key, us: Vec::new() })
    }

    /// By a process of its own: one that knew of another round would miss the calls that were taken out.
    fn round(&mut self, server: &mut Server) -> Result<(), Failure> {
        if self.contender == Contender::Outgate {
            let expired = stamp(EXPIRED);
            let mut push = vec!["LPUSH", &self.key];
            push.extend([expired.as_str(); ASKS as usize]);
            server.command(&push)?;
        }
        let runtime = Threads::One.runtime()?;
        let mut decider = runtime.block_on(self.contender.open(&server.url(), &self.name, self.quota))?;
        let mut ask = |times: u32| {
            runtime.block_on(async {
                for _ in 0..times {
                    if !decider.decide().await? {
                        return Err::<_, Failure>(format!("the quota of {} is used up", self.key).into());
                    }
                }
                Ok(())
            })
        };
        // The first shows the server's clock as well.
        ask(1)?;
        let before = server.counters()?;
        ask(ASKS - 1)?;
        let work = server.work_since(&before, &["evalsha"])?;
        drop((decider, runtime));
        self.us.push(work.us / work.calls);
        self.put_back(server)
    }

    /// Takes the calls of a round out again.
    fn put_back(&self, server: &mut Server) -> Result<(), Failure> {
        let asks = ASKS.to_string();
        let (left, expected) = if self.contender == Contender::Outgate {
            server.command(&["RPOP", &self.key, &asks])?;
            // What has ceased to count stays in the log until there are N of it.
            server.command(&["LTRIM", &self.key, &format!("-{}", self.length - ASKS), "-1"])?;
            // Without an expiry that says for how long others count.
            server.command(&["PERSIST", &self.key])?;
            (server.command(&["LLEN", &self.key])?, self.length - ASKS)
        } else {
            server.command(&["ZPOPMAX", &self.key, &asks])?;
            (server.command(&["ZCARD", &self.key])?, self.length)
        };
        match left.int() {
            Some(left) if left == i64::from(expected) => Ok(()),
            left => Err(format!("{} holds {left:?} calls, not {expected}", self.key).into()),
        }
    }
}

/// The stamp of some time ago.
fn stamp(ago: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(ago).as_micros().to_string()
}

/// The slowest of our logs to the fastest, by the medians of all rounds, and of each third of them.
fn flat(logs: &[Log]) -> Spread {
    let ours: Vec<_> = logs.iter().step_by(2).map(|log| log.us.as_slice()).collect();
    let ratio = |part: &dyn Fn(&[f64]) -> Vec<f64>| {
        let medians = || ours.iter().map(|us| Spread::of(part(us)).median);
        medians().fold(f64::MIN, f64::max) / medians().fold(f64::MAX, f64::min)
    };
    let third =
        |number: usize| ratio(&|us| us.iter().skip(number * us.len() / 3).take(us.len() / 3).copied().collect());
    let whole = ratio(&<[f64]>::to_vec);
    let thirds = Spread::of((0..3).map(third).collect());
    Spread { median: whole, min: thirds.min.min(whole), max: thirds.max.max(whole) }
}
