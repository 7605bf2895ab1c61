//! Keys of a scope may be evicted one by one: what is left of them tells.

use std::time::Duration;

use outgate::ledger::{Again, Answer, Ask, Grant, Log, Message, MessageId, Remembered, Run, Slots, Stamp, Term};
use outgate::testing::{ManualClock, RedisServer, Reply};
use outgate::{RedisStore, Store};

use crate::{NOW, SECOND, must};

const fn at(micros: i64) -> Stamp {
    Stamp::from_micros(NOW + micros)
}

/// Two processes that were granted fifty each of a hundred a minute, and a third that comes.
struct Three {
    server: RedisServer,
    clock: ManualClock,
    store: RedisStore,
}

impl Three {
    async fn new() -> Self {
        let server = must(RedisServer::start());
        let clock = ManualClock::new(at(0));
        let store = must(RedisStore::builder(&server.url()).prefix("e").connect().await).with_clock(clock.clone());
        let three = Self { server, clock, store };
        for sender in [1, 2] {
            three.told(0, (sender, 1), ask(50)).await;
        }
        three
    }

    async fn told(&self, now: i64, (sender, number): (u64, u64), ask: Ask) -> Grant {
        self.clock.set(at(now));
        let reply = must(self.store.apply(&Message::new("up", MessageId::new(sender, "", number), ask)).await);
        reply.grant().unwrap_or_else(|| panic!("no grant"))
    }

    fn log(&self) -> Vec<String> {
        let entries = must(self.server.command(&["LRANGE", "e:v1:{up}:log:calls", "0", "-1"]));
        let Reply::Array(entries) = entries else { panic!("no list") };
        entries.iter().map(|entry| entry.text().unwrap_or_default().to_owned()).collect()
    }

    fn evict(&self, key: &str) {
        assert_eq!(must(self.server.command(&["DEL", key])).int(), Some(1), "{key}");
    }
}

fn ask(callers: u32) -> Ask {
    Ask::new([Log::new("calls", [Term::new(100, 60 * SECOND)])], vec![Run::new(callers, [1])])
}

/// An ask that tells of units that calls used beyond their charges.
fn owing(units: u32, mut ask: Ask) -> Ask {
    ask.runs.clear();
    ask.debts = vec![units];
    ask
}

/// What each of the two remembers, and what it says again.
fn remembering(again: Option<Again>) -> Ask {
    let mut ask = ask(1);
    (ask.remembered, ask.again) = (Remembered::new(1, at(0), [at(0)]), again);
    ask
}

fn granted(grant: &Grant) -> u32 {
    grant.answers(100).filter(|answer| answer.verdict.is_granted()).map(|answer| answer.callers).sum()
}

#[tokio::test]
async fn a_log_tells_of_a_loss_that_its_scope_has_forgotten_before_all_have_heard_of_it() {
    let three = Three::new().await;
    three.evict("e:v1:{up}:log:calls");
    let (seen, _) = *must(three.told(SECOND, (1, 2), remembering(None)).await.loss.ok_or("no loss"));
    assert_eq!(seen, at(SECOND));
    let again = Again::new(Stamp::from_micros(0), seen, vec![Slots::new(50, at(0), [1])]);
    three.told(SECOND + 1, (1, 3), remembering(Some(again.clone()))).await;
    three.evict("e:v1:{up}:state");
    let third = three.told(2 * SECOND, (3, 1), ask(50)).await;
    assert_eq!((granted(&third), third.next), (0, at(7 * SECOND)), "what the second was granted is not there");
    let second = three.told(3 * SECOND, (2, 2), remembering(None)).await;
    assert_eq!(second.loss, Some(Box::new((seen, 0))), "all that it was granted");
    three.told(4 * SECOND, (2, 3), remembering(Some(again))).await;
    assert_eq!(granted(&three.told(8 * SECOND, (3, 2), ask(1)).await), 0, "a hundred count");
    assert!(granted(&three.told(60 * SECOND + 1, (3, 3), ask(100)).await) > 0, "they count no more");
}

