//! The fleet: many throttles, each of which takes itself for a process of its own, before one store.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outgate::{Scope, Throttle, Upstream};
use tokio::runtime::Builder;

use crate::agenda::Agenda;
use crate::args::Args;
use crate::call::{Call, End};
use crate::demand::Demand;
use crate::ledger::Verdict;
use crate::modelled::Modelled;
use crate::tally::Tally;

/// What a call that was wanted at the end may take beyond its longest wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// What became of every call.
pub(crate) struct Outcome {
    pub(crate) calls: Vec<Call>,
    /// Between warm-up and end.
    pub(crate) tally: Tally,
    pub(crate) verdict: Verdict,
    /// No call was wanted after this.
    pub(crate) end: Duration,
}

/// Shards for each node, where there are several.
const SHARDS_EACH: u32 = 8;

type Calls = Arc<Mutex<Vec<Call>>>;

/// Runs a fleet for some seconds of virtual time.
pub(crate) fn run(args: &Args) -> Result<Outcome, Box<dyn Error>> {
    // The library's own choices: names of processes, and how far their asks are spread.
    fastrand::seed(args.seed);
    // Whoever yields goes on when nobody else can run, and not after a number of tasks.
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).event_interval(u32::MAX).build()?;
    runtime.block_on(simulate(args))
}

async fn simulate(args: &Args) -> Result<Outcome, Box<dyn Error>> {
    let agenda = Agenda::new();
    let store = Modelled::new(agenda.clone(), args.network(), args.service, usize::try_from(args.nodes())?);
    let upstream =
        Upstream::new("api").scope_by(Scope::header("x-merchant")).limit(args.limit()).max_wait(args.max_wait());
    let upstream = if args.nodes() > 1 { upstream.shards(SHARDS_EACH * args.nodes()) } else { upstream };
    let throttle = |_| Throttle::builder().store(store.clone()).upstream(upstream.clone()).build();
    let throttles = (0..args.processes).map(throttle).collect::<Result<Vec<_>, _>>()?;
    let end = args.warm_up + Duration::from_secs(args.seconds.into());
    let calls = Calls::default();
    tokio::spawn(call(throttles, Demand::new(args), agenda.clone(), Arc::clone(&calls), end));
    agenda.run_until(args.warm_up).await;
    store.take_tally();
    agenda.run_until(end).await;
    let tally = store.take_tally();
    agenda.run_until(end + args.max_wait() + PATIENCE).await;
    let calls = std::mem::take(&mut *calls.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Outcome { calls, tally, verdict: store.judge(), end })
}

/// Has every call made as it comes.
async fn call(throttles: Vec<Throttle>, mut demand: Demand, agenda: Agenda, calls: Calls, end: Duration) {
    loop {
        agenda.sleep(demand.pause()).await;
        let wanted = agenda.now();
        if wanted >= end {
            return;
        }
        let (process, scope) = demand.next();
        let number = {
            let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
            calls.push(Call { process, scope, wanted, end: End::Waiting });
            calls.len() - 1
        };
        let (throttle, agenda, calls) = (throttles[process].clone(), agenda.clone(), Arc::clone(&calls));
        tokio::spawn(async move {
            let told = throttle.acquire("api").scope(scope.to_string()).await;
            let end = match told {
                Ok(_permit) => End::Started(agenda.now()),
                Err(outgate::Error::Throttled { .. }) => End::Refused,
                Err(_) => End::Failed,
            };
            calls.lock().unwrap_or_else(PoisonError::into_inner)[number].end = end;
        });
    }
}
