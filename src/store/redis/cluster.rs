//! The nodes of a Cluster: each upstream's keys lie on one of them, which is asked over a link of its own.
//!
//! A node that is silent holds up nobody but the upstreams that lie there. Which node that is, is looked up when a node does not
//! answer, and learned from those that send a call elsewhere.
//!
//! A process knows the log time of each upstream by itself, so of one node. Where keys move to a node whose clock differs, that is a
//! step of the clock as any other: what log time is ahead of the clock lies in the upstream's state, and moves with it.

mod claiming;
mod looking;
mod nodes;
pub(super) mod redirect;
mod slots;

use std::pin::pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Client;
use tokio::time::{Instant, sleep, timeout};

use self::nodes::{Node, Nodes};
use self::redirect::Redirect;
use self::slots::slot_of;
use super::address::Address;
use super::call::Call;
use super::health::Health;
use super::link::{Failure, Missed, in_runtime, reached_within, served_within, tuned, unreachable};
use super::one_at_a_time::OneAtATime;
use super::trial;
use crate::error::{StoreError, StoreErrorKind};
use crate::ledger::Reply;

/// How often one call is sent elsewhere, unless it is told to come again.
const MOST_REDIRECTS: u32 = 8;
/// How long a call waits that was told to come again, or was sent elsewhere twice, and as much again at random.
const AGAIN: Duration = Duration::from_millis(20);
/// Until when a call comes again, from when it was made. Who does not wait for a store takes one that is silent for 1 s for lost to all; but
/// of a slot on its way others may be served, whose keys all lie on one node.
const ON_ITS_WAY: Duration = Duration::from_millis(500);
/// After how long without an answer it is looked whether another node has the slot by now, and how often.
const SILENCE: Duration = Duration::from_millis(300);

/// A Cluster, for all clones of a store.
pub(super) struct Cluster {
    seeds: Vec<Client>,
    prefix: Box<str>,
    response_timeout: Duration,
    /// Nobody has said since the last connection was made that no other release keeps another format under the prefix.
    is_to_claim: Arc<AtomicBool>,
    /// When the node that knows is asked again: `None` until it has left somebody without an answer.
    claim_at: Mutex<Option<Instant>>,
    /// That another release keeps another format, where the node that knows said so last.
    other_format: Mutex<Option<StoreError>>,
    nodes: Mutex<Nodes>,
    /// Whether any node is known. Of those that are known their links tell.
    health: Health,
    /// Held by the one call that looks up who has which slots; the others wait for its outcome.
    looking: OneAtATime,
}

impl Cluster {
    /// A Cluster that some of its nodes are known of.
    pub(super) fn new(seeds: Vec<Client>, prefix: &str, response_timeout: Duration) -> Self {
        Self {
            seeds: seeds.into_iter().map(tuned).collect(),
            prefix: prefix.into(),
            response_timeout,
            is_to_claim: Arc::new(AtomicBool::new(true)),
            claim_at: Mutex::default(),
            other_format: Mutex::default(),
            nodes: Mutex::default(),
            health: Health::default(),
            looking: OneAtATime::within(2 * reached_within(response_timeout) + response_timeout),
        }
    }

    /// Calls a script on the node that has an upstream's keys. What may not be repeated later is sent elsewhere only by who has it
    /// from a node that it did not act.
    pub(super) async fn call(self: &Arc<Self>, call: Call<'_>) -> Result<Reply, Failure> {
        in_runtime()?;
        timeout(served_within(self.response_timeout), self.answer(call)).await.unwrap_or_else(|_| {
            self.nodes().doubt();
            let error = StoreError::late();
            self.found(Err(&error));
            Err(error.into())
        })
    }

    async fn answer(self: &Arc<Self>, call: Call<'_>) -> Result<Reply, Failure> {
        let until = Instant::now() + ON_ITS_WAY;
        self.refuse_another_format().await?;
        self.reply(call, until).await
    }

