//! What the scripts promise, to the server and to each other.

mod contract;
mod expiry;
mod garbage;
mod keyspace;
mod lane;
mod replies;
mod size;

use std::fmt::Debug;

use outgate::testing::{RedisServer, Reply, RespClient};

const PRELUDE: &str = include_str!("../../lua/prelude.lua");
const LANE: &str = include_str!("../../lua/lane.lua");
const TELL: &str = include_str!("../../lua/tell.lua");
/// Every script by its verb, without the prelude.
const SCRIPTS: [(&str, &str); 6] = [
    ("book", include_str!("../../lua/book.lua")),
    ("hand_back", include_str!("../../lua/hand_back.lua")),
    ("hold", include_str!("../../lua/hold.lua")),
    ("learn", include_str!("../../lua/learn.lua")),
    ("usage", include_str!("../../lua/usage.lua")),
    ("inspect", include_str!("../../lua/inspect.lua")),
];
/// A supplied time with all the digits of a real one.
const NOW: i64 = 1_795_170_949_790_213;
const SECOND: i64 = 1_000_000;

/// A log: its name, and quota and span of each term.
type Log<'a> = (&'a str, &'a [(u32, i64)]);
/// Callers, the longest wait, and the cost in each log.
type Run<'a> = (u32, Option<i64>, &'a [u32]);

/// A script with what it shares with others in front, as it is run.
fn whole(verb: &str, body: &str) -> String {
    match verb {
        "book" => format!("{LANE}{PRELUDE}{body}"),
        "hold" | "learn" => format!("{PRELUDE}{TELL}{body}"),
        "inspect" => body.to_owned(),
        _ => format!("{PRELUDE}{body}"),
    }
}

/// A Redis, a home in it, and a clock: the server's own, or a supplied one.
struct Desk<'a> {
    client: RespClient,
    home: &'a str,
    now: Option<i64>,
    sender: u64,
    number: u64,
    previous: u64,
    /// The number of the next hold or lesson.
    told: u64,
    horizon: i64,
    insist: bool,
    ahead: i64,
    /// For how long the last ask was told that it is held, and the cause.
    held: Vec<i64>,
    /// Other processes that waited at the last ask.
    contenders: i64,
}

impl<'a> Desk<'a> {
    fn new(server: &RedisServer, home: &'a str, now: Option<i64>) -> Self {
        Self {
            client: must(server.client()),
            home,
            now,
            sender: 1,
            number: 1,
            previous: 0,
            told: 1,
            horizon: 250_000,
            insist: false,
            ahead: 0,
            held: Vec::new(),
            contenders: 0,
        }
    }

    fn key(&self, name: &str) -> String {
        format!("test:v1:{{{}}}:{name}", self.home)
    }

    fn run(&mut self, verb: &str, keys: &[String], args: &[String]) -> Reply {
        let body = SCRIPTS.iter().find(|(name, _)| *name == verb).map(|(_, body)| *body).unwrap_or_default();
        let script = whole(verb, body);
        let (count, now) = (keys.len().to_string(), self.now.map(|now| now.to_string()).unwrap_or_default());
        let mut words = vec!["EVAL", &script, &count];
        words.extend(keys.iter().map(String::as_str));
        words.push(&now);
        words.extend(args.iter().map(String::as_str));
        must(self.client.command(&words))
    }

    fn try_book(&mut self, logs: &[Log<'_>], runs: &[Run<'_>]) -> Reply {
        let mut keys = [&*format!("seen:{:x}", self.sender), "told", "told_all", "claim", "asking", "reach", "clock"]
            .map(|name| self.key(name))
            .to_vec();
        let mut args = [self.number, self.previous, self.sender].map(|number| number.to_string()).to_vec();
        args.extend([self.horizon.to_string(), u8::from(self.insist).to_string()]);
        args.extend([self.ahead.to_string(), String::new(), String::new(), "0".to_owned()]);
        self.logs(logs, &mut keys, &mut args);
        for (callers, max_wait, costs) in runs {
            args.extend([callers.to_string(), max_wait.map(|wait| wait.to_string()).unwrap_or_default()]);
            args.extend(costs.iter().map(u32::to_string));
        }
        self.run("book", &keys, &args)
    }

