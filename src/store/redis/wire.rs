//! What goes over the wire to the scripts, and what comes back. Pure: decoding is total, whatever the server says.

mod presence;
mod reply;

use std::fmt::Write as _;

use redis::Cmd;

pub(super) use self::reply::reply;
use super::script::{self, Script};
use crate::ledger::{
    Again, Ask, Body, Cause, Cold, Log, Message, Pause, Renewal, Report, ScopeId, Seats, Shape, Slots, Stamp, Term,
    micros,
};

/// The largest integer that Lua keeps exactly.
const EXACT: i64 = 1 << 53;

/// What callers are less of a higher priority, and more of a lower one.
const OF_A_PRIORITY: i64 = 1 << 32;

/// How much longer most keys are than their stem: a scope, and what is kept of it.
const BEHIND_STEM: usize = 64;

/// Writes keys and arguments, in the order that the scripts' headers give.
#[derive(Clone, Copy)]
pub(super) struct Wire<'a> {
    prefix: &'a str,
    clock: Option<Stamp>,
}

impl<'a> Wire<'a> {
    pub(super) const fn new(prefix: &'a str, clock: Option<Stamp>) -> Self {
        Self { prefix, clock }
    }

    /// Writes a message for its script.
    pub(super) fn write(self, cmd: &mut Cmd, message: &Message) {
        let mut integers = Integers::of(message);
        let mut keys = Keys::new(self.prefix, message);
        match &message.body {
            Body::Ask(ask) => integers.ask(ask),
            Body::Pause { pause, .. } => integers.pause(pause),
            Body::Release { served, .. } => _ = integers.stamp(*served),
            Body::SlowDown { factor, lasting, .. } => _ = integers.push(*factor).push(micros(*lasting)),
            Body::Reset { scope, .. } => _ = integers.push(scope.is_some()),
            Body::Look { since, .. } => _ = integers.push(since.as_micros()),
            Body::Report { report, .. } => integers.report(report),
            Body::Usage { logs, .. } => integers.usage(logs),
            Body::Renew(renewal) => presence::write(&mut integers, message.id.sender, renewal),
            Body::Processes { .. } => {}
        }
        keys.write(cmd, message);
        cmd.arg(&integers.0);
        if let Some(clock) = self.clock {
            cmd.arg(clock.as_micros());
        }
    }

    /// A key of an upstream: all of them lie in one slot of a Cluster.
    pub(super) fn key_of(self, upstream: &str) -> String {
        format!("{}:v1:{{{upstream}}}:state", self.prefix)
    }
}

/// The script of a message.
pub(super) fn script(message: &Message) -> &'static Script {
    match message.body {
        Body::Ask(_) => script::book(),
        Body::Pause { .. } => script::pause(),
        Body::Release { .. } => script::release(),
        Body::SlowDown { .. } => script::slow_down(),
        Body::Reset { .. } => script::reset(),
        Body::Look { .. } => script::look(),
        Body::Report { .. } => script::report(),
        Body::Usage { .. } => script::usage(),
        Body::Renew(_) => script::renew(),
        Body::Processes { .. } => script::processes(),
    }
}

/// The keys of one upstream, written one after another into the same string.
struct Keys {
    key: String,
    /// Up to the upstream's name, and its closing brace.
    stem: usize,
}

impl Keys {
    fn new(prefix: &str, message: &Message) -> Self {
        // The braces keep all keys of an upstream in one slot of a Redis Cluster, so that one script may touch any of them.
        let stem = [prefix, ":v1:{", &message.upstream, "}"];
        let mut key = String::with_capacity(stem.iter().map(|part| part.len()).sum::<usize>() + BEHIND_STEM);
        key.extend(stem);
        Self { stem: key.len(), key }
    }

