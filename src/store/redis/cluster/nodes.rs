//! What is known of the nodes of a Cluster.

use std::sync::{Arc, atomic::AtomicBool};
use std::time::Duration;

use redis::Client;
use tokio::time::Instant;

use super::slots::{Owners, Range};
use crate::error::StoreError;
use crate::store::redis::address::Address;
use crate::store::redis::link::Link;

/// What was looked up so lately is not looked up again,
const FRESH: Duration = Duration::from_millis(50);
/// and while it is looked up again and again, twice as lately each time, up to this: nodes that elect one of them have many clients.
const STALE: Duration = Duration::from_millis(300);
/// A node that failed is asked later than others for so long.
const LATELY: Duration = Duration::from_secs(30);

/// A node that has slots, or is to have some.
pub(in crate::store::redis) struct Node {
    pub(super) address: Address,
    pub(in crate::store::redis) link: Link,
}

impl Node {
    pub(super) fn new(address: Address, client: Client, prefix: &str, response_timeout: Duration) -> Self {
        let link = Link::to_node(client, prefix, response_timeout, &address.to_string());
        Self { address, link }
    }

    /// The same, which says there whenever it was connected to and does not know in which format all is kept.
    pub(super) fn telling_of_formats(self, is_to_claim: Arc<AtomicBool>) -> Self {
        Self { link: self.link.telling_of_formats(is_to_claim), ..self }
    }
}

/// Who has which slots, and which node says so.
pub(super) type View = (Address, Vec<Range>);

/// The nodes that have slots, and who has which.
#[derive(Default)]
pub(super) struct Nodes {
    known: Vec<Arc<Node>>,
    owners: Owners,
    /// What is known may no longer be so.
    is_doubted: bool,
    /// Nodes that failed lately, or had named one that did, and when.
    failed: Vec<(Address, Instant)>,
    /// Who has said what is known.
    said_by: Option<Address>,
    /// How often it was looked up, when that was last, and what came of it.
    looks: u64,
    looked_at: Option<Instant>,
    /// For how long that is news.
    lasts: Duration,
    failure: Option<StoreError>,
}

impl Nodes {
    pub(super) fn all(&self) -> Vec<Arc<Node>> {
        self.known.clone()
    }

    pub(super) const fn is_any_known(&self) -> bool {
        !self.known.is_empty()
    }

    /// All of them, and whether each is to be asked later than others: one that is cut off from those may be the nearest, and say first what is
    /// so no more.
    pub(super) fn all_to_ask(&self, now: Instant) -> Vec<(Arc<Node>, bool)> {
        let has_failed =
            |node: &Node| self.failed.iter().any(|(failed, at)| *failed == node.address && now < *at + LATELY);
        let is_any_left = self.known.iter().any(|node| !has_failed(node));
        self.known.iter().map(|node| (Arc::clone(node), is_any_left && has_failed(node))).collect()
    }

    /// The node that has a slot, by what is known.
    pub(super) fn owner(&self, slot: usize) -> Option<Arc<Node>> {
        self.known.get(self.owners.of(slot)?).map(Arc::clone)
    }

    /// The same, unless that may have changed.
    pub(super) fn trusted_owner(&self, slot: usize) -> Option<Arc<Node>> {
        if self.is_doubted { None } else { self.owner(slot) }
    }

    /// What is known may no longer be so.
    pub(super) fn doubt(&mut self) {
        self.is_doubted = true;
    }

    /// The same, as a node failed: neither it nor who named it is asked first.
    pub(super) fn doubt_for(&mut self, failed: &Address, now: Instant) {
        self.is_doubted = true;
        let both = [Some(failed), self.said_by.as_ref()].into_iter().flatten();
        self.failed.retain(|(of, at)| now < *at + LATELY && !both.clone().any(|one| one == of));
        self.failed.extend(both.map(|one| (one.clone(), now)));
    }

    pub(super) const fn looks(&self) -> u64 {
        self.looks
    }

    /// Whether every slot is some node's.
    pub(super) fn have_all_slots(&self) -> bool {
        self.owners.are_complete()
    }

    /// What a look has shown that was made after so many others, or lately; `None` where there was none.
    pub(super) fn outcome(&self, looks: u64, now: Instant) -> Option<Result<(), StoreError>> {
        let is_news = self.looks > looks || self.looked_at.is_some_and(|at| now < at + self.lasts);
        is_news.then(|| self.failure.clone().map_or(Ok(()), Err))
    }

    /// Takes note of a look.
    pub(super) fn looked(
        &mut self,
        said: Result<View, StoreError>,
        now: Instant,
        make: impl Fn(&Address) -> Result<Node, StoreError>,
    ) -> Result<(), StoreError> {
        let outcome = said.and_then(|(said_by, ranges)| {
            self.said_by = Some(said_by);
            self.learn(&ranges, make)
        });
        let again = self.looked_at.is_some_and(|at| now < at + 2 * STALE);
        self.lasts = if again { (2 * self.lasts).min(STALE) } else { FRESH };
        self.looks += 1;
        self.looked_at = Some(now);
        self.failure = outcome.clone().err();
        outcome
    }

