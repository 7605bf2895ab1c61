//! The store of the model: the real logs, behind a network and servers that take their time.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crc16::{State, XMODEM};
use outgate::ledger::{Ask, Body, Message, Reply};
use outgate::store::{Applied, Applying};
use outgate::{MemoryStore, Store};

use crate::agenda::Agenda;
use crate::ledger::{Ledger, Verdict};
use crate::service::Service;
use crate::tally::Tally;

/// Slots of a Redis Cluster.
const SLOTS: u16 = 16_384;

/// Redis nodes with the shards of an upstream spread over them, each of which does one thing at a time. Clones are one store.
#[derive(Clone)]
pub(crate) struct Modelled(Arc<Inner>);

struct Inner {
    agenda: Agenda,
    /// To a server or back.
    way: Duration,
    service: Service,
    logs: MemoryStore,
    /// Whoever holds a server's turn is served; the others queue, first come first served.
    turns: Vec<tokio::sync::Mutex<()>>,
    tally: Mutex<Tally>,
    ledger: Mutex<Ledger>,
}

impl Modelled {
    pub(crate) fn new(agenda: Agenda, network: Duration, service: Service, nodes: usize) -> Self {
        Self(Arc::new(Inner {
            agenda,
            way: network / 2,
            service,
            logs: MemoryStore::new(),
            turns: (0..nodes).map(|_| tokio::sync::Mutex::default()).collect(),
            tally: Mutex::new(Tally::of(nodes)),
            ledger: Mutex::default(),
        }))
    }

    /// What the servers had to do since this was last asked.
    pub(crate) fn take_tally(&self) -> Tally {
        mem::replace(&mut *lock(&self.0.tally), Tally::of(self.0.turns.len()))
    }

    /// Whether all slots that were ever booked keep to the limits.
    pub(crate) fn judge(&self) -> Verdict {
        lock(&self.0.ledger).judge()
    }

    /// The server that has a shard: each has as many slots of the Cluster as the others, side by side.
    fn server(&self, message: &Message) -> usize {
        let slot = State::<XMODEM>::calculate(message.upstream.as_bytes()) % SLOTS;
        usize::from(slot) * self.0.turns.len() / usize::from(SLOTS)
    }

    /// Goes to the server of a shard, waits for its turn, and comes back when the server has decided.
    async fn call(&self, message: &Message, ask: &Ask) -> Applied {
        let Inner { agenda, way, service, logs, turns, tally, ledger } = &*self.0;
        let (sent, server) = (agenda.now(), self.server(message));
        agenda.sleep(*way).await;
        let turn = turns[server].lock().await;
        let reply = logs.apply(message).await;
        let mut time = Duration::ZERO;
        if let Ok(Reply::Grant(grant)) = &reply {
            time = service.of(ask, grant);
            lock(tally).ask(server, ask, grant);
            lock(ledger).book(ask, grant);
        }
        agenda.sleep(time).await;
        drop(turn);
        lock(tally).busy(server, time);
        agenda.sleep(*way).await;
        lock(tally).round_trips.push(agenda.now().saturating_sub(sent));
        reply
    }
}

impl Store for Modelled {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        match &message.body {
            Body::Ask(ask) => Applying::pending(self.call(message, ask)),
            // No upstream of the model ever refuses a call.
            _ => self.0.logs.apply(message),
        }
    }
}

impl fmt::Debug for Modelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Modelled").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
