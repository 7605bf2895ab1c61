//! The picture of the effect: what arrives at the upstream with Outgate, and with a limiter in each process.

use std::fmt::Write as _;

use outgate::testing::Arrival;

use crate::cluster::QUOTA;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 40.0;
/// Of one of both panels.
const PANEL: f64 = 270.0;
const GAP: f64 = 30.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 40.0;
/// A bar for each of so many microseconds.
const BAR: i64 = 250_000;

/// As in the charts of `make bench`: legible on light and dark pages alike.
const STYLE: &str = "\
    .page{fill:#fff}.ink{fill:#1f2328}.soft{fill:#59636e}.grid{stroke:#d1d9e0;stroke-width:1}.served{fill:#0969da}.refused{fill:#cf222e}\
    @media(prefers-color-scheme:dark){.page{fill:#0d1117}.ink{fill:#f0f6fc}.soft{fill:#9198a1}.grid{stroke:#3d444d}\
    .served{fill:#58a6ff}.refused{fill:#ff7b72}}";

/// Calls in a bar, by what the upstream said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bar {
    served: u32,
    refused: u32,
}

/// Bars for so many seconds, from the first arrival on.
fn bars(arrivals: &[Arrival], seconds: u32) -> Vec<Bar> {
    let begin = arrivals.iter().map(|arrival| arrival.at).min().unwrap_or(0);
    let count = i64::from(seconds) * 1_000_000 / BAR;
    let mut bars = vec![Bar::default(); usize::try_from(count).unwrap_or(0)];
    for arrival in arrivals {
        let at = usize::try_from((arrival.at - begin) / BAR).ok();
        if let Some(bar) = at.and_then(|at| bars.get_mut(at)) {
            let of = if arrival.admitted { &mut bar.served } else { &mut bar.refused };
            *of += 1;
        }
    }
    bars
}

/// Both runs as an SVG: without Outgate on the left, with it on the right.
pub(crate) fn svg(unshared: &[Arrival], shared: &[Arrival], processes: u32, seconds: u32) -> String {
    let panels = [("A limiter in each", unshared), ("Outgate", shared)].map(|(name, arrivals)| {
        let refused = arrivals.iter().filter(|arrival| !arrival.admitted).count();
        (format!("{name}: {refused} of {} calls refused", arrivals.len()), bars(arrivals, seconds))
    });
    let bars = panels.iter().flat_map(|(_, bars)| bars);
    let most = f64::from(bars.map(|bar| bar.served + bar.refused).max().unwrap_or(0).max(1));
    let title = format!("{processes} processes, {QUOTA} calls a second allowed to all of them");
    let (bottom, height) = (HEIGHT - BOTTOM, HEIGHT - BOTTOM - TOP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\" \
         font-family=\"system-ui,sans-serif\" font-size=\"12\"><title>{title}</title><style>{STYLE}</style>\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\"/>\
         <text class=\"ink\" x=\"16\" y=\"26\" font-size=\"15\" font-weight=\"600\">{title}</text>\n\
         <rect class=\"served\" x=\"16\" y=\"37\" width=\"10\" height=\"10\"/><text class=\"soft\" x=\"32\" y=\"46\">served</text>\
         <rect class=\"refused\" x=\"86\" y=\"37\" width=\"10\" height=\"10\"/><text class=\"soft\" x=\"102\" y=\"46\">refused with 429</text>\n"
    );
    let mut left = LEFT;
    for (name, bars) in &panels {
        let _ = writeln!(svg, "<text class=\"ink\" x=\"{left}\" y=\"72\">{name}</text>");
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{left} {bottom}h{PANEL}\"/>");
        let width = PANEL / f64::from(u32::try_from(bars.len()).unwrap_or(u32::MAX).max(1));
        let mut x = left;
        for Bar { served, refused } in bars {
            let [served, refused] = [served, refused].map(|calls| f64::from(*calls) / most * height);
            let mut part = |class: &str, top: f64, height: f64| {
                if height > 0.0 {
                    let width = width - 1.0;
                    let _ = writeln!(
                        svg,
                        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
                    );
                }
            };
            part("served", bottom - served, served);
            part("refused", bottom - served - refused, refused);
            x += width;
        }
        for (second, anchor) in [(0, "start"), (seconds, "end")] {
            let x = left + if second == 0 { 0.0 } else { PANEL };
            let y = HEIGHT - BOTTOM + 18.0;
            let _ =
                writeln!(svg, "<text class=\"soft\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{second} s</text>");
        }
        left += PANEL + GAP;
    }
    let _ = writeln!(
        svg,
        "<text class=\"soft\" x=\"16\" y=\"{TOP}\">{most:.0}</text><text class=\"soft\" x=\"{LEFT}\" y=\"{}\">calls in each quarter of a second</text>",
        HEIGHT - 6.0
    );
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_who_arrived_is_drawn_where_nobody_did() {
        assert_eq!(bars(&[], 1), [Bar::default(); 4]);
        assert!(svg(&[], &[], 4, 1).ends_with("</svg>\n"));
    }
}
