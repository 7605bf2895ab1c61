//! What goes over the wire to the scripts, and what comes back. Pure: decoding is total, whatever the server says.

use std::fmt::Write as _;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::error::{StoreError, StoreErrorKind};
use crate::ledger::Stamp;
use crate::ledger::micros;
use crate::ledger::{
    Answer, Ask, Cause, Grant, HandBack, Hold, Home, Incident, Learned, Lesson, Log, LogUsage, MAX_MEMORY, MessageId,
    Report, Slots, TermUsage,
};

/// Writes keys and arguments, in the order that the scripts' headers give.
#[derive(Clone, Copy)]
pub(super) struct Wire<'a> {
    prefix: &'a str,
    now: Option<Stamp>,
}

impl<'a> Wire<'a> {
    pub(super) const fn new(prefix: &'a str, now: Option<Stamp>) -> Self {
        Self { prefix, now }
    }

    pub(super) fn book(self, cmd: &mut Cmd, ask: &Ask) {
        let mut keys = self.keys(&ask.home);
        cmd.arg(7 + ask.logs.len());
        cmd.arg(keys.seen(ask.sender)).arg(keys.of("told")).arg(self.told_all(&ask.home));
        cmd.arg(keys.of("claim")).arg(keys.of("asking")).arg(keys.of("reach"));
        cmd.arg(self.clock(&ask.home));
        keys.logs(cmd, &ask.logs);
        self.now(cmd);
        cmd.arg(ask.number).arg(ask.previous).arg(ask.sender).arg(micros(ask.horizon)).arg(u8::from(ask.insist));
        cmd.arg(micros(ask.ahead));
        stamp(cmd, ask.known);
        stamp(cmd, ask.latest);
        cmd.arg(ask.back.len());
        for slots in &ask.back {
            slot(cmd, slots);
        }
        terms(cmd, &ask.logs);
        for run in &ask.runs {
            cmd.arg(run.callers);
            match run.max_wait {
                Some(wait) => cmd.arg(micros(wait)),
                None => cmd.arg(""),
            };
            for &cost in run.costs.iter() {
                cmd.arg(cost);
            }
        }
    }

    pub(super) fn hand_back(self, cmd: &mut Cmd, message: &HandBack) {
        let mut keys = self.keys(&message.home);
        cmd.arg(2 + message.logs.len()).arg(keys.seen(message.sender)).arg(self.clock(&message.home));
        keys.logs(cmd, &message.logs);
        self.now(cmd);
        cmd.arg(message.number).arg(message.previous).arg(message.retention().clamp(1, MAX_MEMORY));
        for slots in &message.slots {
            slot(cmd, slots);
        }
    }

    pub(super) fn hold(self, cmd: &mut Cmd, home: &Home, id: MessageId, hold: &Hold) {
        let mut keys = self.keys(home);
        cmd.arg(3).arg(keys.seen_told(id.sender)).arg(keys.of("told")).arg(self.clock(home));
        self.now(cmd);
        cmd.arg(id.number).arg(micros(hold.recovery)).arg(code(hold.cause)).arg(micros(hold.memory));
        stamp(cmd, hold.started);
        for &wait in &hold.waits {
            cmd.arg(micros(wait));
        }
        if hold.waits.is_empty() {
            cmd.arg(0);
        }
    }

    pub(super) fn usage(self, cmd: &mut Cmd, home: &Home, logs: &[Log]) {
        let mut keys = self.keys(home);
        cmd.arg(3 + logs.len()).arg(keys.of("told")).arg(self.told_all(home)).arg(self.clock(home));
        keys.logs(cmd, logs);
        self.now(cmd);
        terms(cmd, logs);
    }