    fn write(&mut self, cmd: &mut Cmd, message: &Message) {
        let logs = match &message.body {
            Body::Ask(ask) => &*ask.logs,
            Body::Usage { logs, .. } => logs,
            Body::Report { log, .. } => std::slice::from_ref(log),
            Body::Pause { scope, pause } => {
                let log = pause.evidence().map(|evidence| &evidence.log);
                cmd.arg(2 + usize::from(scope.is_some()) + usize::from(log.is_some()));
                self.replay_and_states(cmd, message, scope.as_slice());
                if let Some(log) = log {
                    self.log(cmd, *scope, &log.unit);
                }
                return;
            }
            Body::Release { scope, .. } | Body::SlowDown { scope, .. } => {
                cmd.arg(2 + usize::from(scope.is_some()));
                return self.replay_and_states(cmd, message, scope.as_slice());
            }
            Body::Reset { scope, units } => {
                cmd.arg(2 + usize::from(scope.is_some()) + units.len());
                self.replay_and_states(cmd, message, scope.as_slice());
                return units.iter().for_each(|unit| self.log(cmd, *scope, unit));
            }
            Body::Look { scopes, .. } => {
                cmd.arg(2 + scopes.len());
                return self.replay_and_states(cmd, message, scopes);
            }
            Body::Renew(Renewal { upstream, .. }) | Body::Processes { upstream } => {
                cmd.arg(3);
                self.replay_and_states(cmd, message, &[]);
                return self.processes(cmd, message, upstream);
            }
        };
        let scopes = || Log::scopes(logs).flatten();
        let seats = match &message.body {
            Body::Ask(Ask { seats: Some(seats), .. }) => &*seats.limits,
            Body::Usage { seats, .. } => seats,
            _ => &[],
        };
        cmd.arg(2 + scopes().count() + logs.len() + seats.len());
        self.replay_and_states(cmd, message, &[]);
        for scope in scopes() {
            self.state(cmd, Some(scope));
        }
        for log in logs {
            self.log(cmd, log.scope, &log.unit);
        }
        for limit in seats {
            self.scope(limit.scope);
            self.key.push_str(":seats");
            cmd.arg(&self.key);
        }
    }

    /// The sender's last message, the state of the whole upstream, and those of some scopes.
    fn replay_and_states(&mut self, cmd: &mut Cmd, message: &Message, scopes: &[ScopeId]) {
        self.key.truncate(self.stem);
        let _ = write!(self.key, ":replay:{:x}:", message.id.sender);
        self.key.push_str(&message.id.stream);
        cmd.arg(&self.key);
        self.state(cmd, None);
        for &scope in scopes {
            self.state(cmd, Some(scope));
        }
    }

    /// The processes of an upstream: of several, where they share limits.
    fn processes(&mut self, cmd: &mut Cmd, message: &Message, upstream: &str) {
        self.key.truncate(self.stem);
        self.key.push_str(":processes");
        if *upstream != *message.upstream {
            let _ = write!(self.key, "@{upstream}");
        }
        cmd.arg(&self.key);
    }

    fn log(&mut self, cmd: &mut Cmd, scope: Option<ScopeId>, unit: &str) {
        self.scope(scope);
        self.key.push_str(":log:");
        self.key.push_str(unit);
        cmd.arg(&self.key);
    }

    fn state(&mut self, cmd: &mut Cmd, scope: Option<ScopeId>) {
        self.scope(scope);
        self.key.push_str(":state");
        cmd.arg(&self.key);
    }

    fn scope(&mut self, scope: Option<ScopeId>) {
        self.key.truncate(self.stem);
        if let Some(scope) = scope {
            let _ = write!(self.key, "/{scope}");
        }
    }
}

/// The integers of a message, each as a double, in which Lua counts; the lowest byte first.
struct Integers(Vec<u8>);

impl Integers {
    /// What every message begins with.
    fn of(message: &Message) -> Self {
        let mut integers = Self(Vec::with_capacity(256));
        let number = if message.id.is_nobodys() { 0 } else { message.id.number };
        integers.push(number).push(message.id.previous);
        integers.stamp(message.known).stamp(message.latest);
        integers
    }

