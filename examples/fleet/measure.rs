//! How long a real Redis is busy with a call.

use std::error::Error;
use std::fmt;
use std::time::{Duration, Instant};

use fastrand::Rng;
use outgate::ledger::{Ask, Log, Message, MessageId, Run, ScopeId, Slots, Stamp, Term};
use outgate::store::StoreError;
use outgate::testing::RedisServer;
use outgate::{RedisStore, Store as _};
use tokio::task::JoinSet;

use crate::service::Service;

/// Connections, each of which asks again as soon as it has its answer.
const CONNECTIONS: u64 = 64;
/// Names that each of them asks under.
const SENDERS: u64 = 16;
/// How long each kind of call is made in a round.
const TIME: Duration = Duration::from_millis(800);
const ROUNDS: usize = 5;
/// Callers in a large ask.
const MANY: u32 = 64;

/// A kind of call, in scopes of some quota a second.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    scopes: u64,
    quota: u32,
    callers: u32,
    /// Every other call hands back what the one before it booked.
    hands_back: bool,
}

const ONE: Kind = Kind { name: "1 caller, room", scopes: 10_000, quota: 1_000_000, callers: 1, hands_back: false };

const KINDS: [Kind; 4] = [
    ONE,
    Kind { name: "64 callers, room", callers: MANY, ..ONE },
    Kind { name: "8 callers of 1,000 processes, no room for all", scopes: 10, quota: 500, callers: 8, ..ONE },
    Kind { name: "1 caller, every other time with a hand-back", hands_back: true, ..ONE },
];

/// What a server spent on each of some calls, in µs.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    /// All of it, by the CPU time of its main thread.
    busy: f64,
    /// In the script, by the clock, as the server counts.
    script: f64,
    per_second: f64,
}

/// What was measured, kind by kind.
pub(crate) struct Measured {
    version: String,
    spent: Vec<Spent>,
}

/// Measures on a server that is started for it: every kind in turns, and then the medians.
pub(crate) fn run() -> Result<Measured, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = RedisServer::start()?;
    let mut rounds = vec![Vec::new(); KINDS.len()];
    for _ in 0..ROUNDS {
        for (kind, spent) in KINDS.iter().zip(&mut rounds) {
            spent.push(runtime.block_on(measure(&server, *kind))?);
        }
    }
    let version = info(&server, "server")?.field("redis_version").unwrap_or("of no known version").to_owned();
    Ok(Measured { version, spent: rounds.iter().map(|spent| median(spent)).collect() })
}

/// Makes calls of a kind over all connections for a while.
async fn measure(server: &RedisServer, kind: Kind) -> Result<Spent, Box<dyn Error>> {
    server.command(&["FLUSHALL"])?;
    let mut stores = Vec::new();
    for _ in 0..CONNECTIONS {
        stores.push(RedisStore::connect(&server.url()).await?);
    }
    server.command(&["CONFIG", "RESETSTAT"])?;
    let before = info(server, "cpu")?.busy();
    let begin = Instant::now();
    let mut connections = JoinSet::new();
    for (number, store) in (0..).zip(stores) {
        connections.spawn(keep_asking(store, kind, number, begin));
    }
    let mut calls = 0;
    while let Some(made) = connections.join_next().await {
        calls += made??;
    }
    let (elapsed, after) = (begin.elapsed(), info(server, "cpu")?.busy());
    let calls = f64::from(calls);
    let busy = after.zip(before).map(|(after, before)| (after - before) * 1e6 / calls);
    let script = info(server, "commandstats")?.script();
    let (Some(busy), Some(script)) = (busy, script) else {
        return Err("this redis-server does not tell what its main thread spends: it must be 7.0 or newer".into());
    };
    Ok(Spent { busy, script, per_second: calls / elapsed.as_secs_f64() })
}

