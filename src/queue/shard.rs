//! A part of the store in which some scopes of an upstream lie: mostly there is one for all.

use std::sync::{Arc, OnceLock};

use super::calendars::Calendars;
use super::contact::Contact;
use super::leases::Leases;
use super::log_time::LogTime;
use super::looks::Looks;
use super::memories::Memories;
use super::process::Process;
use super::resting::Resting;
use crate::error::StoreError;
use crate::ledger::{Body, Message, MessageId};
use crate::store::memory::Kept;
use crate::store::{MemoryStore, WithoutStore};

/// A part of the store, and what a process knows of it: it may lie on a server of its own, with a clock of its own.
#[derive(Clone, Debug)]
pub(crate) struct Shard {
    /// What the store calls it.
    pub(crate) ledger: Arc<str>,
    pub(crate) calendars: Calendars,
    pub(crate) contact: Arc<Contact>,
    pub(crate) time: Arc<LogTime>,
    pub(crate) looks: Arc<Looks>,
    pub(crate) memories: Arc<Memories>,
    kept: OnceLock<Arc<Kept>>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) resting: Arc<Resting>,
}

impl Shard {
    /// The shard of a name, of which nothing is known yet.
    pub(crate) fn new(ledger: Arc<str>, upstream: &Arc<str>, policy: WithoutStore, calendars: Calendars) -> Self {
        let contact = Arc::new(Contact::new(Arc::clone(upstream), policy));
        Self {
            ledger,
            calendars,
            contact,
            time: Arc::new(LogTime::new()),
            looks: Arc::default(),
            memories: Arc::default(),
            kept: OnceLock::new(),
            leases: Arc::default(),
            resting: Arc::default(),
        }
    }

    /// What the store in memory keeps of it.
    #[inline]
    pub(super) fn kept(&self, store: &MemoryStore) -> &Kept {
        self.kept.get_or_init(|| store.kept(&self.ledger))
    }

    /// The same part of another store, with a clock of its own.
    pub(super) fn in_another_store(&self, time: Arc<LogTime>) -> Self {
        Self { time, kept: OnceLock::new(), ..self.clone() }
    }

    /// A message about what lies there, with the log time that this process knows.
    pub(crate) fn message(&self, id: MessageId, body: Body) -> Message {
        Message { known: self.time.known(), ..Message::new(Arc::clone(&self.ledger), id, body) }
    }

    /// Tells the store something that acts once; each message has a stream of its own.
    pub(crate) async fn tell_once(&self, process: &Process, body: Body) -> Result<(), StoreError> {
        let mut id = process.next_message("".into());
        id.stream = format!("{}!", id.number).into();
        let reply = process.store.apply(&self.message(id, body)).await?;
        reply.done().map(|_| ()).ok_or_else(StoreError::senseless)
    }

    /// Goes on with what was known before, where it is the same.
    pub(crate) fn follow(&mut self, before: &Self) {
        if self.ledger == before.ledger {
            (self.time, self.looks) = (Arc::clone(&before.time), Arc::clone(&before.looks));
            self.memories = Arc::clone(&before.memories);
            (self.leases, self.resting) = (Arc::clone(&before.leases), Arc::clone(&before.resting));
            self.calendars.follow(&before.calendars);
            if let Some(contact) = Arc::get_mut(&mut self.contact) {
                contact.follow(&before.contact);
            }
        }
    }
}
