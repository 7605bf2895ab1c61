//! What came of it.

use std::fmt;
use std::time::Duration;

use crate::limits::{CALLS, QUOTA, guard};
use crate::manner::Manner;
use crate::model::Model;

/// What the models counted.
pub(crate) struct Report {
    columns: Vec<Column>,
    took: Duration,
    longest_stall: u64,
}

/// What one model counted.
struct Column {
    manner: Manner,
    refused: usize,
    calls: u32,
    tokens: u64,
    /// Parts of what the limit, with its guard, allows in that time.
    share: f64,
    share_of_calls: f64,
    fullest: u64,
}

impl Report {
    pub(crate) fn new(models: &[Model], minute: Duration, took: Duration, longest_stall: u64) -> Self {
        let spans = took.as_secs_f64() / (minute + guard(minute)).as_secs_f64();
        let column = |(model, manner): (&Model, Manner)| {
            let (calls, tokens) = model.served(took);
            let of = |units: u64, quota: u32| real(units) / (f64::from(quota) * spans);
            let (share, share_of_calls) = (of(tokens, QUOTA), of(calls.into(), CALLS));
            Column {
                manner,
                refused: model.refused(),
                calls,
                tokens,
                share,
                share_of_calls,
                fullest: model.fullest(minute),
            }
        };
        Self { columns: models.iter().zip(Manner::ALL).map(column).collect(), took, longest_stall }
    }

    /// A call was refused although as much was reserved for it as it can use.
    pub(crate) fn broke_its_promise(&self) -> bool {
        self.columns.iter().any(|column| column.manner.promises() && column.refused > 0)
    }

    /// In some manner no call was answered: that shows nothing.
    pub(crate) fn failed(&self) -> bool {
        self.columns.iter().any(|column| column.calls == 0)
    }

    fn row(&self, f: &mut fmt::Formatter<'_>, what: &str, value: impl Fn(&Column) -> String) -> fmt::Result {
        write!(f, "{what:<20}")?;
        for column in &self.columns {
            write!(f, "{:>20}", value(column))?;
        }
        writeln!(f)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        self.row(f, "", |column| column.manner.words().to_owned())?;
        self.row(f, "429s", |column| column.refused.to_string())?;
        self.row(f, "answers", |column| column.calls.to_string())?;
        self.row(f, "tokens", |column| column.tokens.to_string())?;
        self.row(f, "token quota used", |column| percent(column.share))?;
        self.row(f, "call quota used", |column| percent(column.share_of_calls))?;
        self.row(f, "fullest minute", |column| column.fullest.to_string())?;
        let seconds = self.took.as_secs_f64();
        writeln!(
            f,
            "\n{QUOTA} tokens a minute are allowed; {seconds:.1} s; longest stall of this machine {} ms",
            self.longest_stall
        )
    }
}

fn real(units: u64) -> f64 {
    u32::try_from(units).map_or(f64::INFINITY, f64::from)
}
