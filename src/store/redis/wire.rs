//! What goes over the wire to the scripts, and what comes back. Pure: decoding is total, whatever the server says.

mod integers;
mod keys;
mod presence;
mod reply;

use redis::Cmd;

use self::integers::Integers;
use self::keys::Keys;
pub(super) use self::reply::reply;
use super::script::{self, Script};
use crate::ledger::{Body, Message, Stamp, micros};

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
        cmd.arg(integers.as_bytes());
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ledger::{
        Ask, Bucket, Cold, Log, MessageId, Pause, Priority, Remembered, Report, Run, ScopeId, SeatLimit, Seats, Slots,
        Term,
    };

    fn words(message: &Message, clock: Option<Stamp>) -> (Vec<String>, Vec<i64>) {
        let mut cmd = redis::cmd("EVALSHA");
        Wire::new("outgate", clock).write(&mut cmd, message);
        let mut words: Vec<Vec<u8>> = cmd
            .args_iter()
            .map(|arg| if let redis::Arg::Simple(bytes) = arg { bytes.to_vec() } else { Vec::new() })
            .collect();
        let binary = words.remove(if clock.is_some() { words.len() - 2 } else { words.len() - 1 });
        let integers = Integers::new(binary).read();
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
}
