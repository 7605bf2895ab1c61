//! The whole: a model for each client, and the tasks that ask.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::args::Args;
use crate::client::Client;
use crate::limits::guard;
use crate::manner::Manner;
use crate::model::Model;
use crate::report::Report;
use crate::stall::Stalls;

/// The last calls of the time that counts are on their way when it ends.
const RESERVE: Duration = Duration::from_millis(200);

/// Has all tasks ask for some minutes, and says what came of it.
pub(crate) async fn run(args: &Args) -> Result<Report, Box<dyn Error>> {
    let minute = args.minute();
    let time = (minute + guard(minute)) * args.minutes;
    let models: Vec<Model> = Manner::ALL.iter().map(|_| Model::start(minute)).collect::<io::Result<_>>()?;
    let (stalls, end) = (Stalls::watch(), Instant::now() + time + RESERVE);
    let mut tasks = JoinSet::new();
    for (model, manner) in models.iter().zip(Manner::ALL) {
        let (client, questions) = (Client::new(model.host(), minute, manner)?, Arc::new(AtomicU64::new(0)));
        for _ in 0..args.tasks {
            tasks.spawn(ask(client.clone(), Arc::clone(&questions)));
        }
    }
    tokio::select! {
        () = sleep_until(end) => {}
        Some(outcome) = tasks.join_next() => outcome?.map_err(|error| error.to_string())?,
    }
    // Who waits, or listens, goes.
    tasks.shutdown().await;
    Ok(Report::new(&models, minute, time, stalls.longest()))
}

/// Asks one question after another.
async fn ask(client: Client, questions: Arc<AtomicU64>) -> Result<(), Box<dyn Error + Send + Sync>> {
    loop {
        client.ask(questions.fetch_add(1, Ordering::Relaxed)).await?;
    }
}
