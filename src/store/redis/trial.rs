//! Tries what the scripts need, before anybody relies on it: every command that they call, on an upstream that nobody can name.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};

#[cfg(feature = "redis-cluster")]
use super::cluster::redirect::Redirect;
use super::fault::{Fault, Said};
use super::format;
use super::link::{Link, is_unknown_script, unavailable};
use super::script;
use super::server::Server;
use super::unreadable::{inspect, keys};
use super::wire::{self, Wire};
use crate::error::{StoreError, StoreErrorKind};
use crate::ledger::Stamp;
use crate::ledger::Term;
use crate::ledger::{Ask, Body, Log, Message, MessageId, Pause, Presence, Renewal, Report, Run, ScopeId, Slots};

/// Fills a log so far that it is trimmed for whoever counts a few entries: more than the slack of a log.
const MANY: u32 = 80;
/// Everything that is left behind expires a little later.
const SECOND: i64 = 1_000_000;
const MILLISECOND: i64 = 1_000;
/// The scope of one of the logs.
const SCOPE: ScopeId = ScopeId::from_bits(1);
/// Slots of a Cluster that are looked at.
const HASH_TAGS: usize = 12;
/// Names that are tried until one lies on a node: it has one slot of 16,384 at least.
const MOST_NAMES: u64 = 200_000;
/// How often a node is tried from which slots go away meanwhile.
#[cfg(feature = "redis-cluster")]
const MOST_TRIES: usize = 5;

/// Fails with what the server refuses.
pub(super) async fn run(link: &Link, prefix: &str) -> Result<(), StoreError> {
    let (mut connection, _) = link.connection().await?;
    let tried = run_any(&mut connection, &|| Trial::new(prefix, &|_| true, true)).await;
    let tried = if tried.is_ok() { claim(&mut connection, prefix).await } else { tried };
    tried.map_err(Refusal::into_error)
}

/// Fails with what a node of a Cluster refuses; `has` says which upstreams lie there.
#[cfg(feature = "redis-cluster")]
pub(super) async fn on_node(link: &Link, prefix: &str, has: &impl Fn(&str) -> bool) -> Result<(), StoreError> {
    let (mut connection, _) = link.connection().await?;
    let mut outcome = Ok(());
    for _ in 0..MOST_TRIES {
        outcome = run_any(&mut connection, &|| Trial::new(prefix, has, false)).await;
        if outcome.is_ok() && has(format::NAME) {
            outcome = claim(&mut connection, prefix).await;
        }
        // Of all slots it has lost this one just now, or is about to: another will do.
        if !matches!(&outcome, Err(Refusal::Said(error)) if Redirect::of(error).is_some()) {
            break;
        }
    }
    outcome.map_err(Refusal::into_error)
}

/// Fails where another release keeps another format under this prefix.
async fn claim(connection: &mut MultiplexedConnection, prefix: &str) -> Result<(), Refusal> {
    let kept = format::claim(prefix).query_async(connection).await?;
    format::judge(prefix, &kept).map_err(Refusal::Senseless)
}

/// By the hash of the script that was loaded, or by its body.
async fn run_any<'a>(connection: &mut MultiplexedConnection, new: &impl Fn() -> Trial<'a>) -> Result<(), Refusal> {
    match new().run(connection).await {
        // It may not load scripts, or was made to forget them just now.
        Err(Refusal::Said(error)) if is_unknown_script(&error) => {
            Trial { by_body: true, ..new() }.run(connection).await
        }
        outcome => outcome,
    }
}

/// Fails where this is one of several masters of a Cluster, if the server says so.
pub(super) async fn has_all(connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
    let said = redis::cmd("CLUSTER").arg("INFO").query_async(connection).await;
    masters(Some(said)).map_or(Ok(()), |masters| Err(Refusal::OneOf(masters).into_error()))
}

/// Why a server cannot be used.
enum Refusal {
    /// It is one of so many masters.
    OneOf(u32),
    /// It does not know a command of Redis 7.0.
    TooOld(RedisError),
    Said(RedisError),
    /// Its answer makes no sense, or is another release's.
    Senseless(StoreError),
}

impl From<RedisError> for Refusal {
    fn from(error: RedisError) -> Self {
        Self::Said(error)
    }
}

impl Refusal {
    fn into_error(self) -> StoreError {
        let refused = |words: &str| StoreError::new(StoreErrorKind::Refused, words);
        match self {
            Self::OneOf(masters) => refused(&format!(
                "this is one of {masters} masters of a Redis Cluster, which `RedisStore::cluster` reaches (feature `redis-cluster`), and \
                 the command by `--cluster`"
            )),
            Self::Senseless(error) => error,
            Self::TooOld(error) => {
                refused("the server is too old, Outgate needs Redis 7.0 or Valkey 7.2").caused_by(Said(error))
            }
            Self::Said(error) => match Fault::of(&error) {
                Fault::Lost => {
                    StoreError::new(StoreErrorKind::Unreachable, "the store did not answer").caused_by(Said(error))
                }
                Fault::Passing => unavailable(error),
                Fault::Lasting => refused("the store refuses what the scripts need").caused_by(Said(error)),
            },
        }
    }
}

