//! What Sentinels say of a primary and its replicas. Pure.

use std::collections::HashMap;

use redis::Value;

use super::role::{address, items};
use crate::store::redis::address::Address;

/// What a Sentinel says, or several of them together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct News {
    pub(super) primary: Address,
    /// Which change of the primary this is: the highest is the latest.
    epoch: u64,
    replicas: Vec<Seen>,
    /// The primary before and its replicas, where this one is just being made primary.
    earlier: Vec<Address>,
    /// Most of the Sentinels say so: no other primary was named without any of them, if one of these may have voted for it before a cut.
    pub(super) is_of_most: bool,
    /// Half of the Sentinels at most were heard: the others may have made a replica primary, with a vote from before these were cut off.
    pub(super) is_of_few: bool,
}

/// A replica, as Sentinels see it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    address: Address,
    /// They have given it up, so that they do not make it primary.
    is_lost: bool,
    /// It followed its primary when it was asked last.
    follows: bool,
}

impl News {
    /// What is said of the primary's address, of itself and of its replicas.
    pub(super) fn of(primary: &Value, itself: &Value, replicas: &Value) -> Option<Self> {
        let [host, port] = items(primary)? else { return None };
        let (primary, itself) = (address(host, port)?, fields(itself)?);
        let epoch = itself.get("config-epoch")?.parse().ok()?;
        let mut replicas: Vec<Seen> = items(replicas)?.iter().map(seen).collect::<Option<_>>()?;
        let mut earlier = Vec::new();
        let before = Address::new(itself.get("ip")?, itself.get("port")?.parse().ok()?);
        if before != primary {
            // While a replica is made primary, these are still those of the old one.
            earlier = replicas.drain(..).map(|one| one.address).filter(|one| *one != primary).collect();
            earlier.push(before);
        }
        Some(Self { primary, epoch, replicas, earlier, is_of_most: false, is_of_few: false })
    }

    /// The latest that any of so many Sentinels says; a replica that one of them has not given up is not.
    pub(super) fn latest(all: impl IntoIterator<Item = Self>, of: usize) -> Option<Self> {
        let mut all: Vec<Self> = all.into_iter().collect();
        let is_of_few = 2 * all.len() <= of;
        let at = (0..all.len()).max_by_key(|&at| all[at].epoch)?;
        let mut latest = all.swap_remove(at);
        // Whoever names another one has not heard of the change, and its replicas are those of that one.
        all.retain(|news| news.primary == latest.primary);
        latest.is_of_most = 2 * (1 + all.len()) > of;
        latest.is_of_few = is_of_few;
        for news in all {
            latest.earlier.extend(news.earlier);
            for Seen { address, is_lost, follows } in news.replicas {
                match latest.replicas.iter_mut().find(|one| one.address == address) {
                    Some(one) => (one.is_lost, one.follows) = (one.is_lost && is_lost, one.follows || follows),
                    None => latest.replicas.push(Seen { address, is_lost, follows }),
                }
            }
        }
        Some(latest)
    }

    /// Replicas that followed lately, and may be made primary. Where only few were heard all, as they may follow others by now, but for those
    /// that most had given up before, and these have.
    pub(super) fn candidates(&self, left_out: &[Address]) -> Vec<Address> {
        if !self.is_of_few {
            let may_lead = self.replicas.iter().filter(|one| one.follows && !one.is_lost);
            return may_lead.map(|one| one.address.clone()).collect();
        }
        let mut candidates = Vec::new();
        for one in self.replicas.iter().map(|one| &one.address).chain(&self.earlier) {
            let is_left_out = left_out.contains(one) && self.is_lost(one);
            if !is_left_out && !candidates.contains(one) {
                candidates.push(one.clone());
            }
        }
        candidates
    }

    /// Replicas that all who say so have given up.
    pub(super) fn lost(&self) -> impl Iterator<Item = &Address> {
        self.replicas.iter().filter(|one| one.is_lost).map(|one| &one.address)
    }

    /// Whether no Sentinel can make it primary now.
    pub(super) fn is_lost(&self, replica: &Address) -> bool {
        self.replicas.iter().any(|one| one.address == *replica && one.is_lost)
    }
}

fn seen(said: &Value) -> Option<Seen> {
    let fields = fields(said)?;
    let field = |name| fields.get(name).map(String::as_str);
    let is_lost = field("flags")?.split(',').any(|flag| ["s_down", "o_down"].contains(&flag));
    let address = Address::new(field("ip")?, field("port")?.parse().ok()?);
    Some(Seen { address, is_lost, follows: field("master-link-status") == Some("ok") })
}

