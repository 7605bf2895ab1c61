//! What several rounds of a measurement gave, and what became of two that took turns.

/// Median, least and most of several rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Of at least one round.
    pub(crate) fn of(mut rounds: Vec<f64>) -> Self {
        rounds.sort_by(f64::total_cmp);
        let at = |index: usize| rounds.get(index).copied().unwrap_or(f64::NAN);
        Self { median: at(rounds.len() / 2), min: at(0), max: at(rounds.len().saturating_sub(1)) }
    }

    /// As a cell of a table, with so many digits after the point.
    pub(crate) fn cell(self, digits: usize) -> String {
        let Self { median, min, max } = self;
        format!("{median:.digits$} ({min:.digits$} … {max:.digits$})")
    }
}

/// Ours and a baseline, measured in turns in the same run, and their ratio round by round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Versus {
    pub(crate) ours: Spread,
    pub(crate) theirs: Spread,
    pub(crate) ratio: Spread,
}

impl Versus {
    /// Of rounds of ours and theirs.
    pub(crate) fn of(rounds: &[(f64, f64)]) -> Self {
        let part = |of: fn(&(f64, f64)) -> f64| Spread::of(rounds.iter().map(of).collect());
        Self { ours: part(|round| round.0), theirs: part(|round| round.1), ratio: part(|round| round.0 / round.1) }
    }
}
