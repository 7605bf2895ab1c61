//! One run, from the first call to the last.

use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::fault::Fault;
use crate::report::Report;
use crate::scene::Scene;
use crate::worker::micros_now;

/// Calls that the upstream answers in any second.
pub(crate) const QUOTA: u32 = 200;
/// Long enough that it is not the machine's small stalls which decide.
pub(crate) const GUARD: Duration = Duration::from_millis(250);
/// From one fault to the next.
const EVERY: Duration = Duration::from_secs(3);

pub(crate) fn run(args: &Args) -> Result<Report, Box<dyn Error>> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    println!("seed {seed}");
    let (mut random, mut scene) = (fastrand::Rng::with_seed(seed), Scene::start(args.locally)?);
    let offset = micros_now() - scene.upstream.now();
    let (began, lasting) = (Instant::now(), Duration::from_secs(args.seconds.into()));
    let mut outages = Duration::ZERO;
    let faults = (0..).map(|number| EVERY / 2 + EVERY * number).take_while(|&at| at + EVERY / 2 <= lasting);
    for at in faults {
        sleep(at.saturating_sub(began.elapsed()));
        let fault = Fault::next(&mut random, scene.workers(), args.lose);
        println!("{:5.1} s  {fault:?}", began.elapsed().as_secs_f64());
        outages += scene.strike(fault)?;
    }
    sleep(lasting.saturating_sub(began.elapsed()));
    let calls = scene.upstream.arrivals();
    Ok(Report::new(seed, &calls, offset, began.elapsed(), outages))
}