#[tokio::test]
async fn a_log_that_is_evicted_alone_is_lost_whoever_asks() {
    let three = Three::new().await;
    three.evict("e:v1:{up}:log:calls");
    let third = three.told(SECOND, (3, 1), ask(50)).await;
    assert_eq!((granted(&third), third.loss), (0, Some(Box::new((at(SECOND), 0)))));
    // Who does not wait for so long is refused as ever.
    let mut hasty = ask(1);
    hasty.runs = vec![Run::new(1, [1]).max_wait(Duration::from_secs(3))];
    let fourth = three.told(2 * SECOND, (4, 1), hasty).await;
    assert_eq!(fourth.answers(1).collect::<Vec<_>>(), [Answer::refused(1, at(7 * SECOND))]);
}

#[tokio::test]
async fn a_log_of_which_nothing_counts_any_more_as_slots_were_handed_back_is_none_that_is_lost() {
    let three = Three::new().await;
    three.told(65 * SECOND, (1, 2), ask(1)).await;
    let mut back = ask(1);
    (back.runs, back.back) = (Vec::new(), vec![Slots::new(1, at(65 * SECOND), [1])]);
    three.told(66 * SECOND, (1, 3), back).await;
    // It expires.
    three.evict("e:v1:{up}:log:calls");
    let third = three.told(80 * SECOND, (3, 1), ask(100)).await;
    assert_eq!((granted(&third), third.loss), (100, None));
}

#[tokio::test]
async fn what_is_said_again_later_than_it_started_is_no_other_loss() {
    let three = Three::new().await;
    let logs = ["first", "second"].map(|unit| Log::new(unit, [Term::new(100, 3_600 * SECOND)]));
    for (sender, newest, units) in [(4, [-50, -60], [2, 1]), (5, [-60, -50], [1, 2]), (6, [-59, -59], [2, 2])] {
        let asks = |again| {
            let mut ask = Ask::new(&logs[..], vec![Run::new(9, [1, 1])]);
            ask.remembered = Remembered::new(0, at(0), newest.map(|start| at(start * SECOND)));
            ask.again = again;
            ask
        };
        three.server.command(&["FLUSHALL"]).map_or_else(|error| panic!("{error}"), drop);
        let (seen, _) = *must(three.told(SECOND, (sender, 1), asks(None)).await.loss.ok_or("no loss"));
        let again = Again::new(Stamp::from_micros(0), seen, vec![Slots::new(1, at(-50 * SECOND), units)]);
        three.told(SECOND + 1, (sender, 2), asks(Some(again))).await;
        // Another says its own, of later.
        let mut others = Ask::new(&logs[..], Vec::new());
        others.remembered = Remembered::new(0, at(0), [at(-SECOND); 2]);
        others.again = Some(Again::new(Stamp::from_micros(0), seen, vec![Slots::new(1, at(-SECOND), [1, 1])]));
        three.told(SECOND + 2, (7, 1), others).await;
        let has_said = || asks(Some(Again::new(seen, seen, Vec::new())));
        assert_eq!(three.told(2 * SECOND, (sender, 3), has_said()).await.loss, None, "{newest:?}");
        let grant = three.told(7 * SECOND, (sender, 4), has_said()).await;
        assert_eq!((granted(&grant), grant.loss), (9, None), "{newest:?}");
    }
}

#[tokio::test]
async fn what_is_known_of_a_log_is_known_again_when_it_is_evicted() {
    let three = Three::new().await;
    three.evict("e:v1:{up}:state");
    assert_eq!(granted(&three.told(SECOND, (3, 1), ask(1)).await), 0, "a hundred count");
    three.evict("e:v1:{up}:log:calls");
    let third = three.told(2 * SECOND, (3, 2), ask(1)).await;
    assert_eq!(third.loss, Some(Box::new((at(2 * SECOND), 0))));
}

/// The same in logs of few calls.
fn of_ten(callers: u32) -> Ask {
    Ask::new([Log::new("calls", [Term::new(10, 20 * SECOND)])], vec![Run::new(callers, [1])])
}

