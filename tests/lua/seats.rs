//! Seats: what the script says of them, and how long their key lives.

use outgate::testing::{RedisServer, Reply};

use crate::{Desk, NOW, SECOND, must};

const LEASE: i64 = 5 * SECOND;
/// Nobody else waits.
const ANY: i64 = 4_294_967_295;
/// By so many milliseconds longer than it counts a key is kept, in case that the clock leaps ahead.
const LEAP: i64 = 11_000;

/// An ask for callers of a queue that keeps so many of three seats, of which no call uses `idle`.
fn try_ask(desk: &mut Desk<'_>, kept: i64, idle: i64, callers: i64) -> Reply {
    try_ask_of(desk, [0; 2], kept, idle, callers)
}

/// The same of one that remembers a message, and when it was answered.
fn try_ask_of(desk: &mut Desk<'_>, remembered: [i64; 2], kept: i64, idle: i64, callers: i64) -> Reply {
    let keys = [&format!("replay:{:x}:asks", desk.sender), "state", "log:calls", "seats"].map(|name| desk.key(name));
    let number = must(i64::try_from(desk.number));
    desk.number += 1;
    let header = [number, 0, desk.known, 0, 250_000, 0, 8, 1, 1, 0];
    let (log, seats) = ([1, 0, remembered[0], remembered[1], 0], [LEASE, kept, idle, 3]);
    let runs = if callers > 0 { vec![callers, -1, 1] } else { Vec::new() };
    desk.run("book", &keys, &[&header[..], &log, &seats, &[0], &runs].concat())
}

/// What is said from the flags on, times from now.
fn ask(desk: &mut Desk<'_>, kept: i64, idle: i64, callers: i64) -> Vec<i64> {
    let reply = try_ask(desk, kept, idle, callers);
    let Reply::Bulk(bytes) = &reply else { panic!("{reply:?}") };
    let integers: Vec<i64> = bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
    let now = integers[1];
    integers[2..].iter().map(|&integer| if integer >= now { integer - now } else { integer }).collect()
}

#[test]
fn an_answer_says_how_many_seats_may_be_kept_and_when_to_ask_for_more() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "answers", Some(NOW));
    // Flags, next, within, pause, cause, status, others, counted; seats to keep, when to ask again; verdict, start, callers.
    assert_eq!(ask(&mut desk, 0, 0, 2), [2, 0, 20_000, 0, 0, 0, 0, 0, ANY, 0, 1, 0, 2]);
    assert_eq!(ask(&mut desk, 2, 0, 2), [2, 250_000, 20_000, 0, 0, 0, 0, 0, ANY, 250_000, 1, 0, 1]);
    desk.sender = 2;
    assert_eq!(ask(&mut desk, 0, 0, 1), [2, 50_000, 20_000, 0, 0, 0, 0, 0, 4, 50_000]);
    desk.sender = 1;
    assert_eq!(
        ask(&mut desk, 3, 1, 1),
        [2, 0, 20_000, 0, 0, 0, 0, 0, 2, 0, 1, 0, 1],
        "one of three is to go to the other"
    );
    desk.sender = 3;
    assert_eq!(ask(&mut desk, 0, 0, 0), [0, 0, 20_000, 0, 0, 0, 0, 0, 1, 0], "who wants none leaves no trace");
}

#[test]
fn the_key_of_seats_outlasts_the_last_lease_by_eleven_seconds_and_is_gone_with_the_last_seat() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "lives", None);
    assert_eq!(granted(&ask(&mut desk, 0, 0, 2)), 2);
    let left = desk.int("PTTL", "seats");
    assert!((LEASE / 1_000 + LEAP - 1_000..=LEASE / 1_000 + LEAP + 1).contains(&left), "{left} ms");
    assert_eq!(desk.int("EXISTS", "log:calls"), 0, "a log without terms keeps nothing");
    desk.sender = 2;
    assert_eq!(granted(&ask(&mut desk, 0, 0, 2)), 1);
    ask(&mut desk, 0, 0, 0);
    desk.sender = 1;
    assert_eq!(desk.int("EXISTS", "seats"), 1);
    ask(&mut desk, 0, 0, 0);
    assert_eq!(desk.int("EXISTS", "seats"), 0);
}

#[test]
fn the_key_of_seats_tells_a_roll_call_for_as_long_as_anybody_says_what_came_before_it() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "roll-call", None);
    let time = match server.command(&["TIME"]) {
        Ok(Reply::Array(parts)) => parts[0].text().and_then(|text| text.parse::<i64>().ok()).unwrap() * SECOND,
        other => panic!("{other:?}"),
    };
    let reply = try_ask_of(&mut desk, [900, time], 0, 0, 0);
    assert!(matches!(reply, Reply::Bulk(_)), "{reply:?}");
    // 71 s, and 11 s in case that the clock leaps ahead.
    let left = desk.int("PTTL", "seats");
    assert!((70_000 + LEAP..=71_001 + LEAP).contains(&left), "{left} ms");
    assert_eq!(granted(&ask(&mut desk, 0, 0, 2)), 0, "no seat is given");
    desk.of("DEL", "seats", &[]);
    assert_eq!(granted(&ask(&mut desk, 0, 0, 2)), 2, "but where it is gone, and nobody remembers");
}

fn granted(said: &[i64]) -> i64 {
    said[10..].chunks(3).filter(|answer| answer[0] == 1).map(|answer| answer[2]).sum()
}

#[test]
fn seats_that_cannot_be_read_are_an_error_and_nothing_is_booked() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "garbage", Some(NOW));
    for garbage in ["mine", "", "\u{1}", "\u{91}\u{91}\u{1}"] {
        desk.of("SET", "seats", &[garbage]);
        let reply = try_ask(&mut desk, 0, 0, 1);
        assert!(matches!(&reply, Reply::Error(words) if words.starts_with("GARBAGE ")), "{garbage:?} {reply:?}");
        assert_eq!(desk.int("EXISTS", "replay:1:asks"), 0);
    }
    desk.of("DEL", "seats", &[]);
    desk.of("RPUSH", "seats", &["mine"]);
    let reply = try_ask(&mut desk, 0, 0, 1);
    assert!(matches!(&reply, Reply::Error(words) if words.starts_with("WRONGTYPE ")), "{reply:?}");
    desk.of("DEL", "seats", &[]);
    assert_eq!(granted(&ask(&mut desk, 0, 0, 1)), 1, "deleted, it works again");
}

#[test]
fn of_who_does_not_say_how_many_seats_there_are_it_is_not_known() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "parts", Some(NOW));
    let enter =
        "redis.call('SET', KEYS[1], cmsgpack.pack({ { '2:asks', 1, ARGV[1] + 0, 0, 0, 0, tonumber(ARGV[2]) } }))";
    for (named, seats) in [("", 2), ("9", 2), ("2", 1), ("1", 0)] {
        let (key, lapse) = (desk.key("seats"), (NOW + SECOND).to_string());
        must(server.command(&["EVAL", enter, "1", &key, &lapse, named]));
        assert_eq!(granted(&ask(&mut desk, 0, 0, 3)), seats, "{named:?}");
        desk.of("DEL", "seats", &[]);
    }
}

#[test]
fn a_log_that_counts_seats_is_none() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "named", Some(NOW));
    let logs = [("seats", &[(4, SECOND)][..])];
    assert_eq!(desk.book(&logs, &[(4, None, &[1])]), [NOW, 0, 1, 0, 4]);
    assert_eq!(desk.int("LLEN", "log:seats"), 4);
    assert_eq!(granted(&ask(&mut desk, 0, 0, 4)), 3);
}
