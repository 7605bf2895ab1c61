//! Where a node of a Cluster sends a call that is not its own. Pure.

use std::sync::Arc;

use redis::RedisError;

use crate::store::redis::address::Address;

/// The host of a node that has not announced it yet, where it is to be reached by that.
pub(super) const UNKNOWN: &str = "?";

impl Address {
    /// A node that this one names; without a host it is on the same one.
    pub(super) fn beside(&self, host: &str, port: u16) -> Self {
        if host.is_empty() { Self { host: Arc::clone(&self.host), port } } else { Self::new(host, port) }
    }
}

/// Why a node did not act.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum Redirect {
    /// Another one has the slot.
    Moved(Target),
    /// Another one has these keys, but the slot is still on its way there.
    Ask(Target),
    /// Another one has the slot, or these keys, but this one does not know its host.
    Unnamed,
    /// The keys are on their way: some are here and some are there.
    Later,
}

/// A node as another names it; without a host it is on the other's.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Target {
    host: String,
    port: u16,
}

impl From<Address> for Target {
    fn from(address: Address) -> Self {
        Self { host: address.host.to_string(), port: address.port }
    }
}

impl Target {
    /// Where it is, by the node that named it.
    pub(super) fn beside(&self, naming: &Address) -> Address {
        naming.beside(&self.host, self.port)
    }
}

impl Redirect {
    /// What an error says of where to go; `None` where it is an error.
    pub(in crate::store::redis) fn of(error: &RedisError) -> Option<Self> {
        let target = || {
            let (_, address) = error.detail()?.split_once(' ')?;
            let (host, port) = address.trim().rsplit_once(':')?;
            Some(Target { host: host.to_owned(), port: port.parse().ok()? })
        };
        let to = |redirect: fn(Target) -> Self| {
            target().map(|target| if target.host == UNKNOWN { Self::Unnamed } else { redirect(target) })
        };
        match error.code()? {
            "MOVED" => to(Self::Moved),
            "ASK" => to(Self::Ask),
            "TRYAGAIN" => Some(Self::Later),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: &str, detail: &str) -> Option<Redirect> {
        Redirect::of(&redis::make_extension_error(code.to_owned(), Some(detail.to_owned())))
    }

    #[test]
    fn a_redirect_names_a_node() {
        let target = |host: &str, port| Target { host: host.to_owned(), port };
        assert_eq!(of("MOVED", "3999 10.0.0.1:6381"), Some(Redirect::Moved(target("10.0.0.1", 6_381))));
        assert_eq!(of("ASK", "3999 node.example:6381"), Some(Redirect::Ask(target("node.example", 6_381))));
        assert_eq!(of("MOVED", "3999 ::1:6381"), Some(Redirect::Moved(target("::1", 6_381))));
        assert_eq!(of("TRYAGAIN", "Multiple keys request during rehashing of slot"), Some(Redirect::Later));
        for code in ["MOVED", "ASK"] {
            assert_eq!(of(code, "3999 ?:6381"), Some(Redirect::Unnamed), "its host is not known yet");
        }
        let naming = Address::new("here", 1);
        assert_eq!(target("", 2).beside(&naming), Address::new("here", 2));
        assert_eq!(target("there", 2).beside(&naming), Address::new("there", 2));
    }

    #[test]
    fn anything_else_is_an_error() {
        for (code, detail) in
            [("MOVED", ""), ("MOVED", "1"), ("MOVED", "1 host"), ("ASK", "1 host:x"), ("ERR", "MOVED 1 h:1")]
        {
            assert_eq!(of(code, detail), None, "{code} {detail}");
        }
    }
}
