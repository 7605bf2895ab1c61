//! The same as a live screen.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::io::{self, IsTerminal as _, stdin, stdout};
use std::pin::pin;
use std::time::{Duration, Instant};

use outgate::RedisStore;
use outgate::store::UpstreamFound;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, LineGauge, Paragraph, Sparkline};
use tokio::time::timeout;

use crate::seen::{self, LimitSeen, Seen, Unread};
use crate::show;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(1);
/// How often it finds out which upstreams there are.
const FINDS_EVERY: Duration = Duration::from_secs(15);
/// How often it listens to the terminal while it looks.
const OFTEN: Duration = Duration::from_millis(50);
/// For how many seconds calls are shown.
const SHOWN: usize = 120;

/// What was seen last, and calls per second of before.
#[derive(Default)]
pub(crate) struct Screen {
    all: Vec<Result<Seen, Unread>>,
    calls: HashMap<String, VecDeque<u64>>,
    /// Why nothing could be seen this time.
    wrong: Option<String>,
}

/// Shows what is to be seen, until somebody presses `q`.
pub(crate) async fn watch(store: &RedisStore, name: Option<&str>, scopes: usize) -> Result<(), Box<dyn Error>> {
    if !stdout().is_terminal() || !stdin().is_terminal() {
        return Err(
            "watch needs a terminal; `outgate status` says once what is to be seen, and `status --json` for programs"
                .into(),
        );
    }
    // What is wrong from the beginning is said without a screen.
    let mut screen = Screen::default();
    let at = Instant::now();
    let (found, first) = seen::at_first(store, name, scopes).await?;
    let mut finds = Finds { found, at };
    if first.iter().all(Result::is_err)
        && let Some(unread) = show::unread(&first)
    {
        return Err(unread.into());
    }
    screen.take(Ok(first));
    let mut terminal = ratatui::try_init()?;
    let ended = loop {
        if let Err(error) = terminal.draw(|frame| screen.draw(frame)) {
            break Err(error.into());
        }
        match heard(EVERY) {
            Ok(Some(Heard::Leave)) => break Ok(()),
            Ok(_) => {}
            Err(error) => break Err(error.into()),
        }
        let is_over = || {
            let heard = heard(Duration::ZERO)?;
            if heard == Some(Heard::Resized) {
                terminal.draw(|frame| screen.draw(frame))?;
            }
            Ok(heard == Some(Heard::Leave))
        };
        match unless_over(finds.all(store, name, scopes), is_over).await {
            Ok(Some(seen)) => screen.take(seen),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error.into()),
        }
    };
    ratatui::restore();
    ended
}

/// Which upstreams there are, found out now and then alone: that takes a walk through all keys of the store.
struct Finds {
    found: Vec<UpstreamFound>,
    at: Instant,
}

impl Finds {
    async fn all(
        &mut self,
        store: &RedisStore,
        name: Option<&str>,
        scopes: usize,
    ) -> Result<Vec<Result<Seen, Unread>>, Box<dyn Error>> {
        if self.at.elapsed() >= FINDS_EVERY {
            (self.found, self.at) = (seen::found(store, name).await?, Instant::now());
        }
        seen::all(store, &self.found, scopes).await
    }
}

/// What comes of a look, unless somebody wants to leave meanwhile.
async fn unless_over<T>(
    look: impl Future<Output = T>,
    mut is_over: impl FnMut() -> io::Result<bool>,
) -> io::Result<Option<T>> {
    let mut look = pin!(look);
    loop {
        if let Ok(seen) = timeout(OFTEN, look.as_mut()).await {
            return Ok(Some(seen));
        }
        if is_over()? {
            return Ok(None);
        }
    }
}

/// What the terminal tells.
#[derive(PartialEq, Eq)]
enum Heard {
    /// Somebody wants to leave.
    Leave,
    Resized,
}

/// Listens for so long, or until there is something to do.
fn heard(patience: Duration) -> io::Result<Option<Heard>> {
    let until = Instant::now() + patience;
    while event::poll(until.saturating_duration_since(Instant::now()))? {
        match event::read()? {
            Event::Key(key) => {
                let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if is_interrupt || [KeyCode::Char('q'), KeyCode::Esc].contains(&key.code) {
                    return Ok(Some(Heard::Leave));
                }
            }
            Event::Resize(..) => return Ok(Some(Heard::Resized)),
            _ => {}
        }
    }
    Ok(None)
}

