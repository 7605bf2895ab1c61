//! A server that Sentinels name as the primary.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Client, Value};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::followers::Followers;
use super::in_vain::InVain;
use super::news::News;
use super::role::{Contact, Follower, Lead, Role};
use crate::error::{StoreError, StoreErrorKind};
use crate::ledger::Reply;
use crate::store::redis::address::Address;
use crate::store::redis::call::Call;
use crate::store::redis::fault::{Fault, Said};
use crate::store::redis::link::{CONNECT_TIMEOUT, Failure, Link, Witnessed, connect, refusal, unreachable};

const DOES_NOT_ANSWER: &str = "a replica does not answer, which may have been made primary";

/// A server that Sentinels name as the primary.
pub(in crate::store::redis) struct Primary {
    pub(super) address: Address,
    pub(in crate::store::redis) link: Link,
    state: Mutex<State>,
}

struct State {
    followers: Followers,
    in_vain: InVain,
    was_believed: bool,
}

/// Why a primary gave no answer.
pub(super) enum Missed {
    /// It acted, but not all who may take its place have what was written.
    Alone,
    Failed(Failure),
}

impl From<Failure> for Missed {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What a replica was found to be, of which it was not known that it follows.
enum Found {
    /// It is a primary itself.
    Leads,
    Follows,
    /// It has no data yet, or Sentinels have given it up: it does not take over.
    Harmless,
    /// It is silent. Or it refuses connections, as one does that has stopped, and as a firewall does for one that runs; or whoever asks.
    Unknown(Option<StoreError>),
}

/// A replica that is not waited for, and why it could not be asked, if it could not.
pub(super) type Excused = (Address, Option<StoreError>);

impl Primary {
    pub(super) fn new(address: Address, client: Client, prefix: &str, response_timeout: Duration) -> Self {
        let link = Link::to_node(client, prefix, response_timeout, &address.to_string());
        let in_vain = InVain::new(response_timeout);
        let state = State { followers: Followers::default(), in_vain, was_believed: false };
        Self { address, link, state: Mutex::new(state) }
    }

    /// Calls a script; the answer counts only if all who may take the primary's place have what was written.
    pub(super) async fn call(&self, call: Call<'_>, patience: Duration) -> Result<Reply, Missed> {
        let replicas = self.state().followers.count();
        let Witnessed { answer, before, after } = self.link.call_witnessed(call, replicas, patience).await?;
        let (Some(before), Some(after)) = (before.into_lead(), after.into_lead()) else { return Err(Missed::Alone) };
        let mut state = self.state();
        if state.followers.have(before.written, &after) {
            state.in_vain.end();
            return Ok(answer);
        }
        state.in_vain.see(Instant::now());
        Err(Missed::Alone)
    }