#[tokio::test]
async fn a_log_that_debts_begin_while_its_loss_settles_tells_of_it() {
    let three = Three::new().await;
    three.evict("e:v1:{up}:log:calls");
    assert!(three.told(SECOND, (1, 2), remembering(None)).await.loss.is_some());
    three.told(SECOND + 2, (4, 1), owing(1, ask(1))).await;
    assert_eq!(three.log(), [format!("L{}", NOW + SECOND), format!("{}", NOW + SECOND + 2)]);
    three.evict("e:v1:{up}:state");
    let third = three.told(2 * SECOND, (3, 1), ask(99)).await;
    assert_eq!((granted(&third), third.next), (0, at(7 * SECOND)), "what the two were granted is not there");
}

#[tokio::test]
async fn a_log_that_is_trimmed_goes_on_telling_of_its_loss() {
    let three = Three::new().await;
    three.evict("e:v1:{up}:log:calls");
    three.evict("e:v1:{up}:state");
    // As many entries as a log has before it is trimmed.
    let (mut last, mut number) = (0, 0);
    for callers in [10, 10, 10, 10, 10, 10, 10, 10, 10, 4] {
        (last, number) = (last + 20 * SECOND + 1, number + 1);
        three.told(last, (4, number), of_ten(callers)).await;
    }
    assert_eq!(three.log().len(), 94);
    three.evict("e:v1:{up}:replay:4:");
    let seen = last + SECOND;
    let mut asks = of_ten(1);
    asks.remembered = Remembered::new(number, at(last), [at(last)]);
    assert!(three.told(seen, (4, number + 1), asks).await.loss.is_some());
    three.told(seen + 2, (5, 1), owing(1, of_ten(1))).await;
    let log = three.log();
    assert!(log.len() < 30 && log[0] == format!("L{}", NOW + seen), "{log:?}");
    three.evict("e:v1:{up}:state");
    let third = three.told(seen + SECOND, (3, 1), of_ten(10)).await;
    assert_eq!((granted(&third), third.next), (0, at(seen + 6 * SECOND)), "some may be missing");
}

#[tokio::test]
async fn a_log_bears_the_mark_of_its_last_loss_alone_and_is_of_use_when_nothing_else_is_left_in_it() {
    let three = Three::new().await;
    let key = "e:v1:{up}:log:calls";
    for loss in 1..4 {
        three.evict(key);
        three.told(loss * 10 * SECOND, (4, loss.unsigned_abs()), ask(1)).await;
        three.told(loss * 10 * SECOND + 1, (5, loss.unsigned_abs()), owing(1, ask(1))).await;
        let marks: Vec<String> = three.log().into_iter().filter(|entry| entry.starts_with('L')).collect();
        assert_eq!(marks, [format!("L{}", NOW + loss * 10 * SECOND)]);
    }
    assert_eq!(must(three.server.command(&["LTRIM", key, "0", "0"])).text(), Some("OK"));
    let fourth = three.told(100 * SECOND, (6, 1), ask(101)).await;
    assert_eq!((granted(&fourth), three.log().len()), (100, 101));
}

/// On the server's own clock, as by another no log expires.
#[tokio::test]
async fn a_log_of_which_the_mark_alone_is_left_expires_after_another_loss_too() {
    let server = must(RedisServer::start());
    let store = must(RedisStore::builder(&server.url()).prefix("e").connect().await);
    let told = async |number, ask: Ask| {
        let reply = must(store.apply(&Message::new("up", MessageId::new(1, "", number), ask)).await);
        reply.grant().unwrap_or_else(|| panic!("no grant"))
    };
    let expires = || must(server.command(&["PTTL", "e:v1:{up}:log:calls"])).int();
    let evict = |key: &str| assert_eq!(must(server.command(&["DEL", key])).int(), Some(1), "{key}");
    let remembering = |number, told, again| {
        let mut ask = ask(1);
        (ask.remembered, ask.again) = (Remembered::new(number, told, [told]), again);
        ask
    };
    let start = told(1, ask(1)).await.now;
    evict("e:v1:{up}:log:calls");
    let (seen, _) = *must(told(2, remembering(1, start, None)).await.loss.ok_or("no loss"));
    let again = Again::new(Stamp::from_micros(0), seen, vec![Slots::new(1, start, [1])]);
    told(3, remembering(2, seen, Some(again))).await;
    let mut back = Ask::new([ask(1).logs[0].clone()], Vec::new());
    (back.back, back.again) = (vec![Slots::new(1, start, [1])], Some(Again::new(seen, seen, Vec::new())));
    let last = told(4, back).await.now;
    assert!(expires() > Some(0));
    evict("e:v1:{up}:replay:1:");
    let grant = told(5, remembering(4, last, Some(Again::new(seen, seen, Vec::new())))).await;
    assert!(grant.loss.is_some_and(|loss| loss.0 > seen), "another loss");
    assert_eq!(must(server.command(&["LLEN", "e:v1:{up}:log:calls"])).int(), Some(1), "the mark of the last alone");
    assert!(expires() > Some(0), "{:?}", expires());
}

