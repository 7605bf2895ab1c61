//! What a message costs the server where it is not the commonest: somebody waits, others ask as well, a pause lasts.

use std::time::Duration;

use outgate::ledger::{Ask, Body, Grant, Log, Message, MessageId, Pause, Run, ScopeId, Stamp, Term};
use outgate::{RedisStore, Store as _};

use crate::baselines::{Baseline, Quota, Way};
use crate::page::{Page, Target};
use crate::race::Threads;
use crate::server::{Failure, Server};
use crate::spread::Spread;

const ROUNDS: usize = 9;
/// Messages of each kind in a round.
const MESSAGES: usize = 100;
const CALLERS: u32 = 64;
const QUOTA: u32 = 1_000;
const HOUR: i64 = 3_600_000_000;
const MINUTE: i64 = 60_000_000;
const UP: &str = "up";
/// Whose messages are measured.
const SENDER: u64 = 1;

/// A kind of message, and the state in which it comes.
#[derive(Clone, Copy)]
struct Path {
    name: &'static str,
    target: f64,
    /// Processes whose callers were put off before.
    others: u64,
    /// Units that are free.
    free: u32,
    callers: u32,
    /// Of them, who get a slot.
    granted: u32,
    scopes: u32,
    is_paused: bool,
    /// The server's clock was set back, or another server took over.
    is_corrected: bool,
}

const ONE: Path = Path {
    name: "one caller, a slot free",
    target: 1.55,
    others: 0,
    free: QUOTA,
    callers: 1,
    granted: 1,
    scopes: 1,
    is_paused: false,
    is_corrected: false,
};

const PATHS: [Path; 8] = [
    ONE,
    Path {
        name: "one caller, put off again, 1,000 others asking",
        target: 1.6,
        others: 1_000,
        free: 0,
        granted: 0,
        ..ONE
    },
    Path { name: "one caller, a slot free, 8 others asking", target: 2.4, others: 8, ..ONE },
    Path { name: "64 callers, 24 of them granted", target: 4.8, free: 24, callers: CALLERS, granted: 24, ..ONE },
    Path {
        // Its part of a quarter of the quota.
        name: "64 callers, 28 of them granted, 8 others asking",
        target: 4.8,
        others: 8,
        free: 100,
        callers: CALLERS,
        granted: 28,
        ..ONE
    },
    Path { name: "one caller, during a pause", target: 2.4, granted: 0, is_paused: true, ..ONE },
    Path { name: "one caller, a slot free, log time corrected", target: 2.4, is_corrected: true, ..ONE },
    Path { name: "one caller, three logs in three scopes, a slot free", target: 3.0, scopes: 3, ..ONE },
];

const PROSE: &str = "One message after another goes to the store itself, in a state that is made before and does not change: what a \
    message books is taken out again. Others are processes whose callers were put off a moment ago. µs that the server executes each \
    message, and their ratio to the script of the log in a sorted set, which knows of none of that, in the same round.";

pub(crate) fn run(page: &mut Page) -> Result<(), Failure> {
    page.section("Slow paths: what the server pays");
    page.text(PROSE);
    let (mut server, runtime) = (Server::start()?, Threads::One.runtime()?);
    let (mut baseline, mut rounds) = (Vec::new(), vec![Vec::new(); PATHS.len()]);
    // The first round warms up.
    for round in 0..=page.rounds(ROUNDS) {
        let theirs = runtime.block_on(sorted_set(&mut server))?;
        baseline.extend((round > 0).then_some(theirs));
        for (path, figures) in PATHS.iter().zip(&mut rounds) {
            let ours = runtime.block_on(measure(&mut server, *path))?;
            figures.extend((round > 0).then_some((ours, ours / theirs)));
        }
    }
    let mut rows = vec![vec![Way::SortedSet.name().to_owned(), Spread::of(baseline).cell(2), "1.00".to_owned()]];
    for (path, figures) in PATHS.iter().zip(rounds) {
        let (us, ratios): (Vec<_>, Vec<_>) = figures.into_iter().unzip();
        let ratio = Spread::of(ratios);
        page.target(&format!("script ÷ sorted-set log: {}", path.name), ratio, "", Target::AtMost(path.target));
        rows.push(vec![path.name.to_owned(), Spread::of(us).cell(2), ratio.cell(2)]);
    }
    page.table(&["message", "µs", "÷"], &rows);
    Ok(())
}

