//! What a process says to a store.

use std::sync::Arc;
use std::time::Duration;

use super::{Ask, Log, Pause, Renewal, Report, ScopeId, SeatLimit, Stamp};

/// Whose messages a store does not remember: of those that book for nobody, or only look.
pub const NOBODY: u64 = 0;

/// Something that a process says to a store about one upstream.
///
/// ```
/// use outgate::ledger::{Body, Ledger, Log, Message, MessageId, Pause, Refused, Stamp, Term};
/// use std::time::Duration;
///
/// let (mut ledger, now) = (Ledger::new(), Stamp::from_micros(0));
/// let pause = Body::Pause { scope: None, pause: Pause::new(Duration::from_secs(20)) };
/// let message = Message::new("gateway", MessageId::new(7, "pauses", 2).after(1), pause);
/// let paused = ledger.apply(now, &message)?.paused().expect("what a pause is answered by");
/// assert_eq!((paused.wait(), paused.first), (Duration::from_secs(20), true));
///
/// // A number that is not larger than the last is of a message that was lost on its way.
/// let mut late = message;
/// late.id = MessageId::new(7, "pauses", 1);
/// assert_eq!(ledger.apply(now, &late), Err(Refused::Outdated));
///
/// // What changes nothing needs no number.
/// let logs = [Log::new("calls", [Term::new(10, 1_050_000)])];
/// let usage = ledger.apply(now, &Message::new("gateway", MessageId::nobodys(), Body::usage(logs)))?.usage();
/// assert_eq!(usage.and_then(|usage| usage[0].paused).map(|paused| paused.left), Some(Duration::from_secs(20)));
///
/// let release = Body::Release { scope: None, served: None };
/// assert_eq!(ledger.apply(now, &Message::new("gateway", MessageId::new(7, "by hand", 1), release))?.done(), Some(now));
/// let look = Body::Look { scopes: [].into(), since: now };
/// assert!(ledger.apply(now, &Message::new("gateway", MessageId::nobodys(), look))?.looked().is_some());
/// # Ok::<(), Refused>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Message {
    /// Whose logs, limits and pauses: an upstream's, those of upstreams that share limits, or those of one shard of an upstream.
    pub upstream: Arc<str>,
    /// Which message it is: one that comes twice acts once.
    pub id: MessageId,
    /// The newest log time of the upstream that the sender knows: log time is at least this when the store decides.
    pub known: Option<Stamp>,
    /// The most that log time can be now, by all that the sender knows. Said only where the store's clock has leapt ahead of
    /// that; `known` counts more.
    pub latest: Option<Stamp>,
    /// What it says.
    pub body: Body,
}

impl Message {
    /// Refuses what cannot be decided: an ask that charges a caller in other logs than it names, or wants seats for nobody; and
    /// nobody who is there.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        match &self.body {
            Body::Ask(ask) if !ask.is_sound() => Err(Refused::Senseless),
            Body::Ask(ask) if ask.seats.is_some() && self.id.sender == NOBODY => Err(Refused::Senseless),
            Body::Renew(_) if self.id.sender == NOBODY => Err(Refused::Senseless),
            _ => Ok(()),
        }
    }

    /// A message of somebody who knows nothing of the upstream's log time.
    #[must_use]
    pub fn new(upstream: impl Into<Arc<str>>, id: MessageId, body: impl Into<Body>) -> Self {
        Self { upstream: upstream.into(), id, known: None, latest: None, body: body.into() }
    }
}

/// Which message it is, in which stream of its sender.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MessageId {
    /// Which process sends it; [`NOBODY`] where it need not be remembered.
    pub sender: u64,
    /// Which of the sender's streams it belongs to, one for each of its queues: the next message of a stream follows when
    /// this is answered. Any text without blanks.
    pub stream: Arc<str>,
    /// Larger than that of every earlier message of the stream; below 2⁵³.
    pub number: u64,
    /// The number of the last message of the stream that the store is known to remember; zero where none is known. A store
    /// whose last one is neither this nor the message itself decides nothing: two processes have one name. One that
    /// remembers none decides.
    pub previous: u64,
}

