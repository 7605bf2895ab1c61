//! What an ask costs the server as limits, logs, units and callers in it become more.

use std::sync::Arc;

use outgate::ledger::{Ask, Log, Message, MessageId, Run, Term};
use outgate::{RedisStore, Store as _};

use crate::page::Page;
use crate::race::Threads;
use crate::server::{Failure, Server};
use crate::spread::Spread;

const ASKS: u64 = 50;

/// An ask of some size.
#[derive(Clone, Copy)]
struct Size {
    what: &'static str,
    limits: u32,
    logs: usize,
    units: u32,
    callers: u32,
}

const SMALLEST: Size = Size { what: "", limits: 1, logs: 1, units: 1, callers: 1 };

pub(crate) fn run(page: &mut Page) -> Result<(), Failure> {
    page.section("Growth: limits, logs, units and callers in one ask");
    page.text(
        "One ask after another goes to the store itself, with room for all. µs that the server executes each, and their ratio \
         to one caller who asks for one unit of one log under one limit.",
    );
    let (mut server, runtime) = (Server::start()?, Threads::One.runtime()?);
    let store = runtime.block_on(RedisStore::connect(&server.url()))?;
    let sizes: Vec<_> = [1, 2, 3, 4]
        .map(|limits| Size { what: "limits of a log", limits, ..SMALLEST })
        .into_iter()
        .chain([2, 3, 4].map(|logs| Size { what: "logs of a call", logs, ..SMALLEST }))
        .chain([10, 100, 1_000].map(|units| Size { what: "units that a call costs", units, ..SMALLEST }))
        .chain([10, 100, 1_000].map(|callers| Size { what: "callers in an ask", callers, ..SMALLEST }))
        .collect();
    let mut rounds = vec![Vec::new(); sizes.len()];
    let mut number = 0;
    for _ in 0..page.rounds(21) {
        for (size, us) in sizes.iter().zip(&mut rounds) {
            server.clear()?;
            let before = server.counters()?;
            runtime.block_on(asks(&store, *size, &mut number))?;
            let work = server.work_since(&before, &["evalsha"])?;
            us.push(work.us / work.calls);
        }
    }
    let base = Spread::of(rounds[0].clone()).median;
    let row = |(size, us): (&Size, Vec<f64>)| {
        let us = Spread::of(us);
        let many = size.limits.max(size.units).max(size.callers).max(u32::try_from(size.logs).unwrap_or(u32::MAX));
        vec![size.what.to_owned(), many.to_string(), us.cell(2), format!("{:.2}", us.median / base)]
    };
    let rows: Vec<_> = sizes.iter().zip(rounds).map(row).collect();
    page.table(&["of", "how many", "µs", "÷"], &rows);
    Ok(())
}

async fn asks(store: &RedisStore, size: Size, number: &mut u64) -> Result<(), Failure> {
    let hours = |hours: u32| Term::new(1_000_000, i64::from(hours) * 3_601_000_000);
    let terms: Arc<[Term]> = (1..=size.limits).map(hours).collect();
    let logs: Arc<[Log]> = (0..size.logs).map(|log| Log::new(format!("unit{log}"), Arc::clone(&terms))).collect();
    let charges: Arc<[u32]> = vec![size.units; size.logs].into();
    let mut known = None;
    for _ in 0..ASKS {
        *number += 1;
        let runs = vec![Run::new(size.callers, Arc::clone(&charges))];
        let ask = Ask::new(Arc::clone(&logs), runs);
        let mut message = Message::new("up", MessageId::new(1, "", *number).after(*number - 1), ask);
        message.known = known;
        let grant = store.apply(&message).await?.grant().ok_or("no grant")?;
        known = Some(grant.now);
        if !grant.all_now {
            return Err(format!("no room for {} callers of {} units", size.callers, size.units).into());
        }
    }
    Ok(())
}