/// µs of the baseline's script, for one caller who gets a slot.
async fn sorted_set(server: &mut Server) -> Result<f64, Failure> {
    server.clear()?;
    let quota = Quota { quota: 1_000_000, window: Duration::from_secs(3_600) };
    let mut baseline = Baseline::connect(Way::SortedSet, &server.url(), "up", &[quota]).await?;
    let before = server.counters()?;
    for _ in 0..MESSAGES {
        if !baseline.decide().await? {
            return Err("the quota of the sorted set is used up".into());
        }
    }
    let work = server.work_since(&before, &["evalsha"])?;
    Ok(work.us / work.calls)
}

/// µs of the script for one kind of message.
async fn measure(server: &mut Server, path: Path) -> Result<f64, Failure> {
    server.clear()?;
    let mut process = Process::new(server, path).await?;
    process.prepare(server).await?;
    // The first message is counted among those who wait, and says so from then on.
    process.ask(SENDER, path.callers).await?;
    let before = server.counters()?;
    for _ in 0..MESSAGES {
        // Of a thousand units a message of one caller leaves enough.
        if path.granted > 1 {
            process.restore(server)?;
        }
        let granted = process.ask(SENDER, path.callers).await?;
        if granted != path.granted {
            return Err(format!("{}: {granted} callers were granted", path.name).into());
        }
    }
    let work = server.work_since(&before, &["evalsha"])?;
    Ok(work.us / work.calls)
}

/// Who sends messages of a kind.
struct Process {
    path: Path,
    store: RedisStore,
    logs: Vec<Log>,
    number: u64,
    previous: u64,
    known: Option<Stamp>,
    counted: Vec<Stamp>,
}

impl Process {
    async fn new(server: &Server, path: Path) -> Result<Self, Failure> {
        let store = RedisStore::connect(&server.url()).await?;
        let scope = |number: u32| (number > 0).then(|| ScopeId::of(&number.to_be_bytes()));
        let log = |number| Log::new("calls", [Term::new(QUOTA, HOUR)]).of(scope(number));
        let logs = (0..path.scopes).map(log).collect();
        Ok(Self { path, store, logs, number: 0, previous: 0, known: None, counted: Vec::new() })
    }

    /// Fills the logs, lets others wait, frees some units, and pauses.
    async fn prepare(&mut self, server: &mut Server) -> Result<(), Failure> {
        self.ask(u64::MAX, QUOTA).await?;
        if self.path.is_corrected {
            self.known = self.known.map(|known| Stamp::from_micros(known.as_micros() + MINUTE));
        }
        for other in 0..self.path.others {
            (self.previous, self.counted) = (0, Vec::new());
            self.ask(SENDER + 1 + other, 1).await?;
        }
        (self.previous, self.counted) = (0, Vec::new());
        self.restore(server)?;
        if self.path.is_paused {
            let body = Body::Pause { scope: None, pause: Pause::new(Duration::from_secs(3_600)) };
            self.store.apply(&Message::new(UP, MessageId::new(u64::MAX, "!", 1), body)).await?;
        }
        Ok(())
    }

    /// Makes the logs as full as they were, with one entry at least, so that none is new.
    fn restore(&self, server: &mut Server) -> Result<(), Failure> {
        let last = (QUOTA - self.path.free).saturating_sub(1).to_string();
        for log in &self.logs {
            let scope = log.scope.map(|scope| format!("/{scope}")).unwrap_or_default();
            server.command(&["LTRIM", &format!("outgate:v1:{{{UP}}}{scope}:log:calls"), "0", &last])?;
        }
        Ok(())
    }

    /// Sends the next message, and says how many callers were granted a slot.
    async fn ask(&mut self, sender: u64, callers: u32) -> Result<u32, Failure> {
        self.number += 1;
        let mut ask = Ask::new(self.logs.clone(), vec![Run::new(callers, vec![1; self.logs.len()])]);
        ask.counted = std::mem::take(&mut self.counted);
        let id = MessageId::new(sender, "calls", self.number).after(self.previous);
        let mut message = Message::new(UP, id, ask);
        message.known = self.known;
        let grant = self.store.apply(&message).await?.grant().ok_or("no grant")?;
        self.heard(&grant);
        Ok(grant.answered(callers))
    }

    fn heard(&mut self, grant: &Grant) {
        self.known = Some(grant.now);
        self.counted.clone_from(&grant.counted);
        if grant.remembered {
            self.previous = self.number;
        }
    }
}
