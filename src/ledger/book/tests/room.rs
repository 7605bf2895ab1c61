//! Queues before a ledger.

use std::collections::HashMap;

use crate::ledger::{Ask, Body, Grant, Ledger, Log, Message, MessageId, Reply, Run, Slots, Stamp};

/// A ledger, and queues that say again what they were told of the periods that they are counted in.
#[derive(Default)]
pub(super) struct Room {
    ledger: Ledger,
    pub(super) now: i64,
    number: u64,
    pub(super) counted: HashMap<u64, Vec<Stamp>>,
}

impl Room {
    /// A queue asks for some callers, who are all charged alike.
    pub(super) fn ask(&mut self, queue: u64, logs: &[Log], callers: u32, charges: &[u32]) -> Grant {
        self.asking(queue, logs, callers, charges, |_| ())
    }

    pub(super) fn insist(&mut self, queue: u64, logs: &[Log], charges: &[u32]) -> Grant {
        self.asking(queue, logs, 1, charges, |ask| ask.insist = true)
    }

    pub(super) fn asking(
        &mut self,
        queue: u64,
        logs: &[Log],
        callers: u32,
        charges: &[u32],
        change: impl FnOnce(&mut Ask),
    ) -> Grant {
        let runs = (callers > 0).then(|| Run::new(callers, charges)).into_iter().collect();
        let mut ask = Ask::new(logs, runs);
        ask.counted = self.counted.get(&queue).cloned().unwrap_or_default();
        change(&mut ask);
        self.number += 1;
        let message = Message::new("up", MessageId::new(queue, "", self.number), ask);
        let grant = self.say(&message).grant().unwrap();
        self.counted.insert(queue, grant.counted.clone());
        grant
    }

    pub(super) fn say(&mut self, message: &Message) -> Reply {
        self.ledger.apply(Stamp::from_micros(self.now), message).unwrap()
    }

    pub(super) fn hand_back(&mut self, logs: &[Log], slots: Slots) {
        self.say(&Message::new("up", MessageId::nobodys(), Ask::hand_back(logs, vec![slots])));
    }

    /// Forgets what fell silent.
    pub(super) fn sweep(&mut self) {
        self.ledger.sweep(Stamp::from_micros(self.now));
    }

    /// What each log holds that counts by its first term.
    pub(super) fn used(&mut self, logs: &[Log]) -> Vec<u32> {
        let usage = self.say(&Message::new("up", MessageId::nobodys(), Body::usage(logs)));
        usage.usage().unwrap().iter().map(|log| log.terms[0].used).collect()
    }
}
