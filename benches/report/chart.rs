//! Lines on two logarithmic scales, as an SVG that is legible on light and dark pages alike.

use std::fmt::Write as _;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 48.0;

const STYLE: &str = "\
    .page{fill:#fff}.ink{fill:#1f2328}.soft{fill:#59636e}.grid{stroke:#d1d9e0;stroke-width:1}\
    .l0{stroke:#0969da}.l1{stroke:#bc4c00}.l2{stroke:#1a7f37}.p0{fill:#0969da}.p1{fill:#bc4c00}.p2{fill:#1a7f37}\
    @media(prefers-color-scheme:dark){.page{fill:#0d1117}.ink{fill:#f0f6fc}.soft{fill:#9198a1}.grid{stroke:#3d444d}\
    .l0{stroke:#58a6ff}.l1{stroke:#f0883e}.l2{stroke:#56d364}.p0{fill:#58a6ff}.p1{fill:#f0883e}.p2{fill:#56d364}}";

/// Up to three lines, and what their axes mean.
pub(crate) struct Chart {
    pub(crate) title: &'static str,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) lines: Vec<Line>,
}

/// Points that belong together, in ascending order; all above zero.
pub(crate) struct Line {
    name: &'static str,
    points: Vec<(f64, f64)>,
}

impl Line {
    pub(crate) const fn new(name: &'static str, points: Vec<(f64, f64)>) -> Self {
        Self { name, points }
    }
}

/// A scale from its smallest to its largest value onto pixels.
struct Scale {
    from: f64,
    to: f64,
    pixels: (f64, f64),
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        let part = (value.ln() - self.from.ln()) / (self.to.ln() - self.from.ln());
        self.pixels.0 + part * (self.pixels.1 - self.pixels.0)
    }
}

impl Chart {
    pub(crate) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let least = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(f64::MAX, f64::min);
        let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(f64::MIN, f64::max);
        let x = Scale { from: least(|p| p.0), to: most(|p| p.0), pixels: (LEFT + 12.0, WIDTH - RIGHT - 24.0) };
        let decade = |value: f64| 10_f64.powf(value);
        let (bottom, top) = (least(|p| p.1).log10().floor(), most(|p| p.1).log10().ceil());
        let y = Scale { from: decade(bottom), to: decade(top), pixels: (HEIGHT - BOTTOM, TOP) };

        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{0}\" \
             font-family=\"system-ui,sans-serif\" font-size=\"12\"><title>{0}</title><style>{STYLE}</style>\
             <rect class=\"page\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\"/>\
             <text class=\"ink\" x=\"16\" y=\"26\" font-size=\"15\" font-weight=\"600\">{0}</text>\n",
            self.title
        );
        let mut tick = y.from;
        while tick <= y.to * 1.01 {
            let at = y.at(tick);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{}\"/><text class=\"soft\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                at + 4.0,
                short(tick)
            );
            tick *= 10.0;
        }
        for (value, _) in self.lines.first().map(|line| line.points.as_slice()).unwrap_or_default() {
            let _ = writeln!(
                svg,
                "<text class=\"soft\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                x.at(*value),
                HEIGHT - BOTTOM + 18.0,
                short(*value)
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"soft\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text class=\"soft\" x=\"16\" y=\"48\">{}</text>",
            f64::midpoint(LEFT, WIDTH),
            HEIGHT - 10.0,
            self.x,
            self.y
        );
        let mut legend = LEFT + 24.0;
        for (number, line) in self.lines.iter().enumerate() {
            line.draw(&mut svg, number, &x, &y);
            let _ = writeln!(
                svg,
                "<circle class=\"p{number}\" cx=\"{legend:.0}\" cy=\"44\" r=\"5\"/><text class=\"ink\" x=\"{:.0}\" y=\"48\">{}</text>",
                legend + 10.0,
                line.name
            );
            legend += 34.0 + 6.6 * f64::from(u32::try_from(line.name.len()).unwrap_or(0));
        }
        svg + "</svg>\n"
    }
}

impl Line {
    fn draw(&self, svg: &mut String, number: usize, x: &Scale, y: &Scale) {
        let mut path = String::new();
        for (index, point) in self.points.iter().enumerate() {
            let verb = if index == 0 { 'M' } else { 'L' };
            let (x, y) = (x.at(point.0), y.at(point.1));
            let _ = write!(path, "{verb}{x:.1} {y:.1}");
            let _ = writeln!(svg, "<circle class=\"p{number}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>");
        }
        let _ = writeln!(svg, "<path class=\"l{number}\" d=\"{path}\" fill=\"none\" stroke-width=\"2\"/>");
    }
}

/// A number in few characters.
fn short(value: f64) -> String {
    match value {
        _ if value >= 1e6 => format!("{}M", value / 1e6),
        _ if value >= 1e4 => format!("{}k", value / 1e3),
        _ if value >= 1.0 => format!("{value:.0}"),
        _ => format!("{}", (value * 1e6).round() / 1e6),
    }
}
