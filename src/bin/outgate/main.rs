//! The command `outgate`: what the processes of a cluster use of their upstreams' quotas, who waits, and pauses by hand.

mod change;
mod meant;
mod seen;
mod show;
mod sure;
mod watch;

use std::error::Error;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use outgate::RedisStore;

use self::seen::{Seen, Unread};

/// Looks at upstreams that Outgate throttles, and pauses them by hand.
#[derive(Parser)]
#[command(name = "outgate", version)]
struct Args {
    /// Where the logs are kept: a URL such as `redis://10.0.0.1` [default: `redis://127.0.0.1`]
    #[arg(long, global = true, env = "OUTGATE_REDIS", hide_env_values = true, value_name = "URL")]
    redis: Option<String>,
    /// It is a node of a Redis Cluster
    #[arg(long, global = true)]
    cluster: bool,
    /// It is a Sentinel: follow the primary of this name, such as `mymaster`
    #[arg(long, global = true, value_name = "NAME", conflicts_with = "cluster")]
    sentinel: Option<String>,
    /// How the servers are that Sentinels name, beside --sentinel, as `redis://user:word@any/2`
    #[arg(long, global = true, env = "OUTGATE_SERVERS", hide_env_values = true, value_name = "URL")]
    servers: Option<String>,
    /// What the keys begin with
    #[arg(long, global = true, default_value = "outgate")]
    prefix: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Shows what is used of all limits, pauses, and who waits
    Status {
        /// Show only this upstream
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// How many scopes of each kind are shown
        #[arg(long, default_value_t = 5)]
        scopes: usize,
    },
    /// Shows the same as a live screen
    Watch {
        /// Show only this upstream
        name: Option<String>,
        /// How many scopes of each kind are shown
        #[arg(long, default_value_t = 5)]
        scopes: usize,
    },
    /// Shows the limits of all upstreams, as their processes describe them
    Limits,
    /// Lets nobody send for a while
    Pause {
        #[command(flatten)]
        whom: Whom,
        /// For how long: 30s, 5m, 1h30m
        #[arg(value_parser = span)]
        lasting: Duration,
    },
    /// Lowers all quotas for a while
    Slow {
        #[command(flatten)]
        whom: Whom,
        /// How much of the quotas is left: 50%
        #[arg(value_parser = part)]
        left: u32,
        /// For how long: 30s, 5m, 1h30m
        #[arg(value_parser = span)]
        lasting: Duration,
    },
    /// Ends pauses, in all processes within 2 s, and lowered quotas, within 30 s
    Release {
        #[command(flatten)]
        whom: Whom,
    },
    /// Forgets what counts of all callers together, or of one scope, so that as much as is allowed starts at once: where the upstream's own count
    /// began anew. Asks twice
    Reset {
        #[command(flatten)]
        whom: Whom,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// Of whom a command speaks.
#[derive(clap::Args)]
struct Whom {
    /// The upstream
    name: String,
    /// One scope alone: the name that the program gives it, or the first four digits of its hash, or more
    #[arg(long, conflicts_with = "value")]
    scope: Option<String>,
    /// One scope alone, by its value: a merchant; of a token say --value -, and it is read from the input
    #[arg(long)]
    value: Option<String>,
    /// Of which kind the value is, where there are several: `bearer_token`, the name of a header, `account/bearer_token` of what is
    /// shared as `account`
    #[arg(long, requires = "value")]
    kind: Option<String>,
}

fn span(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_secs(31 * 86_400);
    let span = humantime::parse_duration(text).map_err(|error| format!("no length of time such as 5m: {error}"))?;
    if span.is_zero() || span > LONGEST {
        return Err("not between a moment and 31 days".to_owned());
    }
    Ok(span)
}

/// Millionths, of a percentage.
fn part(text: &str) -> Result<u32, String> {
    let wrong = || "no part between 0.1% and 100%".to_owned();
    // 0.5 may mean a half, or half a percent.
    let missing = || format!("without a %: write {text}%, where that is meant; a half is 50%");
    let is_number = text.trim().parse::<f64>().is_ok();
    let number = text.strip_suffix('%').ok_or_else(|| if is_number { missing() } else { wrong() })?;
    let percent: f64 = number.trim().parse().map_err(|_| wrong())?;
    if !(0.1..=100.0).contains(&percent) {
        return Err(wrong());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between a thousand and a million")]
    Ok((percent * 10_000.0).round() as u32)
}

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(run(args)).and_then(|said| print(&said)),
        Err(error) => Err(error.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("outgate: {}", show::chain(&*error));
            ExitCode::FAILURE
        }
    }
}

fn print(said: &str) -> Result<(), Box<dyn Error>> {
    match std::io::stdout().write_all(said.as_bytes()) {
        // Whoever reads it has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done?),
    }
}

/// Does what is asked for, and says what there is to be said.
async fn run(args: Args) -> Result<String, Box<dyn Error>> {
    let url = args.redis.as_deref().unwrap_or("redis://127.0.0.1");
    // Clap sees each side of the subcommand alone.
    if args.cluster && args.sentinel.is_some() {
        return Err("--cluster and --sentinel are two ways to reach a store: say one of them".into());
    }
    let store = match (&args.sentinel, &args.servers) {
        (Some(name), Some(servers)) => RedisStore::sentinel(name, [url]).servers(servers),
        (Some(name), None) => RedisStore::sentinel(name, [url]),
        // The one may stand before the subcommand and the other after it: clap's `requires` would not find it there.
        (None, Some(_)) => {
            return Err("--servers (OUTGATE_SERVERS) is for Sentinels: name their primary by --sentinel".into());
        }
        (None, None) if args.cluster => RedisStore::cluster([url]),
        (None, None) => RedisStore::builder(url),
    };
    let store = store.prefix(&args.prefix).open()?;
    match args.command {
        Command::Status { name, json, scopes } => {
            let (_, all) = seen::at_first(&store, name.as_deref(), scopes).await?;
            let text = if json { show::json(&all) } else { show::status(&all, &args.prefix) };
            shown(text, &all)
        }
        Command::Watch { name, scopes } => watch::watch(&store, name.as_deref(), scopes).await.map(|()| String::new()),
        Command::Limits => {
            let (_, all) = seen::at_first(&store, None, 0).await?;
            shown(show::limits(&all, &args.prefix), &all)
        }
        Command::Pause { whom, lasting } => change::pause(&store, &whom, lasting).await,
        Command::Slow { whom, left, lasting } => change::slow(&store, &whom, left, lasting).await,
        Command::Release { whom } => change::release(&store, &whom).await,
        Command::Reset { whom, yes } => change::reset(&store, &whom, yes).await,
    }
}

/// What is seen is said also where some upstreams cannot be read.
fn shown(text: String, all: &[Result<Seen, Unread>]) -> Result<String, Box<dyn Error>> {
    let Some(unread) = show::unread(all) else { return Ok(text) };
    print(&text)?;
    Err(unread.into())
}