    /// The answer of the node that has the slot; of one that is on its way until then.
    async fn reply(&self, call: Call<'_>, until: Instant) -> Result<Reply, Failure> {
        let (slot, may_repeat) = (slot_of(call.upstream()), call.may_repeat());
        let (mut node, mut asking) = (self.owner(slot).await?, false);
        let mut redirects = 0;
        while redirects < MOST_REDIRECTS {
            let answer = node.link.call_node(call, asking);
            let answer =
                if asking || !may_repeat { answer.await } else { self.unless_moved(slot, &node, answer).await };
            (node, asking) = match answer {
                Ok(reply) => return Ok(reply),
                Err(Missed::Refused(failure)) => return Err(failure),
                Err(Missed::Failed(failure)) => {
                    // It may be that another node has taken over.
                    self.nodes().doubt_for(&node.address, Instant::now());
                    return Err(failure);
                }
                Err(Missed::Redirected(Redirect::Moved(target))) => {
                    (self.moved(slot, &target.beside(&node.address))?, false)
                }
                Err(Missed::Redirected(Redirect::Ask(target))) => (self.node(&target.beside(&node.address))?, true),
                Err(Missed::Redirected(why @ (Redirect::Later | Redirect::Unnamed)))
                    if may_repeat && Instant::now() < until =>
                {
                    if why == Redirect::Unnamed {
                        self.nodes().doubt();
                    }
                    again().await;
                    (node, asking, redirects) = (self.owner(slot).await?, false, 0);
                    continue;
                }
                Err(Missed::Redirected(Redirect::Later | Redirect::Unnamed)) => break,
            };
            redirects += 1;
            // Two that name each other do not agree yet who has the slot.
            if may_repeat && redirects % 2 == 0 {
                again().await;
            }
        }
        self.nodes().doubt();
        let words = "the store cannot be used now: the slot of the upstream is on its way from one node of the Cluster to another";
        let error = StoreError::new(StoreErrorKind::Refused, words);
        node.link.health.complain("moving", "", &error);
        Err(error.into())
    }

    /// The answer to a call, unless another node has the slot before it comes.
    async fn unless_moved(
        &self,
        slot: usize,
        node: &Arc<Node>,
        call: impl Future<Output = Result<Reply, Missed>>,
    ) -> Result<Reply, Missed> {
        let mut call = pin!(call);
        loop {
            if let Ok(answer) = timeout(SILENCE, call.as_mut()).await {
                return answer;
            }
            tokio::select! {
                biased;
                answer = call.as_mut() => return answer,
                _ = self.look() => {}
            }
            if let Some(other) = self.nodes().owner(slot).filter(|owner| !Arc::ptr_eq(owner, node)) {
                return Err(Missed::Redirected(Redirect::Moved(other.address.clone().into())));
            }
        }
    }

    /// Tries what the scripts need on every node that has slots.
    pub(super) async fn tried(&self, prefix: &str) -> Result<(), StoreError> {
        self.look().await?;
        if !self.nodes().have_all_slots() {
            let words = "some slots of the Cluster are on no node: CLUSTER ADDSLOTSRANGE gives them to one";
            return Err(StoreError::new(StoreErrorKind::Refused, words));
        }
        let all = self.nodes().all();
        for node in all {
            trial::on_node(&node.link, prefix, &|upstream| self.has(&node, upstream)).await?;
        }
        Ok(())
    }

    /// The nodes that have slots.
    pub(super) async fn masters(&self) -> Result<Vec<Arc<Node>>, StoreError> {
        self.look().await?;
        Ok(self.nodes().all())
    }

    fn has(&self, node: &Arc<Node>, upstream: &str) -> bool {
        self.nodes().owner(slot_of(upstream)).is_some_and(|owner| Arc::ptr_eq(&owner, node))
    }

    /// The node that has a slot, as far as is known.
    async fn owner(&self, slot: usize) -> Result<Arc<Node>, Failure> {
        if let Some(node) = self.nodes().trusted_owner(slot) {
            return Ok(node);
        }
        let looked = self.look().await;
        let nobody =
            || unreachable("the store cannot be used now: no node of the Cluster has the slot of the upstream");
        let owner = self.nodes().owner(slot);
        owner.ok_or_else(|| {
            let error = looked.err().unwrap_or_else(nobody);
            self.found(Err(&error));
            error.into()
        })
    }

    fn moved(&self, slot: usize, to: &Address) -> Result<Arc<Node>, Failure> {
        self.nodes().moved(slot, to, |address| self.made(address)).map_err(Failure::from)
    }

    fn node(&self, address: &Address) -> Result<Arc<Node>, Failure> {
        self.nodes().at(address, |address| self.made(address)).map_err(Failure::from)
    }

    /// A node to which everything is as to the first that was known, but for where it is.
    fn made(&self, address: &Address) -> Result<Node, StoreError> {
        let refused = || StoreError::new(StoreErrorKind::Refused, "no node of the Cluster is known");
        let client = address.client(self.seeds.first().ok_or_else(refused)?)?;
        let node = Node::new(address.clone(), client, &self.prefix, self.response_timeout);
        Ok(node.telling_of_formats(Arc::clone(&self.is_to_claim)))
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        lock(&self.nodes)
    }
}

/// Waits for a bit, not all for the same time.
async fn again() {
    sleep(AGAIN + AGAIN.mul_f64(fastrand::f64())).await;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
