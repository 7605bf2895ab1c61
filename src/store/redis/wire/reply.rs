//! What the scripts answer.

use std::time::Duration;

use redis::Value;

use super::presence;
use crate::error::StoreError;
use crate::ledger::{
    Answer, Ask, Body, Cause, Grant, Learned, Log, LogUsage, Looked, MAX_MEMORY, Message, PauseUsage, Paused, Reason,
    Reply, ScopeId, Seated, Slower, Stamp, Term, TermUsage, Verdict,
};

/// Of a short reply, so many bits are the message's number.
const NUMBER_BITS: u32 = 12;
/// Flags of a grant: everybody starts at one time and there is nothing else to say; and the message is remembered.
const ALL_START: i64 = 1;
const REMEMBERED: i64 = 2;
/// And nobody starts, as data was lost.
const LOST: i64 = 4;
/// And others name other terms.
const BESIDE_OTHERS: i64 = 8;
/// And a loss was seen that the sender has not heard of.
const TELLS_LOSS: i64 = 16;
/// Calls come slower since refusals.
const SLOWER: i64 = 32;
/// Log time is not what the store's clock shows, by which calendar windows begin.
const CORRECTED: i64 = 64;
/// Who takes less than the first that waits could start before it.
const NEXT_SMALLER: i64 = 128;

/// Reads the answer to a message. One that is another message's, after a lost reply, is none: what it says of the time would
/// mislead for long.
pub(crate) fn reply(message: &Message, value: &Value) -> Result<Reply, StoreError> {
    let number = if message.id.is_nobodys() { 0 } else { message.id.number };
    if let (Value::Int(short), Body::Ask(_)) = (value, &message.body) {
        return all_now(message, number, *short).map(Reply::Grant).ok_or_else(StoreError::senseless);
    }
    let integers = integers(value).ok_or_else(StoreError::senseless)?;
    let (header, rest) = integers.split_first_chunk::<2>().ok_or_else(StoreError::senseless)?;
    if u64::try_from(header[0]) != Ok(number) {
        return Err(StoreError::senseless());
    }
    let now = Stamp::from_micros(header[1]);
    let read = match &message.body {
        Body::Ask(ask) => grant(ask, now, rest).map(Reply::Grant),
        Body::Pause { .. } => paused(now, rest).map(Reply::Paused),
        Body::Release { .. } | Body::SlowDown { .. } | Body::Reset { .. } => {
            rest.is_empty().then_some(Reply::Done(now))
        }
        Body::Look { scopes, .. } => looked(now, 1 + scopes.len(), rest).map(Reply::Looked),
        Body::Report { .. } => learned(rest).map(Reply::Learned),
        Body::Usage { logs, seats } => usage(logs, seats.len(), rest),
        Body::Renew(_) => renewed(rest),
        Body::Processes { .. } => presence::read(now, rest).map(Reply::Processes),
    };
    read.ok_or_else(StoreError::senseless)
}

/// Everybody starts now: a time since the newest that the message knew, and the last bits of its number.
fn all_now(message: &Message, number: u64, short: i64) -> Option<Grant> {
    let elapsed = short >> NUMBER_BITS;
    let same = u64::try_from(short).ok()? & ((1 << NUMBER_BITS) - 1) == number & ((1 << NUMBER_BITS) - 1);
    let known = message.known.map_or(0, Stamp::as_micros);
    same.then(|| Grant::all_now(Stamp::from_micros(known.saturating_add(elapsed))))
}

