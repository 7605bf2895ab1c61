//! The live screen in a terminal, which `script` makes.

use std::num::NonZeroU16;
use std::process::Stdio;
use std::time::Duration;

use outgate::testing::RedisServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{sleep, timeout};
use vt100::{Parser, Screen};

use crate::uses_github;

/// How long something may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal in which the live screen runs.
pub(crate) struct Terminal {
    child: Child,
    keys: ChildStdin,
    output: ChildStdout,
    parser: Parser,
    /// All that the terminal was sent.
    pub(crate) sent: Vec<u8>,
}

impl Terminal {
    /// Runs a command of a shell in a terminal of so many lines and columns.
    pub(crate) fn run(server: &RedisServer, rows: u16, columns: u16, words: &str) -> Self {
        let words = format!("stty rows {rows} cols {columns}; {words}");
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", &words, "/dev/null"]);
        command
            .env("OUTGATE_REDIS", server.url())
            .env("OUTGATE", env!("CARGO_BIN_EXE_outgate"))
            .env("SHELL", "/bin/sh");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let (keys, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let [rows, columns] = [rows, columns].map(|size| NonZeroU16::new(size).unwrap());
        Self { child, keys, output, parser: Parser::new(rows, columns, 0), sent: Vec::new() }
    }

    pub(crate) fn screen(&self) -> &Screen {
        self.parser.screen()
    }

    /// Takes in what the terminal is sent next; nothing after its end.
    pub(crate) async fn take(&mut self) -> bool {
        let mut bytes = [0; 4_096];
        let count = timeout(PATIENCE, self.output.read(&mut bytes)).await.expect("something is sent").unwrap();
        self.parser.process(&bytes[..count]);
        self.sent.extend(&bytes[..count]);
        count > 0
    }

    pub(crate) async fn press(&mut self, key: &str) {
        self.keys.write_all(key.as_bytes()).await.unwrap();
    }

    /// Until the first look is drawn.
    async fn until_drawn(&mut self) {
        while !self.screen().contents().contains("q: leave") {
            assert!(self.take().await, "{}", self.screen().contents());
        }
    }

    /// How the command ends.
    pub(crate) async fn end(&mut self) -> Option<i32> {
        while self.take().await {}
        self.child.wait().await.unwrap().code()
    }
}

#[tokio::test]
async fn the_live_screen_is_drawn_in_a_terminal_and_q_leaves_it_as_it_was() {
    let server = RedisServer::start().unwrap();
    let _throttle = uses_github(&server).await;

    for leave in ["q", "\x03", "\x1b"] {
        let words = r#"stty -g; "$OUTGATE" watch; echo "code $?"; stty -g; exit 7"#;
        let mut terminal = Terminal::run(&server, 12, 100, words);
        terminal.until_drawn().await;
        let shown = terminal.screen().contents();
        assert!(shown.starts_with(" github: 1 process, nobody waits ─"), "{shown}");
        assert!(shown.contains("1 of 3"), "{shown}");
        assert!(terminal.screen().alternate_screen() && terminal.screen().hide_cursor());

        terminal.press(leave).await;
        assert_eq!(terminal.end().await, Some(7), "the shell's");
        let (screen, left) = (terminal.screen(), terminal.screen().contents());
        assert!(!screen.alternate_screen() && !screen.hide_cursor());
        let [before, code, after] = left.lines().collect::<Vec<_>>()[..] else { panic!("{leave:?}: {left}") };
        assert_eq!((code, after), ("code 0", before), "{leave:?}");
    }
}

#[tokio::test]
async fn what_is_wrong_from_the_beginning_is_said_without_a_screen() {
    let server = RedisServer::start().unwrap();
    let mut terminal = Terminal::run(&server, 12, 100, r#"exec "$OUTGATE" watch gitlab"#);
    assert_eq!(terminal.end().await, Some(1));
    let said = String::from_utf8_lossy(&terminal.sent).into_owned();
    assert_eq!(said, "outgate: no process has used an upstream \"gitlab\" lately; in use: none\r\n");
}

#[tokio::test]
async fn q_leaves_also_while_the_store_is_silent() {
    let server = RedisServer::start().unwrap();
    uses_github(&server).await.close().await;
    let mut terminal = Terminal::run(&server, 12, 100, r#"exec "$OUTGATE" watch"#);
    terminal.until_drawn().await;
    // Scripts are held up until then, and all else is answered.
    server.command(&["CLIENT", "PAUSE", "600000", "WRITE"]).unwrap();
    let waits = || server.command(&["INFO", "clients"]).unwrap().text().unwrap().contains("blocked_clients:1");
    while !waits() {
        sleep(Duration::from_millis(5)).await;
    }
    terminal.press("q").await;
    assert_eq!(terminal.end().await, Some(0));
    let sent = String::from_utf8_lossy(&terminal.sent).into_owned();
    assert!(!sent.contains("cannot be"), "it waits for no look: {sent}");
}