    fn learn(
        &mut self,
        ranges: &[Range],
        make: impl Fn(&Address) -> Result<Node, StoreError>,
    ) -> Result<(), StoreError> {
        let before = std::mem::take(&mut self.known);
        let owners = std::mem::take(&mut self.owners);
        self.is_doubted = false;
        for Range { first, last, master } in ranges {
            if let Some(master) = master {
                let before = before.iter().find(|node| node.address == *master);
                let node = before.map_or_else(|| self.at(master, &make), |node| Ok(Arc::clone(node)))?;
                self.give(*first, *last, node);
                continue;
            }
            for slot in *first..=*last {
                if let Some(owner) = owners.of(slot).and_then(|place| before.get(place)) {
                    self.give(slot, slot, Arc::clone(owner));
                }
            }
        }
        for node in before.iter().filter(|node| self.place(&node.address).is_none()) {
            node.link.health.retire();
        }
        Ok(())
    }

    fn give(&mut self, first: usize, last: usize, node: Arc<Node>) {
        let place = self.place(&node.address).unwrap_or_else(|| {
            self.known.push(node);
            self.known.len() - 1
        });
        self.owners.give(first, last, place);
    }

    /// A slot is another node's, as a node says that had it.
    pub(super) fn moved(
        &mut self,
        slot: usize,
        to: &Address,
        make: impl Fn(&Address) -> Result<Node, StoreError>,
    ) -> Result<Arc<Node>, StoreError> {
        let node = self.at(to, make)?;
        if let Some(place) = self.place(to) {
            self.owners.give(slot, slot, place);
        }
        Ok(node)
    }

    /// The node at an address, new if need be.
    pub(super) fn at(
        &mut self,
        address: &Address,
        make: impl Fn(&Address) -> Result<Node, StoreError>,
    ) -> Result<Arc<Node>, StoreError> {
        if let Some(node) = self.place(address).and_then(|place| self.known.get(place)) {
            return Ok(Arc::clone(node));
        }
        let node = Arc::new(make(address)?);
        self.known.push(Arc::clone(&node));
        Ok(node)
    }

    fn place(&self, address: &Address) -> Option<usize> {
        self.known.iter().position(|node| node.address == *address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(address: &Address) -> Result<Node, StoreError> {
        let client = Client::open(format!("redis://{address}")).map_err(|_| StoreError::senseless())?;
        Ok(Node::new(address.clone(), client, "p", Duration::from_secs(1)))
    }

    #[test]
    fn who_failed_lately_and_who_named_it_are_asked_later_than_others() {
        let (mut nodes, begin) = (Nodes::default(), Instant::now());
        let at = |secs| begin + Duration::from_secs(secs);
        let [a, b, c] = ["a", "b", "c"].map(|host| Address::new(host, 6_379));
        let range = |first: usize, master: &Address| Range { first, last: first + 99, master: Some(master.clone()) };
        let ranges = || vec![range(0, &a), range(100, &b), range(200, &c)];
        let later = |nodes: &Nodes, secs| {
            let later = nodes.all_to_ask(at(secs)).into_iter().filter(|(_, later)| *later);
            later.map(|(node, _)| node.address.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert!(nodes.looked(Ok((b.clone(), ranges())), at(0), made).is_ok());
        assert_eq!(later(&nodes, 0), "");
        nodes.doubt_for(&a, at(1));
        assert_eq!(later(&nodes, 1), "a:6379 b:6379", "b has named it");
        assert!(nodes.looked(Ok((c.clone(), ranges())), at(1), made).is_ok());
        nodes.doubt_for(&a, at(20));
        assert_eq!(later(&nodes, 20), "", "all have, and somebody is asked at once");
        assert_eq!(later(&nodes, 31), "a:6379 c:6379");
        assert_eq!(later(&nodes, 50), "", "that is long ago");
    }

    #[test]
    fn who_is_known_to_have_a_slot_has_it_still_where_it_is_not_said_who_does() {
        let (mut nodes, now) = (Nodes::default(), Instant::now());
        let [a, b, c] = ["a", "b", "c"].map(|host| Address::new(host, 6_379));
        let range = |first, last, master: Option<&Address>| Range { first, last, master: master.cloned() };
        let said = |ranges| Ok((a.clone(), ranges));
        assert!(nodes.looked(said(vec![range(0, 99, Some(&a)), range(100, 199, Some(&b))]), now, made).is_ok());
        let before = nodes.owner(150);
        assert!(nodes.looked(said(vec![range(0, 99, Some(&c)), range(100, 299, None)]), now, made).is_ok());
        let owner = |slot| nodes.owner(slot).map(|node| node.address.to_string());
        assert_eq!([0, 100, 199, 200].map(owner).map(Option::unwrap_or_default), ["c:6379", "b:6379", "b:6379", ""]);
        assert!(nodes.owner(150).zip(before).is_some_and(|(after, before)| Arc::ptr_eq(&after, &before)));
        assert_eq!(nodes.all().len(), 2, "a has no slot any more");
    }

    #[test]
    fn while_a_node_is_missed_it_is_looked_up_ever_less_often() {
        let (mut nodes, began) = (Nodes::default(), Instant::now());
        let unreachable = || Err(crate::store::redis::link::unreachable("no node answers"));
        let nowhere = |_: &Address| Err(crate::store::redis::link::unreachable("nowhere"));
        let mut looks_within = |from: u64, to: u64| {
            let before = nodes.looks();
            for now in (from..to).map(|millis| began + Duration::from_millis(millis)) {
                if nodes.outcome(nodes.looks(), now).is_none() {
                    assert!(nodes.looked(unreachable(), now, nowhere).is_err());
                }
            }
            nodes.looks() - before
        };
        // At 0, 50, 150 and 350 ms, and then every 300.
        assert_eq!([looks_within(0, 1_000), looks_within(1_000, 3_000)], [6, 6]);
        assert_eq!(looks_within(10_000, 10_100), 2, "after some quiet it is looked up soon again");
    }
}
