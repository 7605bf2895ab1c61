//! The live screen as an SVG, for the guide.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use outgate::testing::RedisServer;
use vt100::{Cell, Color, Screen};

use crate::processes::Processes;
use crate::terminal::Terminal;

/// Pixels of a character.
const WIDTH: u16 = 8;
const HEIGHT: u16 = 18;
const MARGIN: u16 = 14;
const TITLE: &str = "outgate watch: bars of the limits of four upstreams, calls per second, a pause and who waits";
const STYLE: &str = "text{white-space:pre;fill:#d1d9e0}.b{font-weight:700}.d{fill:#9198a1}.r{fill:#ff7b72}.g{fill:#56d364}.y{fill:#e3b341}\
    .c{fill:#58a6ff}.w{fill:#d1d9e0}";

/// How a character is drawn: its colour, and whether as a letter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Letter,
    /// `─`, which fonts draw with gaps.
    Line,
    /// `▁` to `█`, so many eighths.
    Bar(u16),
}

fn kind(cell: &Cell) -> Kind {
    match cell.contents().chars().next() {
        Some('─') => Kind::Line,
        Some(bar @ '▁'..='█') => Kind::Bar(u16::try_from(u32::from(bar) - 0x2580).unwrap()),
        _ => Kind::Letter,
    }
}

fn class(cell: &Cell) -> &'static str {
    match cell.fgcolor() {
        Color::Idx(1 | 9) => "r",
        Color::Idx(2 | 10) => "g",
        Color::Idx(3 | 11) => "y",
        Color::Idx(6 | 14) => "c",
        _ if cell.bold() => "b",
        _ if cell.dim() => "d",
        _ => "w",
    }
}

/// What a terminal shows.
fn svg(screen: &Screen) -> String {
    let (rows, columns) = screen.size();
    let (width, height) = (columns.get() * WIDTH + 2 * MARGIN, rows.get() * HEIGHT + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' role='img' aria-label='{TITLE}' \
         font-family='ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace' font-size='13'>\
         <title>{TITLE}</title><style>{STYLE}</style><rect width='{width}' height='{height}' rx='8' fill='#0d1117'/>\n"
    );
    for row in 0..rows.get() {
        let cells: Vec<&Cell> = (0..columns.get()).filter_map(|column| screen.cell(row, column)).collect();
        let mut column = 0;
        // What looks alike is drawn together; letters as far as the next two blanks.
        for run in cells.chunk_by(|one, next| (kind(one), class(one)) == (kind(next), class(next))) {
            draw_run(&mut svg, run, row, column);
            column += u16::try_from(run.len()).unwrap();
        }
    }
    svg + "</svg>\n"
}

fn draw_run(svg: &mut String, run: &[&Cell], row: u16, column: u16) {
    let (class, left, top) = (class(run[0]), MARGIN + column * WIDTH, MARGIN + row * HEIGHT);
    let width = u16::try_from(run.len()).unwrap() * WIDTH;
    match kind(run[0]) {
        Kind::Line => {
            let top = top + HEIGHT / 2 - 1;
            let _ = writeln!(svg, "<rect class='{class}' x='{left}' y='{top}' width='{width}' height='2'/>");
        }
        Kind::Bar(eighths) => {
            let height = HEIGHT * eighths / 8;
            let top = top + HEIGHT - height;
            let _ = writeln!(svg, "<rect class='{class}' x='{left}' y='{top}' width='{width}' height='{height}'/>");
        }
        Kind::Letter => {
            let letters = |cell: &&Cell| if cell.has_contents() { cell.contents().to_owned() } else { " ".to_owned() };
            let text: String = run.iter().map(letters).collect();
            let mut at = 0;
            for words in text.split_inclusive("  ") {
                let (count, blank) = (words.chars().count(), words.len() - words.trim_start().len());
                let word = words.trim();
                if !word.is_empty() {
                    let left = usize::from(left) + (at + blank) * usize::from(WIDTH);
                    let (base, width) = (top + 13, word.chars().count() * usize::from(WIDTH));
                    let word = word.replace('&', "&amp;").replace('<', "&lt;");
                    let _ = writeln!(
                        svg,
                        "<text class='{class}' x='{left}' y='{base}' textLength='{width}' lengthAdjust='spacingAndGlyphs'>{word}</text>"
                    );
                }
                at += count;
            }
        }
    }
}

/// The same for where no file can lie beside a page.
fn uri(svg: &str) -> String {
    let mut uri = "data:image/svg+xml,".to_owned();
    for byte in svg.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'=' | b'/' | b':' | b'.' | b',' | b'-' => uri.push(byte.into()),
            _ => {
                let _ = write!(uri, "%{byte:02X}");
            }
        }
    }
    uri
}

#[test]
fn what_a_terminal_shows_is_drawn_with_its_colours() {
    let size = |size| std::num::NonZeroU16::new(size).unwrap();
    let mut parser = vt100::Parser::new(size(2), size(20), 0);
    parser.process("\x1b[1m a<b\x1b[0m  \x1b[36m▁█\x1b[31m──".as_bytes());
    let svg = svg(parser.screen());
    for drawn in [
        "<text class='b' x='22' y='27' textLength='24' lengthAdjust='spacingAndGlyphs'>a&lt;b</text>",
        "<rect class='c' x='62' y='30' width='8' height='2'/>",
        "<rect class='c' x='70' y='14' width='8' height='18'/>",
        "<rect class='r' x='78' y='22' width='16' height='2'/>",
    ] {
        assert!(svg.contains(drawn), "{drawn}: {svg}");
    }
    assert_eq!(uri("<a b='#1'>\n"), "data:image/svg+xml,%3Ca%20b=%27%231%27%3E%0A");
}

#[test]
fn the_docs_show_the_picture_that_lies_beside_the_guide() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("guide");
    let [svg, shown] = ["watch.svg", "watch.uri"].map(|name| fs::read_to_string(guide.join(name)).unwrap());
    assert_eq!(shown, uri(&svg));
}

#[tokio::test]
#[ignore = "draws guide/watch.svg, in a minute and a half"]
async fn draw() {
    let server = RedisServer::start().unwrap();
    let _processes = Processes::start(&server).await;
    let mut terminal = Terminal::run(&server, 18, 128, r#"exec "$OUTGATE" watch"#);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(75) {
        assert!(terminal.take().await);
    }
    println!("{}", terminal.screen().contents());
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("guide");
    let svg = svg(terminal.screen());
    fs::write(guide.join("watch.uri"), uri(&svg)).unwrap();
    fs::write(guide.join("watch.svg"), svg).unwrap();
}
