//! The store of the model: the real logs, behind a network and servers that take their time.

use std::fmt;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use outgate::ledger::{Ask, Grant, HandBack, Hold, Home, Incident, Learned, Lesson, Log, LogUsage, MessageId};
use outgate::{MemoryStore, Store, StoreError};

use crate::agenda::Agenda;
use crate::ledger::{Ledger, Verdict};
use crate::service::Service;
use crate::tally::Tally;

/// Redis nodes with the scopes spread over them, each of which does one thing at a time. Clones are one store.
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

    /// The server of a home: always the same, in every run.
    fn server(&self, home: &Home) -> usize {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(home.as_str());
        usize::try_from(hash % self.0.turns.len() as u64).unwrap_or(0)
    }

    /// Goes to the server of a home, waits for its turn, and comes back when the server has done the work.
    async fn call<T>(&self, home: &Home, work: impl Future<Output = (T, Duration)> + Send) -> T {
        let Inner { agenda, way, turns, tally, .. } = &*self.0;
        let (sent, server) = (agenda.now(), self.server(home));
        agenda.sleep(*way).await;
        let turn = turns[server].lock().await;
        let (done, time) = work.await;
        agenda.sleep(time).await;
        drop(turn);
        lock(tally).busy(server, time);
        agenda.sleep(*way).await;
        lock(tally).round_trips.push(agenda.now().saturating_sub(sent));
        done
    }
}

#[async_trait]
impl Store for Modelled {
    async fn book(&self, ask: &Ask) -> Result<Grant, StoreError> {
        let Inner { logs, service, tally, ledger, .. } = &*self.0;
        let work = async {
            let grant = logs.book(ask).await;
            let time = grant.as_ref().map_or(Duration::ZERO, |grant| service.of_ask(ask, grant));
            if let Ok(grant) = &grant {
                lock(tally).ask(ask, grant);
                lock(ledger).book(ask, grant);
            }
            (grant, time)
        };
        self.call(&ask.home, work).await
    }

    async fn hand_back(&self, message: &HandBack) -> Result<(), StoreError> {
        let Inner { logs, service, tally, ledger, .. } = &*self.0;
        let work = async {
            let done = logs.hand_back(message).await;
            lock(tally).hand_backs += 1;
            lock(ledger).hand_back(message);
            (done, service.of_hand_back())
        };
        self.call(&message.home, work).await
    }

    /// No upstream of the model ever refuses a call.
    async fn hold(&self, home: &Home, id: MessageId, hold: &Hold) -> Result<Incident, StoreError> {
        self.0.logs.hold(home, id, hold).await
    }

    async fn learn(&self, home: &Home, id: MessageId, log: &Log, lesson: &Lesson) -> Result<Learned, StoreError> {
        self.0.logs.learn(home, id, log, lesson).await
    }

    async fn usage(&self, home: &Home, logs: &[Log]) -> Result<Vec<LogUsage>, StoreError> {
        self.0.logs.usage(home, logs).await
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
