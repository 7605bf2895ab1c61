//! Speaks to the scripts as their headers say, without the code that does so in the crate.

use std::collections::BTreeMap;

use outgate::testing::{RedisServer, Reply, RespClient};

use crate::{joined, must};

/// A log: `unit`, or `scope/unit`, and quota and span of each term.
pub(crate) type Log<'a> = (&'a str, &'a [(u32, i64)]);
/// Callers, the longest wait, and the units of each log.
pub(crate) type Run<'a> = (u32, Option<i64>, &'a [u32]);
/// A start, and the units of each log.
pub(crate) type Slot<'a> = (i64, &'a [u32]);

/// What an answer to an ask says beside its answers to the callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) remembered: bool,
    pub(crate) within: i64,
    /// When one may go that takes less than the first that waits, from now, and how large the largest of those is.
    pub(crate) smaller: Option<(i64, i64)>,
    /// The end of a pause, from now, and its cause.
    pub(crate) paused: (i64, i64, i64),
    pub(crate) others: i64,
    pub(crate) counted: Vec<i64>,
}

/// A Redis, an upstream in it, and a clock: the server's own, or a supplied one.
pub(crate) struct Desk<'a> {
    pub(crate) client: RespClient,
    pub(crate) upstream: &'a str,
    pub(crate) now: Option<i64>,
    pub(crate) sender: u64,
    pub(crate) number: u64,
    pub(crate) previous: u64,
    /// The number of the next pause or report.
    pub(crate) told: u64,
    pub(crate) known: i64,
    pub(crate) latest: i64,
    pub(crate) horizon: i64,
    pub(crate) ahead: i64,
    pub(crate) insist: bool,
    /// How far the callers are below normal priority: -1 to 1.
    pub(crate) below_normal: i64,
    pub(crate) weight: i64,
    /// Units of each log that calls used beyond their charges, which the next message tells.
    pub(crate) debts: Vec<u32>,
    /// The newest start that the sender remembers in each log.
    pub(crate) own: i64,
    /// For how long after a pause calls come slower.
    pub(crate) recovery: i64,
    /// What each sender was told last of where it is counted, by the key of each scope's state; and those of the last ask.
    pub(crate) counted: BTreeMap<(u64, String), i64>,
    states: Vec<String>,
    /// The first look is joined in, and what comes behind it.
    pub(crate) looks_first: bool,
    pub(crate) looks_on: bool,
    pub(crate) said: Said,
}

impl<'a> Desk<'a> {
    pub(crate) fn new(server: &RedisServer, upstream: &'a str, now: Option<i64>) -> Self {
        Self {
            client: must(server.client()),
            upstream,
            now,
            sender: 1,
            number: 1,
            previous: 0,
            told: 1,
            known: now.unwrap_or(0),
            latest: 0,
            horizon: 250_000,
            ahead: 0,
            insist: false,
            below_normal: 0,
            weight: 1,
            debts: Vec::new(),
            own: 0,
            recovery: 0,
            counted: BTreeMap::new(),
            states: Vec::new(),
            looks_first: true,
            looks_on: true,
            said: Said::default(),
        }
    }

    /// A key of the upstream, or of one of its scopes: `log:unit`, `scope/state`.
    pub(crate) fn key(&self, name: &str) -> String {
        let (scope, name) = name.split_once('/').map_or((String::new(), name), |(scope, name)| (id(scope), name));
        format!("test:v1:{{{}}}{scope}:{name}", self.upstream)
    }

    pub(crate) fn run(&mut self, script: &str, keys: &[String], integers: &[i64]) -> Reply {
        let body = joined(script, |file| match file {
            "head" => true,
            "first_look" | "first_answer" => self.looks_first,
            _ => self.looks_on,
        });
        let mut words = vec![b"EVAL".to_vec(), body.into_bytes(), keys.len().to_string().into_bytes()];
        words.extend(keys.iter().map(|key| key.as_bytes().to_vec()));
        #[expect(clippy::cast_precision_loss, reason = "no more than a double holds exactly")]
        words.push(integers.iter().flat_map(|&integer| (integer as f64).to_le_bytes()).collect());
        words.extend(self.now.map(|now| now.to_string().into_bytes()));
        must(self.client.command(&words))
    }

