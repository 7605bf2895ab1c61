//! Which node has which keys. Pure.

use std::collections::HashMap;

use redis::Value;

use super::redirect::UNKNOWN;
use crate::store::redis::address::Address;

/// Slots of a Cluster, by which keys are spread over its nodes.
const SLOTS: usize = 16_384;

/// The slot of an upstream's keys: they carry its name between braces, and that alone says in which slot a key lies.
pub(super) fn slot_of(upstream: &str) -> usize {
    usize::from(crc16::State::<crc16::XMODEM>::calculate(upstream.as_bytes())) % SLOTS
}

/// Slots that lie side by side on one node, the last one included.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: usize,
    pub(super) last: usize,
    /// `None` where it is not said yet where that is.
    pub(super) master: Option<Address>,
}

/// What a node answers to `CLUSTER SLOTS`; where it names no host, that of the node is meant.
pub(super) fn ranges(answer: &Value, answering: &Address) -> Option<Vec<Range>> {
    items(answer)?.iter().map(|range| read(range, answering)).collect()
}

fn read(range: &Value, answering: &Address) -> Option<Range> {
    let [first, last, master, ..] = items(range)? else { return None };
    let [host, port, more @ ..] = items(master)? else { return None };
    let place = |slot: &Value| usize::try_from(int(slot)?).ok().filter(|&slot| slot < SLOTS);
    let host: Option<String> = redis::from_redis_value_ref(host).ok()?;
    let host = match host.as_deref() {
        Some(UNKNOWN) => ip(more),
        host => Some(host.unwrap_or_default().to_owned()),
    };
    let port = u16::try_from(int(port)?).ok()?;
    let master = host.map(|host| answering.beside(&host, port));
    Some(Range { first: place(first)?, last: place(last)?, master })
}

/// What is said of a node behind its id, where that is not how it is to be reached.
fn ip(more: &[Value]) -> Option<String> {
    let said: HashMap<String, String> = redis::from_redis_value_ref(more.get(1)?).ok()?;
    said.get("ip").filter(|&ip| ip != UNKNOWN).cloned()
}

fn items(value: &Value) -> Option<&[Value]> {
    if let Value::Array(items) = value { Some(items) } else { None }
}

fn int(value: &Value) -> Option<i64> {
    if let Value::Int(int) = value { Some(*int) } else { None }
}

/// For each slot its node, by a number; nobody has it where there is none.
#[derive(Debug)]
pub(super) struct Owners(Vec<Option<u16>>);

impl Default for Owners {
    fn default() -> Self {
        Self(vec![None; SLOTS])
    }
}

impl Owners {
    pub(super) fn of(&self, slot: usize) -> Option<usize> {
        self.0.get(slot).copied().flatten().map(usize::from)
    }

    pub(super) fn are_complete(&self) -> bool {
        self.0.iter().all(Option::is_some)
    }

    pub(super) fn give(&mut self, first: usize, last: usize, node: usize) {
        let node = u16::try_from(node).ok();
        self.0.iter_mut().take(last.saturating_add(1)).skip(first).for_each(|owner| *owner = node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())])
    }

    fn range(first: i64, last: i64, nodes: impl IntoIterator<Item = Value>) -> Value {
        Value::Array([Value::Int(first), Value::Int(last)].into_iter().chain(nodes).collect())
    }

    fn host(name: &str) -> Value {
        Value::BulkString(name.as_bytes().to_vec())
    }

    #[test]
    fn an_upstream_lies_where_a_server_says() {
        // CLUSTER KEYSLOT of the names between braces, by Redis 7.0.15.
        for (upstream, slot) in [("up", 2_363), ("github", 10_239), ("billing.eu-1", 1_535), ("123456789", 12_739)] {
            assert_eq!(slot_of(upstream), slot, "{upstream}");
        }
    }

    #[test]
    fn ranges_are_read_with_their_masters() {
        let seed = Address::new("seed", 7);
        let answer = Value::Array(vec![
            range(0, 99, [node(host("10.0.0.1"), 1), node(host("10.0.0.2"), 2)]),
            range(100, 100, [node(host(""), 3)]),
            range(101, 16_383, [node(Value::Nil, 4)]),
        ]);
        let of = |first, last, host: &str, port| Range { first, last, master: Some(Address::new(host, port)) };
        let expected = [of(0, 99, "10.0.0.1", 1), of(100, 100, "seed", 3), of(101, 16_383, "seed", 4)];
        assert_eq!(ranges(&answer, &seed).as_deref(), Some(&expected[..]));
    }

    #[test]
    fn a_host_that_a_node_does_not_know_yet_is_its_ip_or_untold() {
        let seed = Address::new("seed", 7);
        let unknown = |metadata: Vec<Value>| {
            let id = Value::BulkString(b"id".to_vec());
            Value::Array([host("?"), Value::Int(1), id].into_iter().chain(metadata).collect())
        };
        let flat = |words: &[&str]| Value::Array(words.iter().map(|word| host(word)).collect());
        for (metadata, expected) in [
            (vec![flat(&["ip", "10.0.0.1"])], Some("10.0.0.1")),
            (vec![flat(&["hostname", "h", "ip", "10.0.0.1"])], Some("10.0.0.1")),
            (vec![Value::Map(vec![(host("ip"), host("10.0.0.1"))])], Some("10.0.0.1")),
            (vec![flat(&["ip", ""])], Some("seed")),
            (vec![flat(&["ip", "?"])], None),
            (vec![flat(&[])], None),
            (vec![Value::Nil], None),
            (Vec::new(), None),
        ] {
            let answer = Value::Array(vec![range(0, 99, [unknown(metadata)])]);
            let master = expected.map(|host| Address::new(host, 1));
            assert_eq!(ranges(&answer, &seed), Some(vec![Range { first: 0, last: 99, master }]), "{answer:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_no_range() {
        let seed = Address::new("seed", 7);
        for senseless in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, 1, [])]),
            Value::Array(vec![range(0, 1, [Value::Array(Vec::new())])]),
            Value::Array(vec![range(-1, 1, [node(host("h"), 1)])]),
            Value::Array(vec![range(0, 16_384, [node(host("h"), 1)])]),
            Value::Array(vec![range(0, 1, [node(host("h"), 65_536)])]),
        ] {
            assert_eq!(ranges(&senseless, &seed), None, "{senseless:?}");
        }
    }

    #[test]
    fn a_slot_has_the_node_that_it_was_given_last() {
        let mut owners = Owners::default();
        assert_eq!(owners.of(0), None);
        owners.give(0, SLOTS - 2, 0);
        assert!(!owners.are_complete());
        owners.give(SLOTS - 1, SLOTS - 1, 0);
        assert!(owners.are_complete());
        owners.give(100, 200, 1);
        owners.give(150, 150, 2);
        assert_eq!(
            [0, 99, 100, 149, 150, 151, 200, 201, SLOTS - 1].map(|slot| owners.of(slot).unwrap_or(9)),
            [0, 0, 1, 1, 2, 1, 1, 0, 0]
        );
        assert_eq!(owners.of(SLOTS), None);
    }
}
