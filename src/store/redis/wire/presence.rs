//! What a process says of itself, in integers that the scripts keep as they are.

use std::sync::Arc;
use std::time::Duration;

use super::Integers;
use crate::ledger::{Presence, ProcessSeen, Processes, Renewal, ScopeId, ScopePresence, Stamp, micros};

/// So many bytes of a text stand in one integer, which is below 2⁵³.
const BYTES: usize = 6;
/// Integers that are said of a scope.
const OF_SCOPE: usize = 7;
/// Integers before what a process says of itself, as they are stored.
const HEADER: usize = 5;

/// Writes the message that a process is there.
pub(super) fn write(integers: &mut Integers, sender: u64, renewal: &Renewal) {
    let Renewal { presence, lasting, about, .. } = renewal;
    integers.push(micros(*lasting)).push((HEADER + OF_SCOPE * presence.scopes.len()) as u64);
    halves(integers, sender);
    integers.push(presence.weight).push(presence.callers).push(micros(presence.oldest));
    halves(integers, presence.described);
    for of in &presence.scopes {
        integers.push(of.kind).push(of.callers).push(micros(of.oldest));
        for part in of.scope.parts() {
            integers.push(part);
        }
    }
    if let Some(text) = about {
        halves(integers, presence.described);
        integers.push(text.len() as u64);
        for bytes in text.as_bytes().chunks(BYTES) {
            integers.push(bytes.iter().rev().fold(0, |word: u64, &byte| word << 8 | u64::from(byte)));
        }
    }
}

fn halves(integers: &mut Integers, whole: u64) {
    integers.push(whole >> 32).push(whole & u64::from(u32::MAX));
}

/// Reads which processes there are.
pub(super) fn read(now: Stamp, rest: &[i64]) -> Option<Processes> {
    let (&count, mut rest) = rest.split_first()?;
    let count = usize::try_from(count).ok()?;
    let (mut all, mut descriptions) = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        let (&[seen, _, upper, lower, size], behind) = rest.split_first_chunk::<HEADER>()?;
        let (says, behind) = behind.split_at_checked(usize::try_from(size).ok()?)?;
        let (seen, name) = (Stamp::from_micros(seen), whole(upper, lower)?);
        if all.len() < count {
            all.push(ProcessSeen::new(name, seen, presence(says)?));
        } else {
            descriptions.push((name, seen, text(says)?));
        }
        rest = behind;
    }
    (all.len() == count).then(|| Processes::new(now, all, descriptions))
}

fn presence(says: &[i64]) -> Option<Presence> {
    let (&[weight, callers, oldest, upper, lower], scopes) = says.split_first_chunk::<HEADER>()?;
    let (scopes, rest) = scopes.as_chunks::<OF_SCOPE>();
    let of_scope = |&[kind, callers, oldest, parts @ ..]: &[i64; OF_SCOPE]| {
        let scope = ScopeId::from_parts(&parts)?;
        let of = ScopePresence::new(u32::try_from(kind).ok()?, scope);
        Some(ScopePresence { callers: u32::try_from(callers).ok()?, oldest: time(oldest)?, ..of })
    };
    let presence = Presence {
        weight: u32::try_from(weight).ok()?,
        callers: u32::try_from(callers).ok()?,
        oldest: time(oldest)?,
        described: whole(upper, lower)?,
        scopes: scopes.iter().map(of_scope).collect::<Option<_>>()?,
    };
    rest.is_empty().then_some(presence)
}

fn text(says: &[i64]) -> Option<Arc<str>> {
    let (&length, words) = says.split_first()?;
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes().into_iter().take(BYTES)).collect();
    let length = usize::try_from(length).ok().filter(|length| *length <= bytes.len())?;
    bytes.truncate(length);
    String::from_utf8(bytes).ok().map(Into::into)
}

fn whole(upper: i64, lower: i64) -> Option<u64> {
    Some(u64::from(u32::try_from(upper).ok()?) << 32 | u64::from(u32::try_from(lower).ok()?))
}

fn time(micros: i64) -> Option<Duration> {
    u64::try_from(micros).ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the scripts keep what a message says, and tell it.
    fn stored(renewal: &Renewal) -> Vec<i64> {
        let mut integers = Integers::new(Vec::new());
        write(&mut integers, u64::MAX - 9, renewal);
        let said = integers.read();
        let (of_process, of_description) = said[2..].split_at(2 + usize::try_from(said[1]).unwrap());
        let mut reply = vec![1, 70, 90, of_process[0], of_process[1], said[1]];
        reply.extend(&of_process[2..]);
        if let [upper, lower, rest @ ..] = of_description {
            reply.extend([60, 99, *upper, *lower, i64::try_from(rest.len()).unwrap()]);
            reply.extend(rest);
        }
        reply
    }

    #[test]
    fn what_is_said_is_read_as_it_was() {
        let scope = ScopeId::from_bits(0xfedc_ba98_7654_3210_0011_2233_8899_aabb);
        let presence = Presence {
            weight: 4,
            callers: 1_000,
            oldest: Duration::from_micros(123_456_789),
            described: 0xfedc_ba98_7654_3210,
            scopes: vec![ScopePresence { callers: 3, ..ScopePresence::new(2, scope) }, ScopePresence::new(0, scope)],
        };
        let renewal = Renewal::new("up", presence.clone(), Duration::from_secs(15));
        let at = Stamp::from_micros;
        for about in [None, Some(""), Some("100/s"), Some("sechs…"), Some("genau zwölf")] {
            let renewal = Renewal { about: about.map(Into::into), ..renewal.clone() };
            let process = ProcessSeen::new(u64::MAX - 9, at(70), presence.clone());
            let descriptions = about.map(|text| (presence.described, at(60), text.into())).into_iter().collect();
            let read = read(at(80), &stored(&renewal));
            assert_eq!(read, Some(Processes::new(at(80), vec![process], descriptions)), "{about:?}");
        }
    }

    #[test]
    fn no_answer_makes_the_reader_fail_in_another_way() {
        let renewal = Renewal::new("up", Presence::default(), Duration::ZERO).about("100/s");
        let whole = stored(&renewal);
        for length in 0..whole.len() {
            let cut = read(Stamp::NEVER, &whole[..length]);
            assert!(cut.is_none_or(|cut| cut.descriptions.is_empty()), "{length}");
        }
        for place in 0..whole.len() {
            for wrong in [-1, i64::MAX, i64::MIN] {
                let mut spoilt = whole.clone();
                spoilt[place] = wrong;
                let _ = read(Stamp::NEVER, &spoilt);
            }
        }
    }
}