    fn push(&mut self, integer: impl TryInto<i64>) -> &mut Self {
        let integer = integer.try_into().unwrap_or(EXACT).clamp(-EXACT, EXACT);
        #[expect(clippy::cast_precision_loss, reason = "no more than a double holds exactly")]
        self.0.extend_from_slice(&(integer as f64).to_le_bytes());
        self
    }

    /// Nothing is zero.
    fn stamp(&mut self, stamp: Option<Stamp>) -> &mut Self {
        self.push(stamp.map_or(0, Stamp::as_micros))
    }

    fn ask(&mut self, ask: &Ask) {
        self.push(micros(ask.horizon)).push(micros(ask.ahead)).push(
            u32::from(ask.insist)
                + 2 * u32::from(ask.cold.is_some())
                + 4 * u32::from(!ask.debts.is_empty())
                + 8 * u32::from(ask.seats.is_some())
                + 16 * ask.weight.saturating_sub(1)
                + 2_048 * u32::from(ask.again.is_some())
                + 4_096 * u32::from(!ask.remembered.apart.is_empty()),
        );
        self.logs(&ask.logs, &ask.counted);
        self.push(ask.remembered.number).stamp(Some(ask.remembered.told));
        let of = |all: &[Stamp], at: usize| all.get(at).map_or(0, |stamp| stamp.as_micros());
        for at in 0..ask.logs.len() {
            let apart = of(&ask.remembered.apart, at);
            self.push(if apart > 0 { -apart } else { of(&ask.remembered.newest, at) });
        }
        if !ask.remembered.apart.is_empty() {
            self.stamp(Some(ask.remembered.lost_at));
        }
        if let Some(Again { heard, loss, steps, .. }) = &ask.again {
            self.stamp(Some(*heard)).stamp(Some(*loss)).push(steps.len() as u64);
            for Slots { count, start, charges, .. } in steps {
                self.stamp(Some(*start));
                charges.iter().for_each(|units| _ = self.push(units.saturating_mul(*count)));
            }
        }
        if let Some(Cold { first, last, charges, .. }) = &ask.cold {
            self.push(first.as_micros()).push(last.as_micros());
            charges.iter().for_each(|&units| _ = self.push(units));
            ask.logs.iter().flat_map(|log| log.terms.iter()).for_each(|term| _ = self.push(term.cold));
        }
        ask.debts.iter().for_each(|&units| _ = self.push(units));
        if let Some(Seats { limits, kept, idle, lease, .. }) = &ask.seats {
            self.push(micros(*lease)).push(*kept).push(*idle);
            limits.iter().for_each(|limit| _ = self.push(limit.seats));
        }
        self.push(ask.back.len() as u64);
        for Slots { count, start, charges, looks } in &ask.back {
            self.push(start.as_micros()).push(*looks);
            for units in charges.iter() {
                self.push(units.saturating_mul(*count));
            }
        }
        for run in &ask.runs {
            self.push(i64::from(run.callers) + run.priority.below_normal() * OF_A_PRIORITY);
            self.push(run.max_wait.map_or(-1, micros));
            for &units in run.charges.iter() {
                self.push(units);
            }
        }
    }

    fn usage(&mut self, logs: &[Log]) {
        self.push(0).push(0).push(0);
        self.logs(logs, &[]);
    }

    /// The scopes, in which period each has counted the sender, and each log with the place of its scope and its terms.
    fn logs(&mut self, logs: &[Log], counted: &[Stamp]) {
        let count = Log::scopes(logs).count();
        self.push(count as u64).push(logs.first().is_some_and(|log| log.scope.is_none()));
        for place in 0..count {
            self.stamp(counted.get(place).copied());
        }
        let (mut place, mut last) = (0_u32, None);
        for log in logs {
            place += u32::from(last.replace(log.scope) != Some(log.scope));
            self.push(place).push(log.terms.len() as u64);
            log.terms.iter().for_each(|term| self.term(*term));
        }
    }