impl Screen {
    /// Takes in what was seen; what was seen before stays where nothing could be.
    fn take(&mut self, seen: Result<Vec<Result<Seen, Unread>>, Box<dyn Error>>) {
        match seen {
            Ok(all) => {
                self.calls.retain(|name, _| all.iter().any(|row| *found(row).name == **name));
                for seen in all.iter().flatten() {
                    let calls = self.calls.entry(seen.known.found.name.to_string()).or_default();
                    calls.push_back(seen.calls);
                    while calls.len() > SHOWN {
                        calls.pop_front();
                    }
                }
                (self.all, self.wrong) = (all, None);
            }
            Err(error) => self.wrong = Some(show::chain(&*error)),
        }
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let [mut body, foot] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
        let shown = self.shown(body.height);
        let more = match self.all.len() - shown.len() {
            0 => String::new(),
            hidden => format!("... and {hidden} more: watch NAME; "),
        };
        let foot_line = match &self.wrong {
            Some(wrong) => Line::from(more + wrong).red(),
            None => Line::from(more + "q: leave").dim(),
        };
        frame.render_widget(Paragraph::new(foot_line), foot);
        if self.all.is_empty() {
            frame.render_widget(Paragraph::new("nobody has used an upstream lately"), body);
        }
        for row in shown {
            let height = height(row).min(body.height);
            self.draw_upstream(frame, row, Rect { height, ..body });
            (body.y, body.height) = (body.y + height, body.height - height);
        }
    }

    /// Those that fit into so many lines: where not all do, first those of which somebody wants to know.
    fn shown(&self, lines: u16) -> Vec<&Result<Seen, Unread>> {
        let mut rows: Vec<_> = self.all.iter().collect();
        if rows.iter().map(|row| usize::from(height(row))).sum::<usize>() > usize::from(lines) {
            rows.sort_by_key(|row| row.as_ref().is_ok_and(|seen| seen.paused.is_none() && seen.known.callers() == 0));
        }
        let mut left = lines;
        rows.retain(|row| {
            // One that is too tall stands alone.
            let rest = left.checked_sub(height(row).min(lines));
            left = rest.unwrap_or(left);
            rest.is_some()
        });
        rows
    }

    fn draw_upstream(&self, frame: &mut Frame<'_>, row: &Result<Seen, Unread>, area: Rect) {
        let title = row.as_ref().map_or_else(|unread| unread.found.name.to_string(), show::headline);
        let block = Block::new().borders(Borders::TOP).title(format!(" {title} ").bold());
        let inner = block.inner(area);
        frame.render_widget(block, area);
        match row {
            Ok(seen) => self.draw_seen(frame, seen, inner),
            Err(unread) => frame.render_widget(Paragraph::new(show::why_unread(unread)).red(), inner),
        }
    }

    fn draw_seen(&self, frame: &mut Frame<'_>, seen: &Seen, area: Rect) {
        let mut rows = area.rows();
        let mut row = || rows.next().unwrap_or_default();
        if let Some(paused) = &seen.paused {
            frame.render_widget(Paragraph::new(show::pause(paused)).red(), row());
        }
        if let Some(text) = show::slowed(seen.rate, seen.slower) {
            frame.render_widget(Paragraph::new(text).yellow(), row());
        }
        let [label, line] = Layout::horizontal([Constraint::Length(18), Constraint::Min(0)]).areas(row());
        frame.render_widget(Paragraph::new(format!("{} calls/s", seen.calls)), label);
        let calls = self.calls.get(&*seen.known.found.name).into_iter().flatten().rev().take(usize::from(line.width));
        let mut calls: Vec<u64> = calls.copied().collect();
        calls.reverse();
        frame.render_widget(Sparkline::default().data(&calls).style(Style::new().fg(Color::Cyan)), line);
        for limit in &seen.limits {
            draw_limit(frame, limit, row());
        }
    }
}

fn found(row: &Result<Seen, Unread>) -> &UpstreamFound {
    row.as_ref().map_or_else(|unread| &unread.found, |seen| &seen.known.found)
}

/// Lines that an upstream takes.
fn height(row: &Result<Seen, Unread>) -> u16 {
    let Ok(seen) = row else { return 2 };
    let special = usize::from(seen.paused.is_some()) + usize::from(show::slowed(seen.rate, seen.slower).is_some());
    u16::try_from(2 + special + seen.limits.len()).unwrap_or(u16::MAX)
}

/// A bar, and what it means.
fn draw_limit(frame: &mut Frame<'_>, limit: &LimitSeen, area: Rect) {
    let [bar, text] = Layout::horizontal([Constraint::Length(24), Constraint::Min(0)]).areas(area);
    #[expect(clippy::cast_precision_loss, reason = "a bar of some characters")]
    let part = ((limit.used + limit.booked + limit.outside) as f64 / limit.quota.max(1) as f64).clamp(0.0, 1.0);
    let color = if part < 0.7 {
        Color::Green
    } else if part < 1.0 {
        Color::Yellow
    } else {
        Color::Red
    };
    let gauge = LineGauge::default().ratio(part);
    frame.render_widget(gauge.filled_style(Style::new().fg(color)).unfilled_style(Style::new().dim()), bar);
    frame.render_widget(Paragraph::new(format!(" {}", show::line(limit))), text);
}

#[cfg(test)]
mod tests;