impl MessageId {
    /// The message of this number in a sender's stream.
    #[must_use]
    pub fn new(sender: u64, stream: impl Into<Arc<str>>, number: u64) -> Self {
        Self { sender, stream: stream.into(), number, previous: 0 }
    }

    /// The message after that of the number `previous`, which the store remembers.
    #[must_use]
    pub fn after(self, previous: u64) -> Self {
        Self { previous, ..self }
    }

    /// A message that need not be remembered.
    #[must_use]
    pub fn nobodys() -> Self {
        Self::new(NOBODY, Arc::default(), 0)
    }

    /// Whether it is that of such a message.
    pub(crate) const fn is_nobodys(&self) -> bool {
        self.sender == NOBODY
    }
}

/// What a message says.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "nearly all are asks")]
pub enum Body {
    /// May these callers send, and when? Answered by [`Reply::Grant`](super::Reply::Grant).
    Ask(Ask),
    /// Nobody sends to a scope, or to the whole upstream, for a while. Answered by [`Reply::Paused`](super::Reply::Paused).
    Pause {
        /// Who: `None` is the whole upstream.
        scope: Option<ScopeId>,
        /// For how long, and why.
        pause: Pause,
    },
    /// Pauses end before their time. Answered by [`Reply::Done`](super::Reply::Done).
    Release {
        /// Whose: `None` is the whole upstream, and all its scopes.
        scope: Option<ScopeId>,
        /// When the call started that [looked](super::Verdict::Looks) whether the pause still held, and was served. `None`:
        /// somebody ends pauses and lowered rates by hand.
        served: Option<Stamp>,
    },
    /// The quotas of a scope are lowered by hand for a while. Answered by [`Reply::Done`](super::Reply::Done).
    SlowDown {
        /// Whose: `None` is the whole upstream, with all its scopes.
        scope: Option<ScopeId>,
        /// Millionths of the quotas that are left, of a million.
        factor: u32,
        /// For how long.
        lasting: Duration,
    },
    /// What counts in some logs is forgotten by hand, with what was learned of their scope: whoever asks next finds them empty. Answered by
    /// [`Reply::Done`](super::Reply::Done).
    Reset {
        /// Whose logs: `None` are the whole upstream's own.
        scope: Option<ScopeId>,
        /// Which of them, by what they count.
        units: Arc<[Arc<str>]>,
    },
    /// Does anybody still have to wait for a pause? Changes nothing. Answered by [`Reply::Looked`](super::Reply::Looked).
    Look {
        /// Scopes that the process knows to be paused, beside the whole upstream: as many as one likes to look at.
        scopes: Arc<[ScopeId]>,
        /// What [`Looked::now`](super::Looked::now) said the last time: scopes that were released since are told.
        since: Stamp,
    },
    /// What the upstream reported of a log. Answered by [`Reply::Learned`](super::Reply::Learned).
    Report {
        /// Which log.
        log: Log,
        /// What it reported.
        report: Report,
    },
    /// What do these logs hold, and who holds the seats of these limits? Changes nothing. Answered by [`Reply::Usage`](super::Reply::Usage).
    Usage {
        /// The logs, those of one scope next to each other, the whole upstream's first.
        logs: Arc<[Log]>,
        /// Limits on calls in flight.
        seats: Arc<[SeatLimit]>,
    },
    /// The sender is there, with who waits in it, or it is gone. Answered by [`Reply::Renewed`](super::Reply::Renewed).
    Renew(Renewal),
    /// Which processes use an upstream? Changes nothing. Answered by [`Reply::Processes`](super::Reply::Processes).
    Processes {
        /// The upstream, which has the ledger's name but where several share limits.
        upstream: Arc<str>,
    },
}

impl Body {
    /// What do these logs hold?
    #[must_use]
    pub fn usage(logs: impl Into<Arc<[Log]>>) -> Self {
        Self::Usage { logs: logs.into(), seats: [].into() }
    }
}

impl From<Ask> for Body {
    fn from(ask: Ask) -> Self {
        Self::Ask(ask)
    }
}

/// Why a store decides nothing on a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// A later message of its stream has come before it.
    Outdated,
    /// Another process sends under the same name.
    Duplicate,
    /// An ask that charges a caller in other logs than it names, or that wants seats for nobody; a renewal of nobody.
    Senseless,
}