    fn term(&mut self, term: Term) {
        let (span, more) = shape(term);
        self.push(term.quota).push(span);
        for part in more {
            self.push(part);
        }
    }

    fn pause(&mut self, pause: &Pause) {
        self.push(micros(pause.recovery)).push(code(pause.cause)).push(micros(pause.memory)).stamp(pause.started);
        self.push(micros(pause.told)).push(pause.status);
        let evidence = pause.evidence();
        self.push(evidence.map_or(0, |of| of.calls)).push(evidence.map_or(0, |of| of.units));
        let windows = evidence.map_or(&[][..], |of| &of.windows);
        self.push(windows.len() as u64);
        for (term, window) in windows {
            self.push(term.quota).push(term.span).push(micros(*window));
        }
        for &wait in &pause.waits {
            self.push(micros(wait));
        }
        if pause.waits.is_empty() {
            self.push(0);
        }
    }

    fn report(&mut self, report: &Report) {
        self.stamp(report.started).push(micros(report.late));
        for quota in &report.quotas {
            let (span, more) = shape(quota.term);
            self.push(quota.term.quota).push(span).push(micros(quota.window));
            self.push(quota.remaining).push(micros(quota.reset));
            for part in more {
                self.push(part);
            }
        }
    }
}

#[cfg(test)]
impl Integers {
    fn read(&self) -> Vec<i64> {
        let (doubles, rest) = self.0.as_chunks::<8>();
        assert!(rest.is_empty());
        #[expect(clippy::cast_possible_truncation, reason = "an integer was written")]
        doubles.iter().map(|bytes| f64::from_le_bytes(*bytes) as i64).collect()
    }
}