    /// Whether it is to be believed: it is a primary, and of no replica that may have been made one in its place it is unknown whether
    /// it was. Says which of them are not waited for from now on.
    pub(super) async fn review(
        &self,
        like: &Client,
        news: Option<&News>,
        patience: Duration,
    ) -> Result<Vec<Excused>, StoreError> {
        let (said, _) = self.link.answer_to(&redis::cmd("ROLE"), Role::of).await?;
        let Some(said) = said.into_lead() else {
            return Err(unreachable("the store is no primary, and the Sentinels name no other one yet"));
        };
        let (known, in_doubt) = self.in_doubt(&said, news);
        // Replicas may be named otherwise by the primary than by the Sentinels.
        let is_accounted = |one: &&Follower| known.contains(&one.address) && !in_doubt.contains(&one.address);
        let unaccounted = said.replicas.iter().filter(|one| !is_accounted(one)).count();
        // A minority may be cut off with an old primary: it cannot say that no other server was made primary.
        let of_most = news.filter(|news| news.is_of_most);
        let (is_sure, mut asked) = (in_doubt.is_empty(), JoinSet::new());
        for address in in_doubt {
            let is_lost = of_most.is_some_and(|news| news.is_lost(&address));
            let client = address.client(like)?;
            asked.spawn(async move {
                // One that was just made primary may be lost to Sentinels for a moment, but answers.
                let found = found(&address, &client, patience).await;
                (address, found, is_lost)
            });
        }
        let (mut excused, mut unknown, mut follow) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok((_, Found::Leads, _)) => {
                    return Err(unreachable("another server was made primary, which the Sentinels do not name yet"));
                }
                Ok((address, Found::Follows, _)) => follow.push(address),
                Ok((address, Found::Harmless, _)) => excused.push((address, None)),
                Ok((address, Found::Unknown(why), true)) => excused.push((address, why)),
                Ok((address, Found::Unknown(why), false)) => unknown.push((address, why)),
                Err(_) => {}
            }
        }
        if let Some(news) = news {
            self.leave_out(news);
        }
        let mut state = self.state();
        let now = Instant::now();
        let is_late = state.in_vain.is_late(now);
        if !unknown.is_empty() || follow.len() > unaccounted {
            if of_most.is_none() || !is_late {
                state.in_vain.see(now);
                let why = unknown.into_iter().find_map(|(_, why)| why);
                return Err(why.unwrap_or_else(|| unreachable(DOES_NOT_ANSWER)));
            }
            excused.append(&mut unknown);
        }
        if is_late {
            // They follow, and never have what was written.
            excused.extend(state.followers.lacking().iter().map(|one| (one.clone(), None)));
        }
        if is_sure {
            state.in_vain.end();
        }
        state.followers.follow(&follow);
        let excused_at: Vec<_> = excused.iter().map(|(address, _)| address.clone()).collect();
        state.followers.settle(&said, &excused_at);
        state.was_believed = true;
        Ok(excused)
    }

    /// Takes note of whom most of the Sentinels have given up.
    pub(super) fn leave_out(&self, news: &News) {
        if news.is_of_most {
            self.state().followers.leave_out(news.lost().cloned().collect());
        }
    }

    /// Replicas that may take its place, as Sentinels know them, and those that may have done so.
    fn in_doubt(&self, said: &Lead, news: Option<&News>) -> (Vec<Address>, Vec<Address>) {
        let mut state = self.state();
        state.followers.hear(said);
        let known = news.map(|news| news.candidates(state.followers.left_out())).unwrap_or_default();
        let in_doubt = state.followers.in_doubt(said, &known);
        (known, in_doubt)
    }

    /// Whether a review has found so before.
    pub(super) fn was_believed(&self) -> bool {
        self.state().was_believed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a replica is that may have been made primary.
async fn found(address: &Address, client: &Client, patience: Duration) -> Found {
    let asked = async {
        let mut connection = connect(client, patience).await?;
        redis::cmd("ROLE").query_async::<Value>(&mut connection).await
    };
    match timeout(patience, asked).await {
        Ok(Ok(said)) => match Role::of(&said) {
            Some(Role::Primary(_)) => Found::Leads,
            Some(Role::Replica(Contact::Follows)) => Found::Follows,
            Some(Role::Replica(Contact::Begins)) => Found::Harmless,
            _ => Found::Unknown(None),
        },
        Ok(Err(error)) if error.code() == Some("LOADING") => Found::Harmless,
        Ok(Err(error)) => {
            let fails = if Fault::of(&error) == Fault::Lasting { "refuses" } else { "does not answer" };
            let words = format!("a replica at {address}, which may have been made primary, {fails}");
            // Of the kind of what passes: another one may be named primary.
            Found::Unknown(Some(unreachable(&words).caused_by(Said(error))))
        }
        _ => Found::Unknown(None),
    }
}

/// Warns of each replica of a primary that refuses to say what it is, or is not reached.
pub(super) async fn tried_replicas(link: &Link, like: &Client, patience: Duration) {
    let said = link.answer_to(&redis::cmd("ROLE"), Role::of).await;
    let (lead, mut asked) = (said.ok().and_then(|(said, _)| said.into_lead()), JoinSet::new());
    for Follower { address, .. } in lead.map(|lead| lead.replicas).unwrap_or_default() {
        let Ok(client) = address.client(like) else { continue };
        asked.spawn(async move { (found(&address, &client, patience).await, address) });
    }
    while let Some(answer) = asked.join_next().await {
        if let Ok((Found::Unknown(Some(error)), replica)) = answer {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(%replica, error, "a replica cannot be asked whether it was made primary: calls stand still when it lags");
        }
    }
}

/// Tries what is asked of a primary beside the scripts.
pub(super) async fn tried(link: &Link) -> Result<(), StoreError> {
    let (mut connection, _) = link.connection().await?;
    let mut wait = redis::cmd("WAIT");
    wait.arg(0).arg(1);
    match timeout(CONNECT_TIMEOUT, wait.query_async::<Value>(&mut connection)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(refusal("the store refuses what is needed beside the scripts", error)),
        Err(_) => Err(StoreError::new(StoreErrorKind::Unreachable, "the store did not answer")),
    }
}