    /// The reply to an ask: flat integers, `{now, number, next, held, cause, contenders, (verdict, start, callers)...}`, of which
    /// the hold is kept apart. The next message has a new number.
    fn book(&mut self, logs: &[Log<'_>], runs: &[Run<'_>]) -> Vec<i64> {
        let mut reply = integers(&self.try_book(logs, runs));
        assert!(reply.len() >= 6 && reply.len().is_multiple_of(3), "{reply:?}");
        self.held = reply.drain(3..5).collect();
        assert_eq!(u64::try_from(reply.remove(1)), Ok(self.number));
        self.contenders = reply.remove(2);
        assert!(reply[2..].chunks(3).all(|answer| (0..=2).contains(&answer[0]) && answer[2] > 0), "{reply:?}");
        self.number += 1;
        reply
    }

    fn try_hand_back(&mut self, logs: &[&str], slots: &[(i64, &[u32])]) -> Reply {
        let mut keys = vec![self.key(&format!("seen:{:x}", self.sender)), self.key("clock")];
        keys.extend(logs.iter().map(|name| self.key(&format!("log:{name}"))));
        let mut args = vec![self.number.to_string(), self.previous.to_string(), (60 * SECOND).to_string()];
        for (start, units) in slots {
            args.push(start.to_string());
            args.extend(units.iter().map(u32::to_string));
        }
        self.run("hand_back", &keys, &args)
    }

    fn hand_back(&mut self, logs: &[&str], slots: &[(i64, &[u32])]) -> Vec<i64> {
        let reply = integers(&self.try_hand_back(logs, slots));
        self.number += 1;
        reply
    }

    fn try_hold(&mut self, wait: i64) -> Reply {
        let keys = [self.key(&format!("seen:{:x}:told", self.sender)), self.key("told"), self.key("clock")];
        let [number, wait] = [self.told.to_string(), wait.to_string()];
        self.run("hold", &keys, &[&number, "0", "0", "0", "", &wait].map(str::to_owned))
    }

    fn hold(&mut self, wait: i64) -> Vec<i64> {
        let reply = integers(&self.try_hold(wait));
        self.told += 1;
        reply
    }

    fn try_learn(&mut self, log: &str, refused: bool, reports: &[String]) -> Reply {
        let keys = [
            self.key(&format!("seen:{:x}:told", self.sender)),
            self.key("told"),
            self.key("told_all"),
            self.key(&format!("log:{log}")),
            self.key("clock"),
        ];
        let [number, refused] = [self.told.to_string(), u8::from(refused).to_string()];
        let args = [&number, "", "0", &refused, &(60 * SECOND).to_string()].map(str::to_owned);
        self.run("learn", &keys, &[&args, reports].concat())
    }

    fn learn(&mut self, log: &str, refused: bool, reports: &[String]) -> Vec<i64> {
        let reply = integers(&self.try_learn(log, refused, reports));
        self.told += 1;
        reply
    }

    fn usage(&mut self, logs: &[Log<'_>]) -> Vec<i64> {
        let (mut keys, mut args) = (["told", "told_all", "clock"].map(|name| self.key(name)).to_vec(), Vec::new());
        self.logs(logs, &mut keys, &mut args);
        integers(&self.run("usage", &keys, &args))
    }

    fn logs(&self, logs: &[Log<'_>], keys: &mut Vec<String>, args: &mut Vec<String>) {
        for (name, terms) in logs {
            keys.push(self.key(&format!("log:{name}")));
            args.push(terms.len().to_string());
            args.extend(terms.iter().flat_map(|(quota, span)| [quota.to_string(), span.to_string()]));
        }
    }

    /// One command about a key of the home.
    fn of(&mut self, verb: &str, name: &str, rest: &[&str]) -> Reply {
        let key = self.key(name);
        must(self.client.command(&[&[verb, key.as_str()], rest].concat()))
    }

    fn int(&mut self, verb: &str, name: &str) -> i64 {
        self.of(verb, name, &[]).int().unwrap_or(i64::MIN)
    }

    fn newest(&mut self, log: &str) -> i64 {
        self.of("LINDEX", log, &["-1"]).text().and_then(|text| text.parse().ok()).unwrap_or(i64::MIN)
    }
}

/// The integers of a flat reply of nothing else.
fn integers(reply: &Reply) -> Vec<i64> {
    let Reply::Array(parts) = reply else { panic!("{reply:?} is no list") };
    parts.iter().map(|part| part.int().unwrap_or_else(|| panic!("{reply:?} is not flat integers"))).collect()
}

fn texts(reply: &Reply) -> Vec<String> {
    let Reply::Array(parts) = reply else { panic!("{reply:?} is no list") };
    parts.iter().map(|part| part.text().unwrap_or("?").to_owned()).collect()
}

fn must<T, E: Debug>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{error:?}"))
}