/// The span of a term, negative where it is no window, and what follows then.
fn shape(term: Term) -> (i64, Vec<i64>) {
    match term.shape {
        Shape::Window => (term.span, Vec::new()),
        Shape::Bucket(bucket) => (-term.span, vec![1, bucket.interval, bucket.depth]),
        Shape::Calendar(calendar) => {
            let boundaries = calendar.boundaries.iter().flat_map(|boundary| [boundary.from, boundary.to]);
            (-term.span, [2, calendar.guard].into_iter().chain(boundaries.map(Stamp::as_micros)).collect())
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ledger::{Bucket, MessageId, Priority, Remembered, Run, SeatLimit};

    fn words(message: &Message, clock: Option<Stamp>) -> (Vec<String>, Vec<i64>) {
        let mut cmd = redis::cmd("EVALSHA");
        Wire::new("outgate", clock).write(&mut cmd, message);
        let mut words: Vec<Vec<u8>> = cmd
            .args_iter()
            .map(|arg| if let redis::Arg::Simple(bytes) = arg { bytes.to_vec() } else { Vec::new() })
            .collect();
        let binary = words.remove(if clock.is_some() { words.len() - 2 } else { words.len() - 1 });
        let integers = Integers(binary).read();
        (words.iter().skip(1).map(|word| String::from_utf8_lossy(word).into_owned()).collect(), integers)
    }

    #[test]
    fn an_ask_is_written_as_the_header_of_book_lua_says() {
        let scope = Some(ScopeId::from_bits(0xab));
        let logs = [
            Log::new("calls", [Term::new(5, 1_000)]),
            Log::new("calls", [Term::new(4, 900).cold(200), Term::bucket(Bucket::new(40_000, 88_500))]).of(scope),
        ];
        let run = Run::new(3, [2, 1]).max_wait(Duration::from_millis(1));
        let [high, low] = [Priority::High, Priority::Low].map(|priority| Run::new(5, [1, 1]).priority(priority));
        let mut remembered = Remembered::new(3, Stamp::from_micros(60), [Stamp::from_micros(55), Stamp::NEVER]);
        (remembered.apart, remembered.lost_at) = (vec![Stamp::NEVER, Stamp::from_micros(65)], Stamp::from_micros(58));
        let ask = Ask {
            ahead: Duration::from_millis(40),
            back: vec![Slots::new(2, Stamp::from_micros(90), [2, 0])],
            cold: Some(Cold::new(Stamp::from_micros(70), Stamp::from_micros(75), [3, 1])),
            debts: vec![0, 6],
            counted: vec![Stamp::from_micros(7_000), Stamp::NEVER],
            seats: Some(Seats::new([SeatLimit::new(scope, 9), SeatLimit::new(None, 25)]).keeping(3, 1)),
            weight: 4,
            remembered,
            ..Ask::new(logs, vec![high, run, low])
        };
        let message = Message::new("up", MessageId::new(255, "ab", 7).after(3), ask);
        let message = Message { known: Some(Stamp::from_micros(80)), ..message };
        let (keys, integers) = words(&message, None);
        let of_scope = format!("/{:032x}", 0xab);
        let of_scope = |name: &str| format!("{of_scope}:{name}");
        let expected = [":replay:ff:ab", ":state", &of_scope("state"), ":log:calls", &of_scope("log:calls")];
        let seats = of_scope("seats");
        let expected = [&expected[..], &[&seats, ":seats"]].concat();
        assert_eq!(keys[0], "7");
        assert_eq!(keys[1..], expected.iter().map(|key| format!("outgate:v1:{{up}}{key}")).collect::<Vec<_>>());
        let header = [7, 3, 80, 0, 250_000, 40_000, 4_158];
        let scopes = [2, 1, 7_000, 0];
        let logs = [1, 1, 5, 1_000, 2, 2, 4, 900, 2, -89, 1, 40_000, 88_500];
        let remembered = [3, 60, 55, -65, 58];
        let (cold, debts, back) = ([70, 75, 3, 1, 0, 200, 0], [0, 6], [1, 90, 0, 4, 0]);
        let runs = [5 - (1 << 32), -1, 1, 1, 3, 1_000, 2, 1, 5 + (1 << 32), -1, 1, 1];
        let seats = [60_000_000, 3, 1, 9, 25];
        assert_eq!(integers, [&header[..], &scopes, &logs, &remembered, &cold, &debts, &seats, &back, &runs].concat());
    }

    #[test]
    fn messages_about_a_whole_upstream_have_a_key_less() {
        let pause = |scope| Body::Pause { scope, pause: Pause::new(Duration::from_secs(1)) };
        let keys =
            |body: Body| words(&Message::new("up", MessageId::new(1, "!", 1), body), Some(Stamp::from_micros(5))).0;
        assert_eq!(keys(pause(None)), ["2", "outgate:v1:{up}:replay:1:!", "outgate:v1:{up}:state", "5"]);
        assert_eq!(keys(pause(Some(ScopeId::from_bits(1))))[0], "3");
        let reset = |scope| Body::Reset { scope, units: ["calls".into(), "points".into()].into() };
        assert_eq!(keys(reset(None))[3..5], ["outgate:v1:{up}:log:calls", "outgate:v1:{up}:log:points"]);
        assert_eq!(keys(reset(Some(ScopeId::from_bits(1))))[0], "5");
        let log = Log::new("calls", [Term::new(1, 1)]);
        let report = |scope| Body::Report { log: log.clone().of(scope), report: Report::default() };
        assert_eq!(keys(report(None))[0], "3");
        assert_eq!(keys(report(Some(ScopeId::from_bits(1))))[0], "4");
    }

    #[test]
    fn what_lua_cannot_count_is_as_much_as_it_can() {
        let mut integers = Integers(Vec::new());
        integers.push(i64::MAX).push(u64::MAX).push(i64::MIN);
        assert_eq!(integers.read(), [EXACT, EXACT, -EXACT]);
    }
}