    pub(super) fn learn(self, cmd: &mut Cmd, home: &Home, id: MessageId, log: &Log, lesson: &Lesson) {
        let mut keys = self.keys(home);
        cmd.arg(5).arg(keys.seen_told(id.sender)).arg(keys.of("told")).arg(self.told_all(home));
        keys.logs(cmd, std::slice::from_ref(log));
        cmd.arg(self.clock(home));
        self.now(cmd);
        cmd.arg(id.number);
        stamp(cmd, lesson.started);
        cmd.arg(micros(lesson.late)).arg(u8::from(lesson.refused)).arg(micros(lesson.memory).max(1));
        for Report { term, window, remaining, reset } in &lesson.reports {
            cmd.arg(term.quota).arg(term.span).arg(micros(*window)).arg(remaining).arg(micros(*reset));
        }
    }

    fn now(self, cmd: &mut Cmd) {
        stamp(cmd, self.now);
    }

    /// A key of an upstream: all of them lie in one slot of a Cluster.
    pub(super) fn key_of(self, upstream: &str) -> String {
        self.key(upstream, "told")
    }

    fn told_all(self, home: &Home) -> String {
        self.key_of(home.split().0)
    }

    fn clock(self, home: &Home) -> String {
        self.key(home.split().0, "clock")
    }

    fn key(self, upstream: &str, name: &str) -> String {
        format!("{}:v1:{{{upstream}}}:{name}", self.prefix)
    }

    fn keys(self, home: &Home) -> Keys {
        // The braces keep all keys of an upstream in one slot of a Redis Cluster, so that one script may touch any of them.
        let (upstream, scope) = home.split();
        let key = format!("{}:v1:{{{upstream}}}{scope}:", self.prefix);
        Keys { stem: key.len(), key }
    }
}

/// The keys of one home, written one after another into the same string.
struct Keys {
    key: String,
    stem: usize,
}

impl Keys {
    fn of(&mut self, name: &str) -> &str {
        self.key.truncate(self.stem);
        self.key.push_str(name);
        &self.key
    }

    fn seen(&mut self, sender: u64) -> &str {
        self.key.truncate(self.stem);
        let _ = write!(self.key, "seen:{sender:x}");
        &self.key
    }

    fn seen_told(&mut self, sender: u64) -> &str {
        self.seen(sender);
        self.key.push_str(":told");
        &self.key
    }

    fn logs(&mut self, cmd: &mut Cmd, logs: &[Log]) {
        for log in logs {
            self.key.truncate(self.stem);
            let _ = write!(self.key, "log:{}", log.name);
            cmd.arg(&self.key);
        }
    }
}

/// What the scripts call a cause.
const fn code(cause: Cause) -> u8 {
    match cause {
        Cause::Refusal => 0,
        Cause::Spend => 1,
        Cause::Ban => 2,
    }
}

fn cause_of(code: i64) -> Result<Cause, StoreError> {
    match code {
        0 => Ok(Cause::Refusal),
        1 => Ok(Cause::Spend),
        2 => Ok(Cause::Ban),
        _ => Err(malformed()),
    }
}

/// Nothing stands for the server's clock.
fn stamp(cmd: &mut Cmd, stamp: Option<Stamp>) {
    match stamp {
        Some(stamp) => cmd.arg(stamp.as_micros()),
        None => cmd.arg(""),
    };
}

/// What is handed back: a start, and units of each log.
fn slot(cmd: &mut Cmd, slots: &Slots) {
    cmd.arg(slots.start.as_micros());
    for cost in slots.costs.iter() {
        cmd.arg(cost.saturating_mul(slots.count));
    }
}

fn terms(cmd: &mut Cmd, logs: &[Log]) {
    for log in logs {
        cmd.arg(log.terms.len());
        for term in log.terms.iter() {
            cmd.arg(term.quota).arg(term.span);
        }
    }
}

