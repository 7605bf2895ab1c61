use std::{
    env, fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    process,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tokio::net::TcpSocket;

use super::{
    Reply, RespClient,
    process::{OUTPUT, Process},
};

const PROGRAM: &str = "redis-server";
/// Names another program that is started instead, such as that of a Valkey.
const OTHER: &str = "OUTGATE_TEST_SERVER";
/// The configuration of a Sentinel.
const CONFIG: &str = "sentinel.conf";
/// Stands for a free port among the arguments.
const FREE: &str = "{free}";
/// How long a server may take to answer its first PING.
const DEADLINE: Duration = Duration::from_secs(20);
/// How long a reply to [`RedisServer::command`] may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A Redis of one's own: a real `redis-server` process on a free loopback port, empty and without
/// persistence. Where the environment names a program in `OUTGATE_TEST_SERVER`, such as `/path/valkey-server`, it is that.
///
/// It ends, and its directory is removed, when this is dropped. It also does not survive this
/// process being killed: a `sh` beside it watches for that.
///
/// ```
/// # async fn shown() -> Result<(), Box<dyn std::error::Error>> {
/// use outgate::testing::{RedisServer, Reply};
/// use std::time::Duration;
///
/// let redis = RedisServer::start()?; // RedisServer::start_with(&["--maxmemory", "2mb"]) has more arguments
/// println!("{} is process {:?} on port {} of {}", redis.url(), redis.pid(), redis.port(), redis.addr().ip());
/// assert_eq!(redis.command(&["DBSIZE"])?.int(), Some(0));
///
/// let mut client = redis.client()?;
/// client.set_patience(Duration::from_millis(100))?;
/// redis.pause()?; // frozen: it answers nothing
/// client.send(&["PING"])?;
/// redis.resume()?;
/// assert!(matches!(client.receive()?, Reply::Simple(_)));
///
/// redis.restart()?; // its data is gone
/// redis.stop();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RedisServer {
    port: u16,
    dir: PathBuf,
    extra: Vec<String>,
    /// Of a Sentinel, which keeps what it knows in it.
    config: Option<String>,
    /// What it asks its clients for.
    password: Option<String>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Running(Process),
    /// The port is bound where possible, so that nobody else gets it and connecting to it is
    /// refused.
    Stopped(#[expect(dead_code, reason = "held, not used")] Option<TcpSocket>),
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    ///
    /// When `redis-server` is not installed, or does not come up. Both are for a test to fail on:
    /// skipping it would promise what nobody tried.
    pub fn start() -> io::Result<Self> {
        Self::start_with(&[])
    }

    /// Like [`start`](Self::start), with more arguments for `redis-server`, such as `--maxmemory
    /// 2mb`. Each `{free}` becomes a port of its own that nobody listens on; `CONFIG GET` tells
    /// which. A password, by `--requirepass`, is told by [`command`](Self::command) and [`client`](Self::client), and to a primary.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start).
    pub fn start_with(extra: &[&str]) -> io::Result<Self> {
        Self::start_as(extra, None)
    }

    /// A Sentinel with these lines in its configuration.
    pub(super) fn start_sentinel(config: &str) -> io::Result<Self> {
        Self::start_as(&[], Some(config))
    }

    fn start_as(extra: &[&str], config: Option<&str>) -> io::Result<Self> {
        const ATTEMPTS: usize = 10;
        let mut attempts = 0;
        loop {
            attempts += 1;
            match Self::attempt(&program(), extra, config) {
                // Somebody else took the port in between.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts < ATTEMPTS => {}
                outcome => return outcome,
            }
        }
    }

    fn attempt(program: &str, extra: &[&str], config: Option<&str>) -> io::Result<Self> {
        let mut ports = free_ports(1 + extra.iter().filter(|word| **word == FREE).count())?.into_iter();
        let port = ports.next().unwrap_or_default();
        let dir = env::temp_dir().join(format!("outgate-redis-{}-{:016x}", process::id(), fastrand::u64(..)));
        fs::create_dir(&dir)?;
        let words = extra.iter().map(|&word| match word {
            FREE => ports.next().unwrap_or_default().to_string(),
            word => word.to_owned(),
        });
        let password = password(extra, config);
        let extra = words.collect();
        let config = config.map(str::to_owned);
        let server = Self { port, dir, extra, config, password, state: Mutex::new(State::Stopped(None)) };
        if let Some(lines) = &server.config {
            fs::write(server.dir.join(CONFIG), lines)?;
        }
        *server.state() = State::Running(server.launch(program)?);
        Ok(server)
    }

    /// For clients: `redis://127.0.0.1:<port>`, without a password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr())
    }

    /// Where it listens, or would.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Its port, the same after a [`restart`](Self::restart).
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The id of its process; `None` while stopped.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        if let State::Running(process) = &*self.state() { Some(process.id()) } else { None }
    }

    /// Kills it: connections break, and new ones are refused. Its data is gone, its port is kept.
    pub fn stop(&self) {
        let mut state = self.state();
        if matches!(*state, State::Running(_)) {
            // The process must be gone before its port can be bound.
            *state = State::Stopped(None);
            *state = State::Stopped(reserve(self.addr()).ok());
        }
    }

    /// Kills it if it runs, and starts an empty one on the same port.
    ///
    /// # Errors
    ///
    /// When the new one does not come up; it is stopped then.
    pub fn restart(&self) -> io::Result<()> {
        let mut state = self.state();
        *state = State::Stopped(None);
        *state = State::Running(self.launch(&program())?);
        Ok(())
    }

    /// Freezes it: connections stay and can be opened, nothing is answered.
    ///
    /// # Errors
    ///
    /// When it is stopped, or the `kill` command fails.
    pub fn pause(&self) -> io::Result<()> {
        self.signal("STOP")
    }

    /// Ends a [`pause`](Self::pause): what was sent meanwhile is answered.
    ///
    /// # Errors
    ///
    /// As for [`pause`](Self::pause).
    pub fn resume(&self) -> io::Result<()> {
        self.signal("CONT")
    }

    /// A connection to it. Each reply may take 5 s.
    ///
    /// # Errors
    ///
    /// When it is stopped.
    pub fn client(&self) -> io::Result<RespClient> {
        let mut client = RespClient::connect(self.addr(), PATIENCE)?;
        if let Some(password) = &self.password {
            // Where it has another by now, it says so to what is asked next.
            client.command(&["AUTH", password])?;
        }
        Ok(client)
    }

    /// The password that it was started with.
    pub(super) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Sends one command on a connection of its own. `DEBUG` is allowed. A refusal by Redis is a
    /// [`Reply::Error`].
    ///
    /// # Errors
    ///
    /// When it is stopped, or paused for longer than 5 s.
    pub fn command(&self, words: &[&str]) -> io::Result<Reply> {
        self.client()?.command(words)
    }

    fn signal(&self, name: &str) -> io::Result<()> {
        match &*self.state() {
            State::Running(process) => process.signal(name),
            State::Stopped(_) => Err(io::Error::new(io::ErrorKind::NotConnected, "redis-server is stopped")),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process that answers on the port.
    fn launch(&self, program: &str) -> io::Result<Process> {
        let mut process = Process::start(program, &self.args(), &self.dir).map_err(|error| explain(program, error))?;
        let deadline = Instant::now() + DEADLINE;
        while !self.is_answered_by(process.id()) {
            if process.ended()?.is_some() || Instant::now() > deadline {
                return Err(failure(&fs::read_to_string(self.dir.join(OUTPUT))?));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(process)
    }

    fn args(&self) -> Vec<String> {
        let (port, dir) = (self.port.to_string(), self.dir.to_string_lossy());
        let mut args: Vec<String> = ["--bind", "127.0.0.1", "--port", &port, "--dir", &dir].map(str::to_owned).into();
        if self.config.is_some() {
            // It is written to, and comes first.
            args.insert(0, self.dir.join(CONFIG).to_string_lossy().into_owned());
            args.push("--sentinel".to_owned());
            return args;
        }
        args.extend(["--save", "", "--appendonly", "no", "--daemonize", "no"].map(str::to_owned));
        // For tests of failover and of slow scripts: replicas attach at once, and DEBUG works.
        args.extend(["--repl-diskless-sync-delay", "0", "--enable-debug-command", "local"].map(str::to_owned));
        args.extend(self.password.iter().flat_map(|password| ["--masterauth".to_owned(), password.clone()]));
        args.extend_from_slice(&self.extra);
        args
    }

    /// Another server may have taken the port: an answer is not enough, it must be this one's.
    fn is_answered_by(&self, pid: u32) -> bool {
        let identity = format!("process_id:{pid}");
        self.command(&["INFO", "server"])
            .is_ok_and(|info| info.text().is_some_and(|text| text.lines().any(|line| line == identity)))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        *self.state() = State::Stopped(None);
        // What is left lies in the system's directory for such things.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn program() -> String {
    env::var(OTHER).unwrap_or_else(|_| PROGRAM.to_owned())
}

/// The password among some arguments, or in a configuration.
fn password(extra: &[&str], config: Option<&str>) -> Option<String> {
    let mut words = extra.iter().copied().chain(config).flat_map(str::split_whitespace);
    words.find(|word| ["--requirepass", "requirepass"].contains(word))?;
    words.next().map(str::to_owned)
}

/// So many ports that nobody listens on.
fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    let held = (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<io::Result<Vec<_>>>()?;
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

fn reserve(addr: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // The connections of the killed server linger.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}

fn explain(program: &str, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::NotFound {
        return error;
    }
    let what = format!("{program} is not on PATH, and these tests need a real Redis, 7.0 or newer");
    let help = "install redis-server (Debian: apt install redis-server; macOS: brew install redis), \
                or let `make test` find one";
    io::Error::new(error.kind(), format!("{what}: {help}"))
}

fn failure(log: &str) -> io::Error {
    let taken = log.contains("Address already in use");
    let kind = if taken { io::ErrorKind::AddrInUse } else { io::ErrorKind::Other };
    io::Error::new(kind, format!("redis-server did not come up; it said:\n{log}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_redis_is_an_error_that_says_what_to_do() {
        let error = RedisServer::attempt("redis-server-that-nobody-has", &[], None)
            .map(|server| server.port())
            .map_err(|e| e.to_string());
        assert!(error.as_ref().is_err_and(|text| text.contains("install") && text.contains("make test")), "{error:?}");
    }
}
