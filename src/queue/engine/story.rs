//! What happens to a queue, and what is to be done about it, in short words.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::scene::{Process, World, costs, lost, outdated, reply};
use crate::config::priority::Priority;
use crate::error::Error;
use crate::ledger::{Cause, Reason};
use crate::queue::events::{Effect, Effects, Event};
use crate::queue::in_flight::Message;
use crate::queue::settling::Correction;
use crate::queue::waiters::{Slot, Waiter, Wish};

/// A queue to which things happen, and whose limit is one call in each span.
pub(super) struct Story {
    world: World,
    process: Process,
    under_way: Option<(Arc<Message>, Instant)>,
    permits: Vec<(u64, Slot)>,
}

impl Story {
    pub(super) fn new(span: Duration) -> Self {
        let world = World::new();
        let process = Process::new(&world, 7, 1, span);
        Self { world, process, under_way: None, permits: Vec::new() }
    }

    /// The same store, as another process finds it.
    pub(super) fn begin_anew(&mut self, sender: u64, span: Duration) {
        self.process = Process::new(&self.world, sender, 1, span);
        (self.under_way, self.permits) = (None, Vec::new());
    }

    /// Lets it happen, as `[ms:] what [to whom] [until when]`; says what is to be done.
    pub(super) fn happen(&mut self, what: &str) -> String {
        let (at, what) = what.split_once(": ").map_or((None, what), |(at, what)| (Some(at.parse().unwrap()), what));
        if let Some(at) = at {
            self.world.pass_to(self.world.at(at));
        }
        let mut words = what.split(' ');
        let (verb, now) = (words.next().unwrap(), self.world.now);
        let numbers: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
        let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
        let until = self.world.at(number(1));
        let waiter =
            |wish| Waiter { ticket: number(0), costs: costs(1), joined: now, wish, priority: Priority::Normal };
        let join = |wish| Event::Joined(waiter(wish));
        let event = match verb {
            "join" => join(Wish::Soon),
            "high" => Event::Joined(Waiter { priority: Priority::High, ..waiter(Wish::Soon) }),
            "hurry" => join(Wish::By(until)),
            "try" => join(Wish::AtOnce { within: Duration::ZERO }),
            "leave" => Event::Left(number(0)),
            "time-up" => Event::TimeUp(number(0)),
            "return" => Event::Returned(self.permit_of(number(0))),
            "distrust" => Event::Distrusted(self.permit_of(number(0))),
            "settle" => {
                let of = self.permits.iter().find(|(ticket, _)| *ticket == number(0)).map(|(_, slot)| slot).unwrap();
                let [back, debts] = [number(1), number(2)].map(|units| vec![u32::try_from(units).unwrap()]);
                Event::Settled(Correction { start: of.stamp, sender: of.sender, back, debts })
            }
            "pause" => Event::Paused(until, Reason::new(Cause::Refusal, 429)),
            "ban" => Event::Paused(until, Reason::new(Cause::Ban, 403)),
            "release" => Event::Released(self.world.at(number(0))),
            "lost" => {
                self.under_way = None;
                Event::Lost
            }
            // For 10 s, which the store's clock went on.
            "suspend" => {
                self.world.step(10_000_000);
                self.process.time.pretend_to_be_suspended(Duration::from_secs(10));
                Event::Suspended
            }
            "doubt" => Event::LostData,
            "renamed" => Event::Renamed(number(0)),
            "close" => Event::Closed,
            "turn" => {
                let effects = self.process.turn(now);
                return self.shown(effects);
            }
            "leap" => {
                self.world.step(10_000_000);
                return String::new();
            }
            how => self.answer(how),
        };
        let effects = self.process.handle(event, now);
        self.shown(effects)
    }

    fn permit_of(&mut self, ticket: u64) -> Slot {
        let of = self.permits.iter().position(|(other, _)| *other == ticket).unwrap();
        self.permits.remove(of).1
    }

    /// The message under way is answered.
    fn answer(&mut self, how: &str) -> Event {
        let (message, sent) = self.under_way.take().unwrap();
        let reply = match how {
            "answer" => reply(&self.world, &message),
            // It acts, and its answer is lost.
            "lose" => reply(&self.world, &message).and_then(|_| lost()),
            "fail" => lost(),
            "outdated" => outdated(),
            _ => panic!("what is {how}?"),
        };
        Event::Answered(self.process.read(reply, sent, self.world.now))
    }

    fn shown(&mut self, effects: Effects) -> String {
        let shown = effects.into_iter().map(|effect| match effect {
            Effect::Tell(ticket, Ok(slot)) => {
                assert!(slot.start <= self.world.now, "nobody is told before the start");
                let start = self.world.millis(slot.start);
                self.permits.push((ticket, slot));
                format!("tell {ticket} {start}")
            }
            Effect::Tell(ticket, Err(error)) => format!("tell {ticket} {}", said(&error)),
            Effect::Send(message) => {
                assert!(self.under_way.is_none(), "one message at a time");
                let shown = message.shown();
                self.under_way = Some((message, self.world.now));
                shown
            }
            Effect::Wake(at) => format!("wake {}", self.world.millis(at)),
            Effect::Rename(sender) => format!("rename {sender}"),
            Effect::Look => "look".to_owned(),
            Effect::CutOff(..) => "cut off".to_owned(),
            Effect::Answered => "answered".to_owned(),
            Effect::LostData => "lost data".to_owned(),
            Effect::ToldOfLoss(_) => "told of a loss".to_owned(),
            Effect::Refused(_) => "refused".to_owned(),
            Effect::Reached => "reached".to_owned(),
            Effect::RefusedNoMore => "refused no more".to_owned(),
            Effect::OtherLimit(..) => "other limit".to_owned(),
            Effect::Idle => "idle".to_owned(),
        });
        shown.collect::<Vec<_>>().join(", ")
    }
}

fn said(error: &Error) -> String {
    match error {
        Error::Throttled { retry_after, .. } => format!("throttled {}", retry_after.as_millis()),
        Error::Barred { retry_after, .. } => format!("barred {}", retry_after.as_millis()),
        Error::StoreUnavailable { .. } => "unavailable".to_owned(),
        Error::Closed => "closed".to_owned(),
        other => panic!("{other}"),
    }
}