struct Trial<'a> {
    wire: Wire<'a>,
    upstream: Arc<str>,
    /// Where the server does not know the script that was loaded.
    by_body: bool,
    /// Where all keys are to lie on this server.
    is_alone: bool,
}

impl<'a> Trial<'a> {
    /// On an upstream that lies on this server, as `has` says.
    fn new(prefix: &'a str, has: &impl Fn(&str) -> bool, is_alone: bool) -> Self {
        // No upstream has a tilde in its name. Processes that start together must not meet.
        let random = getrandom::u64().unwrap_or_else(|_| fastrand::u64(..));
        let mut names = (0..MOST_NAMES).map(|n| format!("~try-{:016x}", random.wrapping_add(n)));
        let upstream = names.find(|name| has(name)).unwrap_or_else(|| "~try".to_owned()).into();
        Self { wire: Wire::new(prefix, None), upstream, by_body: false, is_alone }
    }

    async fn run(&self, connection: &mut MultiplexedConnection) -> Result<(), Refusal> {
        let first = self.ask(1, 1, Self::logs(MANY, SECOND), vec![Run::new(MANY - 2, [1, 1])]);
        let answers = self.first_calls(&first).query_async::<Vec<Result<Value, RedisError>>>(connection).await?;
        let mut answers = answers.into_iter();
        let masters = masters(answers.next());
        if let Some(masters) = masters.filter(|_| self.is_alone) {
            return Err(Refusal::OneOf(masters));
        }
        match answers.next() {
            Some(Err(error)) if error.code() == Some("ERR") => return Err(Refusal::TooOld(error)),
            Some(Err(error)) => return Err(Refusal::Said(error)),
            _ => {}
        }
        let answers = answers.collect::<Result<Vec<_>, _>>()?;
        let answer = answers.get(self.hash_tags() + self.at_a_glance().len()).unwrap_or(&Value::Nil);
        let granted = wire::reply(&first, answer).map_err(Refusal::Senseless)?;
        let granted = granted.grant().map_or(Stamp::NEVER, |grant| grant.next);
        let answers = self.last_calls(granted).query_async::<Vec<Result<Value, RedisError>>>(connection).await?;
        // A server that serves as one node does not know ASKING, and sends nobody where it is needed.
        let asking = answers.len().checked_sub(2).filter(|_| !self.is_alone);
        let needed = |(at, error): &(usize, RedisError)| Some(*at) != asking || error.code() == Some("NOPERM");
        let errors = answers.into_iter().enumerate().filter_map(|(at, answer)| Some((at, answer.err()?)));
        errors.into_iter().find(needed).map_or(Ok(()), |(_, error)| Err(Refusal::Said(error)))
    }

    /// What can be told without the answer to any of it.
    fn first_calls(&self, first: &Message) -> Pipeline {
        let mut calls = redis::pipe();
        calls.cmd("CLUSTER").arg("INFO");
        // The youngest of all commands that are needed.
        calls.cmd("PEXPIRETIME").arg(self.keys().first());
        // A node of a Cluster that will not say so has not the slots of all of these.
        for tag in 0..self.hash_tags() {
            calls.cmd("EXISTS").arg(self.wire.key_of(&format!("~try-{tag}")));
        }
        for ask in self.at_a_glance() {
            calls.add_command(self.call(&ask));
        }
        calls.add_command(self.call(first));
        // Of other terms, whose callers start one after another, and which trims the logs; of another process, which waits and
        // insists; and of the same, which gives up.
        calls.add_command(self.call(&self.ask(1, 2, Self::logs(3, MILLISECOND), vec![Run::new(4, [1, 1])])));
        let mut insisting = self.ask(2, 1, Self::logs(MANY, SECOND), vec![Run::new(2, [1, 1])]);
        if let Body::Ask(ask) = &mut insisting.body {
            ask.insist = true;
        }
        calls.add_command(self.call(&insisting));
        calls.add_command(self.call(&self.ask(2, 2, Self::logs(MANY, SECOND), Vec::new())));
        let usage = Body::usage(Self::logs(MANY, SECOND));
        calls.add_command(self.call(&self.message(MessageId::nobodys(), usage)));
        calls.ignore_errors();
        calls
    }