fn grant(ask: &Ask, now: Stamp, rest: &[i64]) -> Option<Grant> {
    let (&[flags, next], rest) = rest.split_first_chunk::<2>()?;
    let next = Stamp::from_micros(next);
    // Nobody would ever be told that it may send. A clock that was set back a little is no lie.
    let is_far = |start: Stamp| start > now.plus(ask.reach()).plus(MAX_MEMORY);
    if flags & ALL_START != 0 {
        let all = Grant { next, ..Grant::all_now(now) };
        return (rest.is_empty() && !is_far(next)).then_some(all);
    }
    let (&[within, stop, cause, status, contenders], rest) = rest.split_first_chunk::<5>()?;
    let (counted, answers) = rest.split_at_checked(ask.scopes().count())?;
    let (seats, answers) = answers.split_at_checked(if ask.seats.is_some() { 2 } else { 0 })?;
    let seats = match *seats {
        [keep, again] => Some(Seated::new(u32::try_from(keep).ok()?, time(again)?)),
        _ => None,
    };
    let (other_term, answers) = answers.split_at_checked(if flags & BESIDE_OTHERS == 0 { 0 } else { 3 })?;
    let other_term = match *other_term {
        [place, quota, span] => {
            let place = usize::try_from(place).ok().filter(|place| (1..=ask.logs.len()).contains(place))?;
            Some(Box::new((place - 1, other_term_of(quota, span)?)))
        }
        _ => None,
    };
    let (loss, answers) = answers.split_at_checked(if flags & TELLS_LOSS == 0 { 0 } else { 2 })?;
    let loss = match *loss {
        [seen, survived] => Some(Box::new((Stamp::from_micros(seen), u64::try_from(survived).ok()?))),
        _ => None,
    };
    let (slower, answers) = answers.split_at_checked(if flags & SLOWER == 0 { 0 } else { 3 })?;
    let slower = match *slower {
        [rate, span, left] => Some(Box::new(slower_of(rate, span, left)?)),
        _ => None,
    };
    let (corrected, answers) = answers.split_at_checked(usize::from(flags & CORRECTED != 0))?;
    let (next_smaller, answers) = answers.split_at_checked(if flags & NEXT_SMALLER == 0 { 0 } else { 2 })?;
    let next_smaller = match *next_smaller {
        [start, place] => {
            let place = usize::try_from(place).ok().filter(|&place| place < ask.runs.len())?;
            Some((Stamp::from_micros(start), place))
        }
        _ => None,
    };
    let answer = |part: &[i64]| match *part {
        [verdict, start, callers] => {
            let (callers, start) = (u32::try_from(callers).ok()?, Stamp::from_micros(start));
            let verdict = match verdict {
                0 => Verdict::Refused,
                1 if !is_far(start) => Verdict::Granted,
                2 => Verdict::Waits,
                3 if !is_far(start) => Verdict::Looks,
                _ => return None,
            };
            Some(Answer::new(callers, start, verdict))
        }
        _ => None,
    };
    let answers = answers.chunks(3).map(answer).collect::<Option<Vec<_>>>()?;
    let answered = answers.iter().map(|answer| u64::from(answer.callers)).sum::<u64>();
    let (stop, reason) = (Stamp::from_micros(stop), Reason::new(cause_of(cause)?, u16::try_from(status).ok()?));
    let grant = Grant {
        next_smaller,
        within: Duration::from_micros(u64::try_from(within).ok()?),
        paused: (stop > now).then_some((stop, reason)),
        slower,
        contenders: u32::try_from(contenders).ok()?,
        counted: counted.iter().copied().map(Stamp::from_micros).collect(),
        seats,
        other_term,
        remembered: flags & REMEMBERED != 0,
        lost: flags & LOST != 0,
        loss,
        corrected: corrected.first().copied().unwrap_or(0),
        ..Grant::new(now, answers, next)
    };
    (answered <= u64::from(ask.callers())).then_some(grant)
}

/// A term that others name: at most so many units in any so many microseconds.
fn other_term_of(quota: i64, span: i64) -> Option<Term> {
    Some(Term::new(u32::try_from(quota).ok().filter(|quota| *quota > 0)?, Some(span).filter(|span| *span >= 0)?))
}

fn slower_of(rate: i64, span: i64, left: i64) -> Option<Slower> {
    Some(Slower::new(u32::try_from(rate).ok()?, span, time(left)?))
}