#[tokio::test]
async fn a_log_that_counts_for_short_is_missed_by_whoever_was_granted_something_lately() {
    let three = Three::new().await;
    let of_a_second = |callers| Ask::new([Log::new("calls", [Term::new(100, SECOND)])], vec![Run::new(callers, [1])]);
    // The first was granted half of it, which counts no more; the second half of the next window.
    for (now, sender) in [(100 * SECOND, 6), (101 * SECOND - 1, 7)] {
        assert!(granted(&three.told(now, (sender, 1), of_a_second(50)).await) > 0);
    }
    three.evict("e:v1:{up}:log:calls");
    let mut asks = of_a_second(100);
    asks.remembered = Remembered::new(1, at(100 * SECOND), [at(100 * SECOND)]);
    let grant = three.told(101 * SECOND + 1, (6, 2), asks.clone()).await;
    assert_eq!((granted(&grant), grant.lost, grant.next), (0, true, at(102 * SECOND + SECOND / 4 + 1)));
    // It is not lost once more for being empty since.
    let grant = three.told(102 * SECOND + SECOND / 4 + 1, (6, 3), asks.clone()).await;
    assert!(granted(&grant) > 0 && !grant.lost, "{grant:?}");
}

#[tokio::test]
async fn a_log_that_callers_wait_for_is_missed_by_whoever_asks() {
    let three = Three::new().await;
    let of_a_second = |callers| Ask::new([Log::new("calls", [Term::new(100, SECOND)])], vec![Run::new(callers, [1])]);
    for (number, after, is_lost) in [(1, SECOND / 2, true), (2, 6 * SECOND - 1, true), (3, 6 * SECOND, false)] {
        let from = 100 * SECOND * i64::try_from(number).unwrap_or(0);
        assert!(granted(&three.told(from, (4, number), of_a_second(101)).await) > 0);
        three.evict("e:v1:{up}:log:calls");
        let grant = three.told(from + after, (5, number), of_a_second(100)).await;
        assert_eq!((granted(&grant) == 0, grant.lost), (is_lost, is_lost), "after {after} µs");
    }
}

#[tokio::test]
async fn a_log_is_as_much_lost_for_those_who_count_it_for_long_whoever_sees_it_first() {
    for (span, settling) in [(60 * SECOND, 6 * SECOND), (9 * SECOND, 9 * SECOND + SECOND / 4)] {
        let three = Three::new().await;
        let of = |span, run| Ask::new([Log::new("calls", [Term::new(100, span)])], vec![run]);
        three.told(100 * SECOND, (4, 1), of(span, Run::new(101, [1]))).await;
        three.evict("e:v1:{up}:log:calls");
        // One that counts it for a second asks first.
        three.told(102 * SECOND, (5, 1), of(SECOND, Run::new(1, [1]))).await;
        let newcomer = three.told(104 * SECOND, (6, 1), of(span, Run::new(1, [1]))).await;
        assert_eq!((granted(&newcomer), newcomer.next), (0, at(102 * SECOND + settling)), "{span}");
        assert_eq!(newcomer.loss.is_some(), span > 10 * SECOND, "{span}");
    }
}
