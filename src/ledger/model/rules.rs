//! What can happen, within which bounds.

/// Within which bounds, and by which rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) processes: usize,
    /// How many messages each process says.
    pub(super) messages: u64,
    /// For how many callers an ask is.
    pub(super) callers: u32,
    /// How many copies of messages there are beyond one of each: sent again, or doubled on their way.
    pub(super) copies: u32,
    /// For how long.
    pub(super) ticks: i64,
    /// How often the store loses its memory.
    pub(super) wipes: u32,
    /// It loses it only while every process remembers a message that the store must hold, and waits for no answer.
    pub(super) all_remember: bool,
    /// How often a second primary begins with what the first knows. Processes follow one by one; until then they speak to the first.
    pub(super) splits: u32,
    pub(super) flaw: Option<Flaw>,
}

/// Something that somebody does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// To the store a message that comes again is a new one.
    ActsAgain,
    /// To the store a copy that comes after the next message of its sender is a new one.
    ActsLate,
    /// A process sends a message again under a new number.
    NewNumber,
    /// Units count for a window alone.
    NoGuard,
    /// A process does not say what the store must hold.
    SaysNothing,
}

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A process asks for its callers, and hands back what is too late for them.
    Ask {
        process: usize,
    },
    /// A caller gives up, where one waits for its slot: all that nobody wants goes back.
    HandBack {
        process: usize,
    },
    /// It says the last message again.
    Again {
        process: usize,
    },
    /// One of the messages under way reaches a store. Its process hears the answer at once, or after the next tick at the earliest.
    Act {
        sent: usize,
        at_once: bool,
    },
    /// A late answer reaches its process.
    Hear {
        process: usize,
    },
    /// A process speaks to the second primary from now on.
    Follow {
        process: usize,
    },
    /// Time passes. Before it does, some processes, each a bit, send the calls whose slots have started.
    Tick {
        calling: u8,
    },
    Wipe,
    Split,
}