/// Reads the answer to an ask.
pub(super) fn grant(ask: &Ask, reply: &Value) -> Result<Grant, StoreError> {
    let integers = integers(reply)?;
    let (now, next, held, contenders, rest) = match integers.as_slice() {
        [now, number, next, held, cause, contenders, rest @ ..] if rest.len() % 3 == 0 => {
            // After a lost reply the next may be another message's: what it says of the time would mislead for long.
            if u64::try_from(*number) != Ok(ask.number) {
                return Err(malformed());
            }
            let (now, cause) = (Stamp::from_micros(*now), cause_of(*cause)?);
            let contenders = u32::try_from(*contenders).map_err(|_| malformed())?;
            (now, *next, (*held > 0).then(|| (now.plus(*held), cause)), contenders, rest)
        }
        _ => return Err(malformed()),
    };
    let answer = |part: &[i64]| match *part {
        [verdict @ (0..=2), start, callers] => {
            let callers = u32::try_from(callers).map_err(|_| malformed())?;
            // Nobody would ever be told that it may send. A clock that was set back a little is no lie.
            if verdict == 1 && start > ask.reach().saturating_add(MAX_MEMORY) {
                return Err(malformed());
            }
            let start = now.plus(start);
            Ok(if verdict == 2 { Answer::waiting(callers, start) } else { Answer::new(callers, start, verdict == 1) })
        }
        _ => Err(malformed()),
    };
    let answers = rest.chunks_exact(3).map(answer).collect::<Result<Vec<_>, _>>()?;
    let answered = answers.iter().map(|answer| u64::from(answer.callers)).sum::<u64>();
    if answered > u64::from(ask.callers()) {
        return Err(malformed());
    }
    Ok(Grant { held, contenders, ..Grant::new(now, answers, now.plus(next)) })
}

/// Reads for how long a home is held.
pub(super) fn incident(reply: &Value) -> Result<Incident, StoreError> {
    match integers(reply)?.as_slice() {
        [_, held, first @ (0 | 1)] => {
            let wait = u64::try_from(*held).map(Duration::from_micros).map_err(|_| malformed())?;
            Ok(Incident::new(wait, *first == 1))
        }
        _ => Err(malformed()),
    }
}

/// Reads what the store made of an upstream's reports.
pub(super) fn learned(reply: &Value) -> Result<Learned, StoreError> {
    let small = |integer: i64| u32::try_from(integer).map_err(|_| malformed());
    match integers(reply)?.as_slice() {
        [_, foreign, widened] => Ok(Learned::new(small(*foreign)?, small(*widened)?)),
        _ => Err(malformed()),
    }
}

/// Reads the answer to a question for usage.
pub(super) fn usage(logs: &[Log], reply: &Value) -> Result<Vec<LogUsage>, StoreError> {
    let integers = integers(reply)?;
    let mut parts = integers.get(1..).ok_or_else(malformed)?.chunks_exact(3);
    let mut term = || match parts.next() {
        Some(&[used, foreign, next]) => {
            let [used, foreign] = [used, foreign].map(u32::try_from);
            let next = u64::try_from(next).map_err(|_| malformed())?;
            let (used, foreign) = (used.map_err(|_| malformed())?, foreign.map_err(|_| malformed())?);
            Ok(TermUsage::new(used, foreign, Duration::from_micros(next)))
        }
        _ => Err(malformed()),
    };
    logs.iter().map(|log| log.terms.iter().map(|_| term()).collect::<Result<_, _>>().map(LogUsage::new)).collect()
}

fn integers(reply: &Value) -> Result<Vec<i64>, StoreError> {
    let integer = |value: &Value| match value {
        Value::Int(integer) => Ok(*integer),
        _ => Err(malformed()),
    };
    match reply {
        Value::Array(values) => values.iter().map(integer).collect(),
        _ => Err(malformed()),
    }
}

