//! Who has to have what was granted before it counts. Pure.

use super::role::{Follower, Lead};
use crate::store::redis::address::Address;

/// The replicas of a primary that may take its place, as far as it is known: they have to have each answer before it counts.
#[derive(Debug, Default)]
pub(super) struct Followers {
    needed: Vec<Address>,
    /// Those of them that lacked something lately.
    lacking: Vec<Address>,
    /// Whom most of the Sentinels had given up, until the primary names it again.
    left_out: Vec<Address>,
    /// How much was written when the last message was answered.
    written: i64,
}

impl Followers {
    /// How many have to have it.
    pub(super) fn count(&self) -> usize {
        self.needed.len()
    }

    /// Those that lacked something lately.
    pub(super) fn lacking(&self) -> &[Address] {
        &self.lacking
    }

    /// Whom most of the Sentinels had given up when they were heard last, and who was not seen to follow since.
    pub(super) fn left_out(&self) -> &[Address] {
        &self.left_out
    }

    /// Whether everything that a primary had written is with all who may take its place, as it said later.
    pub(super) fn have(&mut self, written: i64, later: &Lead) -> bool {
        self.hear(later);
        let has = |needed: &&Address| later.replicas.iter().any(|one| one.address == **needed && one.has >= written);
        self.lacking = self.needed.iter().filter(|needed| !has(needed)).cloned().collect();
        if !self.lacking.is_empty() {
            return false;
        }
        // A new one has to, too, once it has what was written before; it may need longer than the others.
        let last = std::mem::replace(&mut self.written, written);
        let keeps_up = later.replicas.iter().filter(|one| one.has >= last.min(written));
        let new: Vec<Address> =
            keeps_up.map(|one| one.address.clone()).filter(|one| !self.needed.contains(one)).collect();
        self.needed.extend(new);
        true
    }

    /// Replicas that may have been made primary, for all that is known: those that lacked something, those that the primary does not
    /// name any more, and those that it has never named although they are known to others.
    pub(super) fn in_doubt(&self, said: &Lead, known: &[Address]) -> Vec<Address> {
        let needed = self.needed.iter().filter(|one| !said.names(one) || self.lacking.contains(one));
        let unheard = known.iter().filter(|one| !said.names(one) && !self.needed.contains(one));
        needed.chain(unheard).cloned().collect()
    }

    /// From now on those count that the primary names, but for these.
    pub(super) fn settle(&mut self, said: &Lead, excused: &[Address]) {
        let counts = |one: &&Follower| !excused.contains(&one.address);
        self.needed = said.replicas.iter().filter(counts).map(|one| one.address.clone()).collect();
        self.lacking.clear();
        self.written = said.written;
        self.hear(said);
    }

    /// Most of the Sentinels have given these up.
    pub(super) fn leave_out(&mut self, left_out: Vec<Address>) {
        self.left_out = left_out;
    }

    /// These were seen to follow.
    pub(super) fn follow(&mut self, replicas: &[Address]) {
        self.left_out.retain(|one| !replicas.contains(one));
    }

    /// What the primary says: who follows it may be made primary.
    pub(super) fn hear(&mut self, said: &Lead) {
        self.left_out.retain(|one| !said.names(one));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> Address {
        Address::new("h", port)
    }

    fn lead(written: i64, replicas: &[(u16, i64)]) -> Lead {
        Lead { written, replicas: replicas.iter().map(|&(port, has)| Follower { address: at(port), has }).collect() }
    }

    fn followers(replicas: &[u16]) -> Followers {
        let mut followers = Followers::default();
        let all: Vec<_> = replicas.iter().map(|&port| (port, 0)).collect();
        followers.settle(&lead(0, &all), &[]);
        followers
    }

    #[test]
    fn what_is_not_with_all_who_may_take_over_does_not_count() {
        let mut followers = followers(&[1, 2]);
        assert!(followers.have(10, &lead(10, &[(1, 10), (2, 12)])));
        assert!(!followers.have(20, &lead(20, &[(1, 20), (2, 19)])));
        assert!(!followers.have(20, &lead(20, &[(1, 20)])), "one has been made primary, or has gone");
        assert!(!followers.have(20, &lead(20, &[(1, 20), (3, 20)])), "another in its place does not make up for it");
        assert!(followers.have(20, &lead(20, &[(1, 20), (2, 20)])));
        assert!(Followers::default().have(20, &lead(20, &[])), "there is none");
    }

    #[test]
    fn a_new_replica_counts_once_it_keeps_up() {
        let mut followers = followers(&[1]);
        assert!(followers.have(10, &lead(10, &[(1, 10), (2, -1)])));
        assert!(followers.have(20, &lead(20, &[(1, 20), (2, 9)])));
        assert_eq!(followers.count(), 1);
        assert!(followers.have(30, &lead(30, &[(1, 30), (2, 20)])), "it had what was there before");
        assert_eq!(followers.count(), 2);
        assert!(!followers.have(40, &lead(40, &[(1, 40), (2, 30)])));
    }

    #[test]
    fn a_primary_that_begins_anew_counts_from_there() {
        let mut followers = followers(&[]);
        assert!(followers.have(1_000, &lead(1_000, &[])));
        assert!(followers.have(5, &lead(5, &[(1, 5)])));
        assert_eq!(followers.count(), 1);
    }

    #[test]
    fn those_are_in_doubt_of_whom_it_is_not_known_that_they_follow() {
        let mut followers = followers(&[1, 2]);
        let all = lead(0, &[(1, 0), (2, 0)]);
        assert_eq!(followers.in_doubt(&all, &[at(1), at(2)]), []);
        assert_eq!(followers.in_doubt(&lead(0, &[(1, 0)]), &[]), [at(2)]);
        assert_eq!(followers.in_doubt(&all, &[at(1), at(3)]), [at(3)], "the Sentinels know it");
        assert!(!followers.have(10, &lead(10, &[(1, 10), (2, 0)])));
        assert_eq!(followers.in_doubt(&all, &[]), [at(2)], "it lacked something");
        followers.settle(&all, &[at(2)]);
        assert!(followers.have(10, &lead(10, &[(1, 10), (2, -1)])));
        assert_eq!(followers.in_doubt(&all, &[]), [], "it was excused");
    }

    #[test]
    fn who_was_left_out_is_until_it_is_seen_to_follow() {
        let mut followers = followers(&[1]);
        followers.leave_out(vec![at(2), at(3), at(4)]);
        assert!(followers.have(10, &lead(10, &[(1, 10)])));
        followers.settle(&lead(10, &[(1, 10)]), &[]);
        assert_eq!(followers.left_out(), [at(2), at(3), at(4)]);
        assert!(followers.have(20, &lead(20, &[(1, 20), (2, -1)])));
        assert_eq!(followers.left_out(), [at(3), at(4)], "the primary names it again");
        followers.follow(&[at(3)]);
        assert_eq!(followers.left_out(), [at(4)]);
        followers.settle(&lead(20, &[(1, 20), (4, -1)]), &[at(4)]);
        assert_eq!(followers.left_out(), []);
    }
}
