//! Who has which slots is looked up: by one call of a process at a time, whose outcome goes for all.

use std::time::Duration;

use redis::{Client, Cmd, ConnectionAddr};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::nodes::View;
use super::slots::ranges;
use super::{Cluster, SILENCE};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::address::Address;
use crate::store::redis::link::{connect, in_runtime, not_reached, or_why_not, reached_within, unreachable};

impl Cluster {
    /// Looks up who has which slots, unless somebody has just done that.
    pub(super) async fn look(&self) -> Result<(), StoreError> {
        in_runtime()?;
        let looks = self.nodes().looks();
        let _looking = self.looking.turn().await;
        if let Some(outcome) = self.nodes().outcome(looks, Instant::now()) {
            return outcome;
        }
        let said = timeout(reached_within(self.response_timeout) + self.response_timeout, self.first_to_say()).await;
        let said = said.unwrap_or_else(|_| Err(unreachable("the Cluster cannot be reached: no node answers")));
        let outcome = self.nodes().looked(said, Instant::now(), |address| self.made(address));
        self.found(outcome.as_ref());
        outcome
    }

    /// Tells whether nodes were found, while none is known.
    pub(super) fn found(&self, outcome: Result<&(), &StoreError>) {
        let is_any_known = self.nodes().is_any_known();
        match (outcome, is_any_known) {
            (Ok(()), true) => self.health.is_up(true),
            (Err(error), false) if error.kind() == StoreErrorKind::Refused => {
                self.health.complain("", &error.to_string(), error);
            }
            (Err(error), false) => self.health.is_down(error),
            // Of those that are known their links tell; and a node that is in no Cluster yet knows of none.
            (Err(_), true) | (Ok(()), false) => {}
        }
    }

    /// What the first node says that knows of any slots: one that is known, or else a seed. One that was taken out of the Cluster knows of none.
    async fn first_to_say(&self) -> Result<View, StoreError> {
        let mut asked = JoinSet::new();
        let known = self.nodes().all_to_ask(Instant::now());
        let is_any_known = !known.is_empty();
        let pause = if is_any_known { SILENCE } else { Duration::ZERO };
        for (node, is_later) in known {
            asked.spawn(async move {
                if is_later {
                    sleep(pause).await;
                }
                let said = node.link.ask(&who_has_what(), |answer| ranges(answer, &node.address)).await;
                said.map(|ranges| (node.address.clone(), ranges))
            });
        }
        for seed in self.seeds.clone() {
            let response_timeout = self.response_timeout;
            asked.spawn(async move {
                sleep(pause).await;
                ask_seed(&seed, response_timeout).await
            });
        }
        let mut other = Err(unreachable("the Cluster cannot be reached: no node of it is known"));
        // A node that is in no Cluster yet tells more than one that does not run, and what waiting does not heal more than both, where nobody has
        // served yet.
        let tells = |said: &Result<View, StoreError>| match said {
            Err(error) if error.kind() == StoreErrorKind::Refused && !is_any_known => 2,
            Ok(_) => 1,
            Err(_) => 0,
        };
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(view)) if !view.1.is_empty() => return Ok(view),
                Ok(said) if tells(&said) >= tells(&other) => other = said,
                _ => {}
            }
        }
        other
    }
}

/// Asks a node over a connection of its own: it may be a replica, or behind an address that is none of the Cluster's.
async fn ask_seed(seed: &Client, response_timeout: Duration) -> Result<View, StoreError> {
    let address = match seed.get_connection_info().addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => Address::new(host, *port),
        _ => return Err(unreachable("the Cluster cannot be reached by a socket of this machine")),
    };
    let answer = or_why_not(seed, response_timeout, async {
        let mut connection = connect(seed, response_timeout).await?;
        who_has_what().query_async(&mut connection).await
    });
    let answer = answer.await.map_err(|error| not_reached("the Cluster cannot be reached", error))?;
    let ranges = ranges(&answer, &address).ok_or_else(StoreError::senseless)?;
    Ok((address, ranges))
}

fn who_has_what() -> Cmd {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    command
}
