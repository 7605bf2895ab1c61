//! What a client reserves, and whether it says what was used.

use outgate::Call;

use crate::answer::Kind;
use crate::limits::{LARGEST, TOKENS};

/// How a client treats the tokens of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Reserves as many as a call can use, and leaves it at that.
    Reserving,
    /// Reserves as many as a call can use, and says how many it used.
    Settling,
    /// Reserves what calls of its kind used lately, and says how many it used.
    Estimating,
}

impl Manner {
    pub(crate) const ALL: [Self; 3] = [Self::Reserving, Self::Settling, Self::Estimating];

    /// What the throttle is told of a call.
    pub(crate) fn call(self, kind: Kind) -> Call {
        match self {
            Self::Reserving | Self::Settling => Call::new().cost_of(TOKENS, LARGEST),
            Self::Estimating => Call::new().kind(kind.name()),
        }
    }

    pub(crate) const fn settles(self) -> bool {
        !matches!(self, Self::Reserving)
    }

    /// No call uses more than was reserved for it: none may be refused.
    pub(crate) const fn promises(self) -> bool {
        !matches!(self, Self::Estimating)
    }

    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Reserving => "largest reserved",
            Self::Settling => "… and settled",
            Self::Estimating => "estimated, settled",
        }
    }
}
