//! The report: sections of prose and tables, and the verdict on each target.

use std::fmt::Write as _;

use crate::chart::Chart;
use crate::spread::Spread;

/// What is wanted of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
}

/// A page of Markdown, and the table of targets that it begins with.
#[derive(Debug, Default)]
pub(crate) struct Page {
    targets: Vec<[String; 4]>,
    body: String,
    charts: Vec<(String, String)>,
    quick: bool,
}

impl Page {
    pub(crate) fn section(&mut self, title: &str) {
        println!("== {title}");
        let _ = write!(self.body, "\n## {title}\n\n");
    }

    pub(crate) fn text(&mut self, text: &str) {
        let _ = write!(self.body, "{text}\n\n");
    }

    pub(crate) fn table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        let mut row = |cells: &[String]| {
            let line = format!("| {} |", cells.join(" | "));
            println!("{line}");
            let _ = writeln!(self.body, "{line}");
        };
        row(&head.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>());
        row(&head.iter().map(|_| "---".to_owned()).collect::<Vec<_>>());
        for cells in rows {
            row(cells);
        }
        self.body.push('\n');
    }

    /// Holds a figure against its target; the median decides.
    pub(crate) fn target(&mut self, what: &str, figure: Spread, unit: &str, target: Target) {
        let (met, wanted) = match target {
            Target::AtMost(most) => (figure.median <= most, format!("≤ {most}{unit}")),
            Target::AtLeast(least) => (figure.median >= least, format!("≥ {least}{unit}")),
        };
        let Spread { median, min, max } = figure;
        let found = format!("{median:.3}{unit} ({min:.3} … {max:.3})");
        println!("{} {what}: {found}, wanted {wanted}", if met { "met   " } else { "MISSED" });
        self.targets.push([what.to_owned(), found, wanted, if met { "yes" } else { "**no**" }.to_owned()]);
    }

    /// A page on which every figure comes of few rounds.
    pub(crate) fn quick(quick: bool) -> Self {
        Self { quick, ..Self::default() }
    }

    /// How many rounds to measure, where a whole report takes `rounds`.
    pub(crate) fn rounds(&self, rounds: usize) -> usize {
        if self.quick { rounds.div_ceil(3) } else { rounds }
    }

    /// A drawing in a file of its own beside the page.
    pub(crate) fn chart(&mut self, file: &str, caption: &str, chart: &Chart) {
        let _ = write!(self.body, "![{caption}]({file})\n\n");
        self.charts.push((file.to_owned(), chart.svg()));
    }

    /// The names of the drawings, and what is to be in their files.
    pub(crate) fn charts(&self) -> &[(String, String)] {
        &self.charts
    }

    /// The whole page under a head.
    pub(crate) fn markdown(&self, head: &str) -> String {
        let mut page = format!("{head}\n\n| what | median (min … max) | target | met |\n| --- | --- | --- | --- |\n");
        for target in &self.targets {
            let _ = writeln!(page, "| {} |", target.join(" | "));
        }
        page + &self.body
    }
}