    pub(crate) fn try_ask(&mut self, logs: &[Log<'_>], back: &[Slot<'_>], runs: &[Run<'_>]) -> Reply {
        let numbers = [self.number, self.previous].map(|number| must(i64::try_from(number)));
        let mut integers = [&numbers[..], &[self.known, self.latest, self.horizon, self.ahead]].concat();
        let debts = std::mem::take(&mut self.debts);
        integers.push(i64::from(self.insist) + 4 * i64::from(!debts.is_empty()) + 16 * (self.weight - 1));
        let mut keys = vec![self.key(&format!("replay:{:x}:asks", self.sender)), self.key("state")];
        self.states = scopes(logs).iter().map(|scope| self.key(&format!("{scope}/state"))).collect();
        let of = |state: &String| self.counted.get(&(self.sender, state.clone())).copied().unwrap_or(0);
        let counted: Vec<i64> = self.states.iter().map(of).collect();
        self.logs(logs, &counted, &mut keys, &mut integers);
        integers.extend([0, 0]);
        integers.extend(logs.iter().map(|_| self.own));
        integers.extend(debts.into_iter().map(i64::from));
        integers.push(must(back.len().try_into()));
        for (start, units) in back {
            integers.extend([*start, 0]);
            integers.extend(units.iter().map(|&units| i64::from(units)));
        }
        for (callers, max_wait, units) in runs {
            integers.extend([i64::from(*callers) + (self.below_normal << 32), max_wait.unwrap_or(-1)]);
            integers.extend(units.iter().map(|&units| i64::from(units)));
        }
        self.run("book", &keys, &integers)
    }

    pub(crate) fn try_book(&mut self, logs: &[Log<'_>], runs: &[Run<'_>]) -> Reply {
        self.try_ask(logs, &[], runs)
    }

    /// The answer to an ask: the time, how long until the first caller that waits may start, and verdict, wait and callers of each
    /// answer; what else it says is kept. The next message has a new number.
    pub(crate) fn ask(&mut self, logs: &[Log<'_>], back: &[Slot<'_>], runs: &[Run<'_>]) -> Vec<i64> {
        let reply = self.try_ask(logs, back, runs);
        let callers = runs.iter().map(|run| i64::from(run.0)).sum();
        let answer = self.answer(&reply, scopes(logs).len(), callers);
        self.number += 1;
        answer
    }

    pub(crate) fn book(&mut self, logs: &[Log<'_>], runs: &[Run<'_>]) -> Vec<i64> {
        self.ask(logs, &[], runs)
    }

    /// The time when slots were handed back.
    pub(crate) fn hand_back(&mut self, logs: &[Log<'_>], slots: &[Slot<'_>]) -> i64 {
        let answer = self.ask(logs, slots, &[]);
        assert_eq!(answer[1..], [0], "nobody asks");
        answer[0]
    }

    /// Reads the answer to the last ask.
    pub(crate) fn answer(&mut self, reply: &Reply, scopes: usize, callers: i64) -> Vec<i64> {
        let number = must(i64::try_from(self.number));
        let all = |next, now| if callers > 0 { vec![now, 0, 1, next - now, callers] } else { vec![now, 0] };
        let (answer, said) = if let Reply::Int(short) = reply {
            assert_eq!(short % 4_096, number % 4_096, "it names its message");
            let now = self.known + short / 4_096;
            (all(now, now), Said { remembered: true, counted: vec![0; scopes], ..Said::default() })
        } else {
            let integers = integers(reply);
            let [of, now, flags, next] = integers[..4] else { unreachable!() };
            // That calls come slower takes three more, and that smaller ones may be sooner two.
            let (flags, slower, smaller) = (flags % 32, if flags / 32 % 2 == 1 { 3 } else { 0 }, flags >= 128);
            assert!(of == number && [0, 2, 3].contains(&flags), "{integers:?}");
            if flags & 1 == 1 {
                assert_eq!(integers.len(), 4, "{integers:?}");
                (all(next, now), Said { remembered: flags > 1, counted: vec![0; scopes], ..Said::default() })
            } else {
                let [within, stop, cause, status, others] = integers[4..9] else { unreachable!() };
                let (counted, answers) = integers[9..].split_at(scopes);
                let (smaller, answers) = answers[slower..].split_at(if smaller { 2 } else { 0 });
                let smaller = if let [start, largest] = *smaller { Some((start - now, largest)) } else { None };
                let paused = ((stop - now).max(0), cause, status);
                let counted = counted.to_vec();
                let said = Said { remembered: flags > 1, within, smaller, paused, others, counted };
                let each = answers.chunks(3).inspect(|answer| assert!((0..3).contains(&answer[0]) && answer[2] > 0));
                let each = each.flat_map(|answer| [answer[0], answer[1] - now, answer[2]]);
                ([now, (next - now).max(0)].into_iter().chain(each).collect(), said)
            }
        };
        let counted =
            self.states.iter().zip(&said.counted).map(|(state, &counted)| ((self.sender, state.clone()), counted));
        self.counted.extend(counted);
        self.said = said;
        answer
    }

    fn message(&self, scope: Option<&str>) -> (Vec<String>, Vec<i64>) {
        let mut keys = vec![self.key(&format!("replay:{:x}:!", self.sender)), self.key("state")];
        keys.extend(scope.map(|scope| self.key(&format!("{scope}/state"))));
        (keys, vec![must(self.told.try_into()), 0, self.known, self.latest])
    }

    pub(crate) fn try_pause(&mut self, scope: Option<&str>, wait: i64) -> Reply {
        let (keys, mut integers) = self.message(scope);
        integers.extend([self.recovery, 0, 0, 0, 0, 429, 0, 0, 0, wait]);
        self.run("pause", &keys, &integers)
    }

    /// The time, how long nobody sends, and whether this refusal began it.
    pub(crate) fn pause(&mut self, scope: Option<&str>, wait: i64) -> Vec<i64> {
        let reply = self.try_pause(scope, wait);
        let (now, rest) = self.of_told(&reply);
        vec![now, (rest[0] - now).max(0), rest[1]]
    }

    /// Has a log of the whole upstream forgotten.
    pub(crate) fn reset(&mut self, log: &str) {
        let (mut keys, mut integers) = self.message(None);
        keys.push(self.key(&named(log)));
        integers.push(0);
        let reply = self.run("reset", &keys, &integers);
        assert!(self.of_told(&reply).1.is_empty());
    }

    pub(crate) fn try_report(&mut self, log: &str, quotas: &[i64]) -> Reply {
        let (mut keys, mut integers) = self.message(log.split_once('/').map(|(scope, _)| scope));
        keys.push(self.key(&named(log)));
        integers.extend([0, 0]);
        integers.extend(quotas);
        self.run("report", &keys, &integers)
    }

    /// The time, and units of others.
    pub(crate) fn report(&mut self, log: &str, quotas: &[i64]) -> Vec<i64> {
        let reply = self.try_report(log, quotas);
        let (now, rest) = self.of_told(&reply);
        [vec![now], rest].concat()
    }

    fn of_told(&mut self, reply: &Reply) -> (i64, Vec<i64>) {
        let integers = integers(reply);
        assert_eq!(u64::try_from(integers[0]), Ok(self.told), "it names its message");
        self.told += 1;
        (integers[1], integers[2..].to_vec())
    }

    pub(crate) fn try_usage(&mut self, logs: &[Log<'_>]) -> Reply {
        let (mut keys, mut integers) = (vec![self.key("replay:0:"), self.key("state")], vec![0; 7]);
        self.logs(logs, &[], &mut keys, &mut integers);
        self.run("usage", &keys, &integers)
    }

    /// The time, and for each term units that count, units of others, and how long until the next.
    pub(crate) fn usage(&mut self, logs: &[Log<'_>]) -> Vec<i64> {
        let integers = integers(&self.try_usage(logs));
        assert_eq!(integers[0], 0, "it is nobody's");
        let of_terms = terms(&integers[2..], logs).into_iter().flat_map(|term| term[1..4].to_vec());
        integers[1..2].iter().copied().chain(of_terms).collect()
    }

    /// For each term, for how long others have been known to use it; -1 where they are not.
    pub(crate) fn known_for(&mut self, logs: &[Log<'_>]) -> Vec<i64> {
        terms(&integers(&self.try_usage(logs))[2..], logs).into_iter().map(|term| term[4]).collect()
    }

    fn logs(&self, logs: &[Log<'_>], counted: &[i64], keys: &mut Vec<String>, integers: &mut Vec<i64>) {
        let scopes = scopes(logs);
        integers.extend([must(scopes.len().try_into()), i64::from(scopes.first() == Some(&""))]);
        integers.extend((0..scopes.len()).map(|place| counted.get(place).copied().unwrap_or(0)));
        let of_scopes = scopes.iter().filter(|scope| !scope.is_empty());
        keys.extend(of_scopes.map(|scope| self.key(&format!("{scope}/state"))));
        for (name, terms) in logs {
            let place = scopes.iter().position(|scope| *scope == scope_of(name)).map_or(0, |place| place + 1);
            keys.push(self.key(&named(name)));
            integers.push(must(place.try_into()));
            integers.push(must(terms.len().try_into()));
            integers.extend(terms.iter().flat_map(|(quota, span)| [i64::from(*quota), *span]));
        }
    }

    /// One command about a key of the upstream.
    pub(crate) fn of(&mut self, verb: &str, name: &str, rest: &[&str]) -> Reply {
        let key = self.key(name);
        must(self.client.command(&[&[verb, key.as_str()], rest].concat()))
    }

    pub(crate) fn int(&mut self, verb: &str, name: &str) -> i64 {
        self.of(verb, name, &[]).int().unwrap_or(i64::MIN)
    }

    pub(crate) fn newest(&mut self, log: &str) -> i64 {
        self.of("LINDEX", log, &["-1"]).text().and_then(|text| text.parse().ok()).unwrap_or(i64::MIN)
    }
}

/// A scope of a short name, as keys spell it.
fn id(scope: &str) -> String {
    format!("/{scope:0<32}")
}

fn scope_of(log: &str) -> &str {
    log.split_once('/').map_or("", |(scope, _)| scope)
}

/// `scope/log:unit`.
fn named(log: &str) -> String {
    log.split_once('/').map_or_else(|| format!("log:{log}"), |(scope, unit)| format!("{scope}/log:{unit}"))
}

/// The scopes of logs, in their order.
pub(crate) fn scopes<'a>(logs: &[Log<'a>]) -> Vec<&'a str> {
    let mut scopes: Vec<&str> = logs.iter().map(|(name, _)| scope_of(name)).collect();
    scopes.dedup();
    scopes
}

/// The integers of a reply of nothing else.
fn integers(reply: &Reply) -> Vec<i64> {
    let Reply::Bulk(bytes) = reply else { panic!("{reply:?} is no string") };
    let (integers, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty() && integers.len() >= 2, "{reply:?}");
    integers.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()
}

/// What usage says of each term, without what it says of each log.
fn terms(mut integers: &[i64], logs: &[Log<'_>]) -> Vec<[i64; 5]> {
    let mut all = Vec::new();
    for (_, terms) in logs {
        let (of_log, rest) = integers[11..].split_at(5 * terms.len());
        all.extend(of_log.chunks_exact(5).map(|term| must(<[i64; 5]>::try_from(term))));
        integers = rest;
    }
    all
}
