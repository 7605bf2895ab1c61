//! What is known of each sender.

/// What is known of each sender, in the order of their names: few, and mostly one or none.
#[derive(Debug)]
pub(super) struct Senders<T>(Vec<(u64, T)>);

impl<T> Senders<T> {
    pub(super) fn get(&self, sender: u64) -> Option<&T> {
        self.at(sender).ok().map(|at| &self.0[at].1)
    }

    pub(super) fn get_mut(&mut self, sender: u64) -> Option<&mut T> {
        self.at(sender).ok().map(|at| &mut self.0[at].1)
    }

    /// Takes the place of what was known of this sender.
    pub(super) fn insert(&mut self, sender: u64, known: T) {
        match self.at(sender) {
            Ok(at) => self.0[at].1 = known,
            Err(at) => {
                if self.0.is_empty() {
                    // Mostly it stays alone.
                    self.0.reserve_exact(1);
                }
                self.0.insert(at, (sender, known));
            }
        }
    }

    pub(super) fn remove(&mut self, sender: u64) {
        if let Ok(at) = self.at(sender) {
            self.0.remove(at);
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.0.retain(|(_, known)| keep(known));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.0.iter().map(|(sender, known)| (*sender, known))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn at(&self, sender: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&sender, |(of, _)| *of)
    }
}

impl<T> Default for Senders<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_that_is_known_of_each_sender_stays() {
        let mut senders = Senders::default();
        for (sender, known) in [(7, 'a'), (3, 'b'), (9, 'c'), (3, 'd'), (5, 'e')] {
            senders.insert(sender, known);
        }
        senders.remove(9);
        senders.remove(4);
        senders.retain(|&known| known != 'e');
        assert_eq!(senders.iter().collect::<Vec<_>>(), [(3, &'d'), (7, &'a')]);
        assert_eq!((senders.get(3), senders.get(5), senders.len()), (Some(&'d'), None, 2));
    }
}