fn fields(said: &Value) -> Option<HashMap<String, String>> {
    redis::from_redis_value_ref(said).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn words(said: &str) -> Value {
        Value::Array(said.split(' ').map(text).collect())
    }

    fn news(primary: &str, epoch: &str, replicas: &[&str]) -> Option<News> {
        let (host, port) = primary.split_once(' ')?;
        said(primary, &format!("name mymaster ip {host} port {port} config-epoch {epoch}"), replicas)
    }

    fn said(primary: &str, itself: &str, replicas: &[&str]) -> Option<News> {
        let replicas = Value::Array(replicas.iter().map(|said| words(said)).collect());
        News::of(&words(primary), &words(itself), &replicas)
    }

    const FOLLOWS: &str = "ip h port 2 flags slave master-link-status ok";

    #[test]
    fn sentinels_name_the_primary_and_who_may_take_its_place() {
        let said = news("h 1", "7", &[FOLLOWS, "ip h port 3 flags slave master-link-status err"]).unwrap();
        assert_eq!(said.primary, Address::new("h", 1));
        assert_eq!(said.candidates(&[]), [Address::new("h", 2)]);
        let said = news("h 1", "7", &["ip h port 2 flags slave,disconnected master-link-status ok"]).unwrap();
        assert_eq!(said.candidates(&[]), [Address::new("h", 2)], "as one is that is just being made primary");
        for flags in ["s_down,slave", "s_down,slave,disconnected", "s_down,o_down,slave"] {
            let said = news("h 1", "7", &[&format!("ip h port 2 flags {flags} master-link-status ok")]).unwrap();
            assert_eq!(said.candidates(&[]), []);
            assert!(said.is_lost(&Address::new("h", 2)) && !said.is_lost(&Address::new("h", 3)));
        }
    }

    #[test]
    fn the_latest_counts_and_who_is_given_up_by_all_is_lost() {
        let lost = "ip h port 2 flags s_down,slave master-link-status err";
        let of = |all: &[(&str, &str, &str)]| {
            let all = all.iter().map(|(primary, epoch, replica)| news(primary, epoch, &[replica]).unwrap());
            News::latest(all, 3).unwrap()
        };
        let said = of(&[("h 1", "7", lost), ("h 1", "7", FOLLOWS)]);
        assert_eq!(said.candidates(&[]), [Address::new("h", 2)]);
        let said = of(&[("h 1", "7", FOLLOWS), ("h 2", "8", "ip h port 1 flags slave master-link-status err")]);
        assert_eq!((said.primary.port, said.candidates(&[])), (2, vec![]));
        let said = of(&[("h 1", "7", "ip h port 3 flags slave master-link-status ok"), ("h 2", "8", lost)]);
        assert_eq!((said.primary.port, said.candidates(&[])), (2, vec![]), "that is one of the old primary's");
        assert_eq!(News::latest([], 3), None);
    }

    #[test]
    fn most_of_the_sentinels_have_to_name_the_same_primary() {
        let is_of_most = |primaries: &[(&str, &str)], of| {
            let all = primaries.iter().map(|(primary, epoch)| news(primary, epoch, &[]).unwrap());
            News::latest(all, of).map(|news| news.is_of_most)
        };
        let (old, new) = (("h 1", "7"), ("h 2", "8"));
        assert_eq!([1, 2, 3].map(|of| is_of_most(&[old], of)), [Some(true), Some(false), Some(false)]);
        assert_eq!([3, 4].map(|of| is_of_most(&[old, old], of)), [Some(true), Some(false)]);
        assert_eq!(is_of_most(&[old, old, new], 3), Some(false), "the others have not heard of it");
        assert_eq!(is_of_most(&[old, new, new], 3), Some(true));
    }

    #[test]
    fn where_a_minority_is_heard_any_replica_may_have_been_made_primary() {
        let lost = "ip h port 2 flags s_down,slave master-link-status ok";
        let strange = "ip h port 3 flags slave master-link-status err";
        let latest = |heard: usize, of| {
            let all = (0..heard).map(|_| news("h 1", "7", &[lost, strange]).unwrap());
            News::latest(all, of).unwrap()
        };
        let candidates = |heard, of| latest(heard, of).candidates(&[]);
        let all = [Address::new("h", 2), Address::new("h", 3)];
        assert_eq!([candidates(1, 3), candidates(1, 4), candidates(2, 5)], [&all, &all, &all]);
        assert_eq!([candidates(1, 1), candidates(2, 3), candidates(3, 4)], [[], [], []]);
        assert_eq!([candidates(1, 2), candidates(2, 4)], [&all, &all], "the other half may have a vote of ours");
        assert_eq!(latest(1, 3).candidates(&all), all[1..], "nobody has given up the other");
        assert!(latest(2, 3).lost().eq(&all[..1]));
    }

    #[test]
    fn while_a_replica_is_made_primary_those_of_the_old_one_are_not_its_own() {
        let said =
            said("h 2", "ip h port 1 config-epoch 8", &[FOLLOWS, "ip h port 3 flags slave master-link-status ok"]);
        assert_eq!(said.as_ref().map(|said| (said.primary.port, said.candidates(&[]))), Some((2, vec![])));
        let alone = News::latest(said.clone(), 3).unwrap();
        let others = [3, 1].map(|port| Address::new("h", port));
        assert_eq!(alone.candidates(&[]), others, "another one may have been made primary since");
        let after = news("h 2", "8", &["ip h port 3 flags slave master-link-status err"]);
        assert_eq!(News::latest(said.into_iter().chain(after), 5).unwrap().candidates(&[]), others);
    }

    #[test]
    fn what_makes_no_sense_is_no_news() {
        assert_eq!(news("h", "7", &[]), None);
        assert_eq!(news("h x", "7", &[]), None);
        assert_eq!(news("h 1", "x", &[]), None);
        assert_eq!(news("h 1", "7", &["ip h port 2"]), None);
        assert_eq!(News::of(&Value::Nil, &Value::Nil, &Value::Nil), None);
    }
}