    /// What takes a slot back, tells of a refusal, and clears up.
    fn last_calls(&self, granted: Stamp) -> Pipeline {
        let back = vec![Slots::new(1, granted, [1, 1])];
        let hand_back = Ask::hand_back(Self::logs(MANY, SECOND), back);
        let log = Self::logs(MANY, SECOND)[1].clone();
        let report = Body::Report { log, report: Report::default() };
        let mut calls = redis::pipe();
        calls.add_command(self.call(&self.message(MessageId::new(1, "", 3), hand_back)));
        calls.add_command(self.call(&self.message(MessageId::new(1, "!", 1), report)));
        calls.add_command(self.call(&self.message(MessageId::new(1, "!", 2), Self::pause())));
        for (number, lasting) in [(1, Duration::from_secs(1)), (2, Duration::ZERO)] {
            calls.add_command(self.call(&self.renewal(number, lasting)));
        }
        let processes = Body::Processes { upstream: Arc::clone(&self.upstream) };
        calls.add_command(self.call(&self.message(MessageId::nobodys(), processes)));
        calls.add_command(script::inspect().by_body(&|cmd| inspect(cmd, &self.keys())));
        // Scripts read so where callers start one after another, which depends on how quick the server is, and write so after a loss.
        for log in self.keys().iter().filter(|key| key.contains(":log:")) {
            calls.cmd("LRANGE").arg(log).arg(-1).arg(-1);
            calls.cmd("LPUSH").arg(log).arg("L0");
        }
        if !self.is_alone {
            // A node of a Cluster is asked so for a slot on its way there; what follows is of one that it has.
            calls.cmd("ASKING");
        }
        calls.cmd("DEL").arg(self.keys());
        calls.ignore_errors();
        calls
    }

    /// Two callers of one process who are decided at a glance: the answer to the second takes the place of the first's, and is kept no
    /// longer.
    fn at_a_glance(&self) -> [Message; 2] {
        [(1, 10 * SECOND), (2, SECOND)]
            .map(|(number, span)| self.ask(3, number, Self::logs(MANY, span), vec![Run::new(1, [1, 1])]))
    }

    const fn hash_tags(&self) -> usize {
        if self.is_alone { HASH_TAGS } else { 0 }
    }

    fn ask(&self, sender: u64, number: u64, logs: [Log; 2], runs: Vec<Run>) -> Message {
        self.message(MessageId::new(sender, "", number), Ask::new(logs, runs))
    }

    fn message(&self, id: MessageId, body: impl Into<Body>) -> Message {
        Message::new(Arc::clone(&self.upstream), id, body)
    }

    fn call(&self, message: &Message) -> Cmd {
        let (script, encode) = (wire::script(message), |cmd: &mut Cmd| self.wire.write(cmd, message));
        // That of asks was loaded, and there are many.
        let by_hash = matches!(message.body, Body::Ask(_)) && !self.by_body;
        if by_hash { script.by_hash(&encode) } else { script.by_body(&encode) }
    }

    /// A log of the whole upstream, and one of a scope.
    fn logs(quota: u32, span: i64) -> [Log; 2] {
        let log = Log::new("calls", [Term::new(quota, span)]);
        [log.clone(), log.of(Some(SCOPE))]
    }

    fn pause() -> Body {
        Body::Pause { scope: Some(SCOPE), pause: Pause::new(Duration::from_millis(1)) }
    }

    fn renewal(&self, number: u64, lasting: Duration) -> Message {
        let renewal = Renewal::new(Arc::clone(&self.upstream), Presence::default(), lasting);
        self.message(MessageId::new(1, "+", number), Body::Renew(renewal))
    }

    /// Every key that the calls write.
    fn keys(&self) -> Vec<String> {
        let of = |sender| self.ask(sender, 1, Self::logs(MANY, SECOND), Vec::new());
        let paused = self.message(MessageId::new(1, "!", 1), Self::pause());
        let messages = [of(1), of(2), of(3), paused, self.renewal(1, Duration::ZERO)];
        let mut all: Vec<_> = messages.iter().flat_map(|message| keys(&|cmd| self.wire.write(cmd, message))).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// How many masters a Cluster has, where there are several.
fn masters(said: Option<Result<Value, RedisError>>) -> Option<u32> {
    text(said).and_then(|info| number(&info, "cluster_size:")).filter(|&masters| masters > 1)
}

fn text(answer: Option<Result<Value, RedisError>>) -> Option<String> {
    redis::from_redis_value(answer?.ok()?).ok()
}

/// The number that a report says behind `name`.
fn number(report: &str, name: &str) -> Option<u32> {
    Server(report).said(name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_can_name_the_upstream_that_is_tried() {
        let trial = Trial::new("mine", &|_| true, true);
        assert!(trial.keys().iter().all(|key| key.starts_with("mine:v1:{~try-")), "{:?}", trial.keys());
        assert_ne!(trial.keys(), Trial::new("mine", &|_| true, true).keys());
    }
}