fn cause_of(code: i64) -> Option<Cause> {
    match code {
        0 => Some(Cause::Overload),
        1 => Some(Cause::Refusal),
        2 => Some(Cause::Spend),
        3 => Some(Cause::Ban),
        _ => None,
    }
}

fn paused(now: Stamp, rest: &[i64]) -> Option<Paused> {
    match *rest {
        [until, first @ (0 | 1), rate] => {
            let paused = Paused::new(now, Stamp::from_micros(until), first == 1);
            u32::try_from(rate).ok().map(|rate| paused.leaving(rate))
        }
        _ => None,
    }
}

fn looked(now: Stamp, count: usize, rest: &[i64]) -> Option<Looked> {
    let (paused, released) = rest.split_at_checked(2 * count)?;
    let paused = paused.chunks_exact(2).map(|part| {
        let (stop, cause) = (Stamp::from_micros(part[0]), cause_of(part[1])?);
        Some((stop > Stamp::NEVER).then_some((stop, cause)))
    });
    let (released, rest) = released.as_chunks::<4>();
    let scope = |parts: &[i64; 4]| {
        if parts == &[-1; 4] {
            return Some(None);
        }
        ScopeId::from_parts(parts).map(Some)
    };
    let released = released.iter().map(scope).collect::<Option<_>>()?;
    rest.is_empty().then_some(Looked::new(now, released, paused.collect::<Option<_>>()?))
}

fn renewed(rest: &[i64]) -> Option<Reply> {
    match *rest {
        [processes, described @ (0 | 1)] => {
            Some(Reply::Renewed { processes: u32::try_from(processes).ok()?, is_described: described == 1 })
        }
        _ => None,
    }
}

fn learned(rest: &[i64]) -> Option<Learned> {
    match *rest {
        [outside] => Some(Learned::new(u32::try_from(outside).ok()?)),
        _ => None,
    }
}

fn usage(logs: &[Log], seats: usize, rest: &[i64]) -> Option<Reply> {
    let mut rest = rest;
    let mut of_log = |log: &Log| {
        let (&[left, told, since, cause, status, rate, quota, span, ref slower @ ..], terms) =
            rest.split_first_chunk::<11>()?;
        let &[lowered, longest, lasts] = slower;
        let (terms, after) = terms.split_at_checked(5 * log.terms.len())?;
        rest = after;
        let status = Some(u16::try_from(status).ok()?).filter(|status| *status > 0);
        let pause = PauseUsage::new(time(left)?, time(told)?, time(since)?, cause_of(cause)?, status);
        let terms = terms.chunks_exact(5).map(term_usage).collect::<Option<_>>()?;
        let paused = (left > 0).then_some(pause);
        let other_term = if quota == 0 { None } else { Some(other_term_of(quota, span)?) };
        let slower = if lasts == 0 { None } else { Some(slower_of(lowered, longest, lasts)?) };
        Some(LogUsage { paused, rate: u32::try_from(rate).ok()?, slower, other_term, ..LogUsage::new(terms) })
    };
    let logs = logs.iter().map(&mut of_log).collect::<Option<_>>()?;
    let seats_taken: Vec<u32> = rest.iter().map(|&taken| u32::try_from(taken).ok()).collect::<Option<_>>()?;
    (seats_taken.len() == seats).then_some(Reply::Usage { logs, seats: seats_taken })
}

fn term_usage(part: &[i64]) -> Option<TermUsage> {
    let &[quota, used, outside, next, outside_for] = part else { return None };
    let units = |units: i64| u32::try_from(units).ok();
    let outside_for = if outside_for == -1 { None } else { Some(time(outside_for)?) };
    Some(TermUsage::new(units(quota)?, units(used)?, units(outside)?, time(next)?).with_outside_for(outside_for))
}

fn time(micros: i64) -> Option<Duration> {
    Some(Duration::from_micros(u64::try_from(micros).ok()?))
}

