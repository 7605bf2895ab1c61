//! What a process says of its calls, in one line of text.

use std::fmt;
use std::str::FromStr;

/// Calls of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Answered, by whatever.
    pub(crate) calls: u32,
    /// Answered by 429.
    pub(crate) refused: u32,
    /// Neither sent nor answered.
    pub(crate) failed: u32,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, refused, failed } = self;
        write!(f, "calls={calls} refused={refused} failed={failed}")
    }
}

impl FromStr for Tally {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let value = |part: Option<&str>, name: &str| part?.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
        let mut parts = line.split_whitespace();
        let tally = (value(parts.next(), "calls"), value(parts.next(), "refused"), value(parts.next(), "failed"));
        match tally {
            (Some(calls), Some(refused), Some(failed)) => Ok(Self { calls, refused, failed }),
            _ => Err(format!("not a tally: {line:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_is_read_as_it_was_written() {
        let tally = Tally { calls: 250, refused: 3, failed: 0 };
        assert_eq!(tally.to_string().parse(), Ok(tally));
        for line in ["", "calls=1", "calls=1 refused=x failed=0", "refused=1 calls=1 failed=0"] {
            assert!(line.parse::<Tally>().is_err(), "{line}");
        }
    }
}