/// One connection's calls, and how many they were.
async fn keep_asking(store: RedisStore, kind: Kind, connection: u64, begin: Instant) -> Result<u32, StoreError> {
    let mut asker = Asker { store, kind, number: 0, known: None };
    let mut random = Rng::with_seed(connection);
    let mut calls = 0;
    while begin.elapsed() < TIME {
        let scope = ScopeId::of(&random.u64(0..kind.scopes).to_be_bytes());
        let sender = u64::MAX - (connection * SENDERS + random.u64(0..SENDERS));
        let booked = asker.ask(sender, scope, Vec::new()).await?;
        calls += 1;
        if kind.hands_back {
            asker.ask(sender, scope, vec![Slots::new(1, booked, [1])]).await?;
            calls += 1;
        }
    }
    Ok(calls)
}

/// What asks over one connection, under several names. Whoever is put off is counted anew each time, which takes longer than again.
struct Asker {
    store: RedisStore,
    kind: Kind,
    number: u64,
    known: Option<Stamp>,
}

impl Asker {
    /// One message, and when the store answered it.
    async fn ask(&mut self, sender: u64, scope: ScopeId, back: Vec<Slots>) -> Result<Stamp, StoreError> {
        self.number += 1;
        let log = Log::new("calls", [Term::new(self.kind.quota, 1_050_000)]).of(Some(scope));
        let mut ask = Ask::new([log], vec![Run::new(self.kind.callers, [1])]);
        ask.back = back;
        let mut message = Message::new("api", MessageId::new(sender, scope.to_string(), self.number), ask);
        message.known = self.known;
        let reply = self.store.apply(&message).await?;
        let grant = reply.grant().unwrap_or_else(|| unreachable!("an ask is answered by a grant"));
        self.known = self.known.max(Some(grant.now));
        Ok(grant.now)
    }
}

/// What the server says of itself.
struct Info(String);

fn info(server: &RedisServer, section: &str) -> Result<Info, Box<dyn Error>> {
    Ok(Info(server.command(&["INFO", section])?.text().unwrap_or_default().to_owned()))
}

impl Info {
    fn field(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    }

    /// Seconds of CPU time that its main thread has taken.
    fn busy(&self) -> Option<f64> {
        let seconds = |name| self.field(name)?.parse::<f64>().ok();
        seconds("used_cpu_user_main_thread").zip(seconds("used_cpu_sys_main_thread")).map(|(user, sys)| user + sys)
    }

    /// Microseconds that a script took.
    fn script(&self) -> Option<f64> {
        let mut stats = self.field("cmdstat_evalsha")?.split(',');
        stats.find_map(|stat| stat.strip_prefix("usec_per_call=")?.parse().ok())
    }
}

fn median(spent: &[Spent]) -> Spent {
    let of = |what: fn(&Spent) -> f64| {
        let mut all: Vec<f64> = spent.iter().map(what).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or_default()
    };
    Spent { busy: of(|spent| spent.busy), script: of(|spent| spent.script), per_second: of(|spent| spent.per_second) }
}

impl Measured {
    /// The service times that the model wants.
    pub(crate) fn service(&self) -> Service {
        let [one, many, waiting, mixed] = [0, 1, 2, 3].map(|kind| self.spent.get(kind).map_or(0.0, |spent| spent.busy));
        let count = f64::from(MANY);
        // To a tenth: more is noise.
        let tenths = |micros: f64| (micros.max(0.0) * 10.0).round() / 10.0;
        Service {
            ask: tenths(one),
            further: tenths((many - one) / (count - 1.0)),
            waiting: tenths(waiting),
            hand_back: tenths(2.0 * (mixed - one)),
        }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, spent } = self;
        writeln!(
            f,
            "Measured on redis-server {version} over {CONNECTIONS} connections, medians of {ROUNDS} rounds, per call:"
        )?;
        for (kind, Spent { busy, script, per_second }) in KINDS.iter().zip(spent) {
            writeln!(
                f,
                "  {:<46} {busy:>5.1} µs of CPU, {script:>5.1} µs in the script; {per_second:.0}/s",
                kind.name
            )?;
        }
        Ok(())
    }
}