/// Integers of eight bytes, the lowest first.
fn integers(value: &Value) -> Option<Vec<i64>> {
    let Value::BulkString(bytes) = value else { return None };
    let (integers, rest) = bytes.as_chunks::<8>();
    rest.is_empty().then(|| integers.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StoreErrorKind;
    use crate::ledger::{MessageId, Pause, Report, Run, SeatLimit, Seats, Term};

    const fn at(micros: i64) -> Stamp {
        Stamp::from_micros(micros)
    }

    fn message(body: impl Into<Body>) -> Message {
        Message { known: Some(at(1_000)), ..Message::new("up", MessageId::new(255, "ab", 5_000), body) }
    }

    fn ask() -> Message {
        let log = Log::new("calls", [Term::new(5, 1_000)]).of(Some(ScopeId::from_bits(1)));
        message(Ask::new([log], vec![Run::new(3, [2])]))
    }

    fn ints(values: &[i64]) -> Value {
        Value::BulkString(values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    #[test]
    fn a_grant_is_read_back() {
        let answers = [2, 1_150, 1, 1, 1_100, 1, 0, 1_170, 1];
        let value = ints(&[&[5_000, 1_100, 2, 1_150, 250_000, 1_109, 3, 403, 3, 9_000], &answers[..]].concat());
        let grant = reply(&ask(), &value).unwrap().grant().unwrap();
        let expected = [Answer::waiting(1, at(1_150)), Answer::granted(1, at(1_100)), Answer::refused(1, at(1_170))];
        assert_eq!(grant.answers, expected);
        assert_eq!(
            (grant.now, grant.next, grant.paused),
            (at(1_100), at(1_150), Some((at(1_109), Reason::new(Cause::Ban, 403))))
        );
        assert_eq!((grant.contenders, grant.counted, grant.remembered), (3, vec![at(9_000)], true));
        assert_eq!(grant.within, Duration::from_millis(250));
    }

    #[test]
    fn what_is_said_of_seats_is_read_back() {
        let Message { body: Body::Ask(ask), .. } = ask() else { unreachable!() };
        let seats = Some(Seats::new([SeatLimit::new(None, 25)]));
        let message = message(Ask { seats, ..ask });
        let told = |said: &[i64]| reply(&message, &ints(&[&[5_000, 1_100, 2, 0, 0, 0, 0, 0, 0, 0], said].concat()));
        let grant = told(&[13, 50_000, 1, 1_100, 2]).unwrap().grant().unwrap();
        assert_eq!(grant.seats, Some(Seated::new(13, Duration::from_millis(50))));
        assert_eq!(grant.answers, [Answer::granted(2, at(1_100))]);
        for lie in [&[13][..], &[-1, 0], &[13, -1], &[1 << 32, 0]] {
            assert_eq!(told(lie).unwrap_err().kind(), StoreErrorKind::Malformed, "{lie:?}");
        }
    }

    #[test]
    fn the_shortest_answer_names_its_message_and_its_time() {
        let short = |elapsed: i64, number: i64| reply(&ask(), &Value::Int(elapsed * 4_096 + number));
        assert_eq!(short(70, 5_000 % 4_096).unwrap(), Reply::Grant(Grant::all_now(at(1_070))));
        assert_eq!(short(70, 5).unwrap_err().kind(), StoreErrorKind::Malformed, "another message's");
        let long = reply(&ask(), &ints(&[5_000, 1_090, 3, 1_070])).unwrap();
        assert_eq!(long, Reply::Grant(Grant { next: at(1_070), ..Grant::all_now(at(1_090)) }), "said again");
    }

    #[test]
    fn a_server_that_lies_is_an_error() {
        let answered = |answers: &[i64]| ints(&[&[5_000, 1, 2, 0, 0, 0, 0, 0, 0, 0], answers].concat());
        let lies = [
            Value::Nil,
            Value::Int(-3),
            Value::SimpleString("OK".to_owned()),
            Value::BulkString(b"eleven byte".to_vec()),
            Value::Array(vec![Value::Int(1), Value::Nil]),
            ints(&[]),
            ints(&[5_000]),
            ints(&[5_000, 1, 2]),
            ints(&[5_001, 1, 2, 0, 0, 0, 0, 0, 0, 0]),
            ints(&[5_000, 1, 2, 0, 0, 0, 4, 0, 0, 0]),
            ints(&[5_000, 1, 2, 0, 0, 0, 0, 65_536, 0, 0]),
            ints(&[5_000, 1, 2, 0, 0, 0, 0, 0, -1, 0]),
            ints(&[5_000, 1, 2, 0, -1, 0, 0, 0, 0, 0]),
            ints(&[5_000, 1, 3, 0, 7]),
            ints(&[5_000, 1, 3, 60_250_002]),
            answered(&[1]),
            answered(&[4, 0, 1]),
            answered(&[1, 0, -1]),
            answered(&[1, 0, 4]),
            answered(&[1, 60_250_002, 1]),
            answered(&[1, i64::MAX, 1]),
        ];
        for lie in lies {
            assert_eq!(reply(&ask(), &lie).unwrap_err().kind(), StoreErrorKind::Malformed, "{lie:?}");
        }
        let extreme = [5_000, i64::MAX, 2, i64::MAX, i64::MAX, i64::MAX, 0, 0, 0, i64::MAX, 1, i64::MIN, 1];
        assert!(reply(&ask(), &ints(&extreme)).is_ok(), "saturates");
    }

    #[test]
    fn lies_about_anything_else_are_errors_too() {
        let pause = message(Body::Pause { scope: None, pause: Pause::new(Duration::ZERO) });
        let report = message(Body::Report { log: Log::new("calls", []), report: Report::default() });
        let usage = message(Body::usage([Log::new("calls", [Term::new(5, 1_000)])]));
        assert_eq!(
            reply(&pause, &ints(&[5_000, 7, 9, 1, 640_000])).unwrap(),
            Reply::Paused(Paused::new(at(7), at(9), true).leaving(640_000))
        );
        assert_eq!(reply(&report, &ints(&[5_000, 7, 9])).unwrap(), Reply::Learned(Learned::new(9)));
        let used = |outside_for: Option<u64>| {
            let used = TermUsage::new(5, 9, 1, Duration::from_micros(4));
            let logs = vec![LogUsage::new(vec![used.with_outside_for(outside_for.map(Duration::from_micros))])];
            Reply::Usage { logs, seats: Vec::new() }
        };
        let told = |pause: [i64; 5], rate: i64, known: i64| {
            ints(&[&[5_000, 7], &pause[..], &[rate, 0, 0, rate, 1_000, pause[2], 5, 9, 1, 4, known]].concat())
        };
        let read = |pause, rate, known| reply(&usage, &told(pause, rate, known));
        assert_eq!(read([0; 5], 1_000_000, -1).unwrap(), used(None));
        assert_eq!(read([0; 5], 1_000_000, 3).unwrap(), used(Some(3)));
        let of_log = read([9, 12, 4, 3, 430], 500_000, -1).unwrap().usage().unwrap().remove(0);
        let [left, told, since] = [9, 12, 4].map(Duration::from_micros);
        assert_eq!(of_log.paused, Some(PauseUsage::new(left, told, since, Cause::Ban, Some(430))));
        assert_eq!((of_log.rate, of_log.slower), (500_000, Some(Slower::new(500_000, 1_000, since))));
        assert!(read([0; 5], 1_000_000, -2).is_err() && read([9, 12, 4, 4, 0], 1, -1).is_err());
        for message in [pause, report, usage] {
            for lie in [Value::Int(5), ints(&[5_000, 7]), ints(&[5_000, 7, -9, 7]), ints(&[5_000, 7, 2, -1])] {
                assert!(reply(&message, &lie).is_err(), "{message:?} {lie:?}");
            }
        }
    }
}