fn malformed() -> StoreError {
    StoreError::new(StoreErrorKind::Malformed, "the server's answer makes no sense")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Run;
    use crate::ledger::Term;

    fn ask() -> Ask {
        let log = Log::new("calls", [Term::new(5, 1_000)]);
        Ask::new(Home::new("up", Some("ab")), 255, 7, [log], vec![Run::new(3, [2]).max_wait(Duration::from_millis(1))])
    }

    fn ints(values: &[i64]) -> Value {
        Value::Array(values.iter().map(|&value| Value::Int(value)).collect())
    }

    #[test]
    fn an_ask_is_written_as_the_header_of_book_lua_says() {
        let mut cmd = redis::cmd("EVALSHA");
        let slots = vec![Slots::new(2, Stamp::from_micros(90), [2])];
        let ask = Ask { previous: 3, ahead: Duration::from_millis(40), back: slots, ..ask() };
        let ask = Ask { known: Some(Stamp::from_micros(80)), ..ask };
        Wire::new("outgate", None).book(&mut cmd, &ask);
        let words: Vec<_> = cmd
            .args_iter()
            .map(|arg| match arg {
                redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                _ => "?".to_owned(),
            })
            .collect();
        let keys =
            ["/ab:seen:ff", "/ab:told", ":told", "/ab:claim", "/ab:asking", "/ab:reach", ":clock", "/ab:log:calls"];
        let keys = keys.map(|key| format!("outgate:v1:{{up}}{key}"));
        assert_eq!(words[1], "8");
        assert_eq!(words[2..10], keys);
        assert_eq!(words[10..20], ["", "7", "3", "255", "250000", "0", "40000", "80", "", "1"]);
        assert_eq!(words[20..], ["90", "4", "1", "5", "1000", "3", "1000", "2"]);
    }

    #[test]
    fn an_answer_is_read_back() {
        let grant = grant(&ask(), &ints(&[1_000, 7, 50, 9, 2, 3, 2, 50, 1, 1, 0, 1, 0, 70, 1])).unwrap();
        let at = Stamp::from_micros;
        let answers =
            [Answer::waiting(1, at(1_050)), Answer::new(1, at(1_000), true), Answer::new(1, at(1_070), false)];
        assert_eq!(grant.answers, answers);
        assert_eq!((grant.now, grant.next, grant.held), (at(1_000), at(1_050), Some((at(1_009), Cause::Ban))));
        assert_eq!(grant.contenders, 3);
    }

    #[test]
    fn a_server_that_lies_is_an_error() {
        let lies = [
            Value::Nil,
            Value::Int(3),
            Value::SimpleString("OK".to_owned()),
            ints(&[]),
            ints(&[1]),
            ints(&[1, 7, 0, 0, 0]),
            ints(&[1, 8, 0, 0, 0, 0]),
            ints(&[1, 7, 0, 0, 3, 0]),
            ints(&[1, 7, 0, 0, 0, -1]),
            ints(&[1, 7, 0, 0, 0, 0, 1]),
            ints(&[1, 7, 0, 0, 0, 0, 3, 0, 1]),
            ints(&[1, 7, 0, 0, 0, 0, 1, 0, -1]),
            ints(&[1, 7, 0, 0, 0, 0, 1, 0, 4]),
            ints(&[1, 7, 0, 0, 0, 0, 1, 60_250_001, 1]),
            ints(&[1, 7, 0, 0, 0, 0, 1, 0, i64::MAX]),
            Value::Array(vec![Value::Int(1), Value::Nil]),
        ];
        for lie in lies {
            assert_eq!(grant(&ask(), &lie).unwrap_err().kind(), StoreErrorKind::Malformed, "{lie:?}");
        }
        let extreme = grant(&ask(), &ints(&[i64::MAX, 7, i64::MAX, i64::MAX, 0, 0, 1, i64::MIN, 1])).unwrap();
        assert_eq!(extreme.next, Stamp::from_micros(i64::MAX), "saturates");
        let logs = [Log::new("calls", [Term::new(5, 1_000)])];
        for lie in
            [ints(&[]), ints(&[1]), ints(&[1, 2, 0]), ints(&[1, -2, 0, 0]), ints(&[1, 2, -1, 0]), ints(&[1, 2, 0, -1])]
        {
            assert_eq!(usage(&logs, &lie).unwrap_err().kind(), StoreErrorKind::Malformed, "{lie:?}");
        }
    }
}
