//! What the servers of the model had to do.

use std::time::Duration;

use outgate::ledger::{Ask, Grant};

use crate::service::callers;

/// Counts of all servers together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) asks: u32,
    /// Asks after which somebody had to wait.
    pub(crate) waiting: u32,
    /// Asks that handed slots back.
    pub(crate) hand_backs: u32,
    /// Callers that were asked for.
    pub(crate) callers: u32,
    /// Asks of each server.
    pub(crate) asks_of: Vec<u32>,
    /// For how long each server was busy.
    pub(crate) busy: Vec<Duration>,
    /// How long each call took, as the process saw it.
    pub(crate) round_trips: Vec<Duration>,
}

impl Tally {
    /// Nothing yet.
    pub(crate) fn of(servers: usize) -> Self {
        Self { asks_of: vec![0; servers], busy: vec![Duration::ZERO; servers], ..Self::default() }
    }

    pub(crate) fn ask(&mut self, server: usize, ask: &Ask, grant: &Grant) {
        self.asks_of.get_mut(server).into_iter().for_each(|asks| *asks += 1);
        let callers = callers(ask);
        self.asks += 1;
        self.callers += callers;
        self.waiting += u32::from(grant.answered(callers) < callers);
        self.hand_backs += u32::from(!ask.back.is_empty());
    }

    /// A server was busy for so long.
    pub(crate) fn busy(&mut self, server: usize, time: Duration) {
        if let Some(busy) = self.busy.get_mut(server) {
            *busy += time;
        }
    }
}
