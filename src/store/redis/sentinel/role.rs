//! What a server answers to `ROLE`. Pure.

use redis::Value;

use crate::store::redis::address::Address;

/// What a server takes itself for.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum Role {
    Primary(Lead),
    /// Of another, and what it has to do with that at present.
    Replica(Contact),
}

/// What a primary says of itself.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Lead {
    /// How much was written there.
    pub(super) written: i64,
    /// Who follows it.
    pub(super) replicas: Vec<Follower>,
}

/// A replica, and how much of what was written it is known to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Follower {
    pub(super) address: Address,
    pub(super) has: i64,
}

/// What a replica has to do with its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum Contact {
    /// It gets what is written.
    Follows,
    /// It is in touch with it, and lacks all data yet.
    Begins,
    None,
}

impl Lead {
    pub(in crate::store::redis) const fn written(&self) -> i64 {
        self.written
    }

    /// Whether that server follows it.
    pub(super) fn names(&self, replica: &Address) -> bool {
        self.replicas.iter().any(|one| one.address == *replica)
    }

    /// How many replicas are known to have so much.
    pub(in crate::store::redis) fn replicas_with(&self, written: i64) -> usize {
        self.replicas.iter().filter(|replica| replica.has >= written).count()
    }
}

impl Role {
    pub(in crate::store::redis) fn of(answer: &Value) -> Option<Self> {
        match items(answer)? {
            [name, written, replicas] if text(name)? == "master" => {
                let replicas = items(replicas)?.iter().map(follower).collect::<Option<_>>()?;
                Some(Self::Primary(Lead { written: int(written)?, replicas }))
            }
            [name, _, _, contact, ..] if text(name)? == "slave" => {
                let contact = match text(contact)?.as_str() {
                    "connected" => Contact::Follows,
                    "handshake" | "sync" => Contact::Begins,
                    _ => Contact::None,
                };
                Some(Self::Replica(contact))
            }
            _ => None,
        }
    }

    pub(in crate::store::redis) fn into_lead(self) -> Option<Lead> {
        if let Self::Primary(lead) = self { Some(lead) } else { None }
    }
}

fn follower(said: &Value) -> Option<Follower> {
    let [host, port, has] = items(said)? else { return None };
    Some(Follower { address: address(host, port)?, has: int(has)? })
}

pub(super) fn address(host: &Value, port: &Value) -> Option<Address> {
    Some(Address::new(&text(host)?, int(port)?.try_into().ok()?))
}

pub(super) fn items(value: &Value) -> Option<&[Value]> {
    if let Value::Array(items) = value { Some(items) } else { None }
}

fn text(value: &Value) -> Option<String> {
    redis::from_redis_value_ref(value).ok()
}

fn int(value: &Value) -> Option<i64> {
    redis::from_redis_value_ref(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_primary_says_what_was_written_and_who_has_it() {
        let replica = |port: &str, has: &str| Value::Array(vec![said("10.0.0.2"), said(port), said(has)]);
        let answer = |replicas| Value::Array(vec![said("master"), Value::Int(42), Value::Array(replicas)]);
        let follower = |port, has| Follower { address: Address::new("10.0.0.2", port), has };
        let lead = |replicas| Some(Role::Primary(Lead { written: 42, replicas }));
        assert_eq!(Role::of(&answer(vec![])), lead(vec![]));
        let replicas = vec![replica("1", "42"), replica("2", "7")];
        assert_eq!(Role::of(&answer(replicas)), lead(vec![follower(1, 42), follower(2, 7)]));
        for (port, has) in [("x", "1"), ("65536", "1"), ("1", ""), ("1", "far")] {
            assert_eq!(Role::of(&answer(vec![replica("1", "42"), replica(port, has)])), None, "{port} {has}");
        }
    }

    #[test]
    fn a_replica_says_whether_it_follows() {
        let answer =
            |contact: &str| Value::Array(vec![said("slave"), said("h"), Value::Int(1), said(contact), Value::Int(-1)]);
        for (word, contact) in [
            ("connected", Contact::Follows),
            ("sync", Contact::Begins),
            ("handshake", Contact::Begins),
            ("connect", Contact::None),
            ("connecting", Contact::None),
            ("unknown", Contact::None),
        ] {
            assert_eq!(Role::of(&answer(word)), Some(Role::Replica(contact)), "{word}");
        }
    }

    #[test]
    fn anything_else_is_no_role() {
        let sentinel = Value::Array(vec![said("sentinel"), Value::Array(vec![said("mymaster")])]);
        for senseless in [Value::Nil, Value::Int(1), Value::Array(vec![]), Value::Array(vec![said("master")]), sentinel]
        {
            assert_eq!(Role::of(&senseless), None, "{senseless:?}");
        }
    }
}
