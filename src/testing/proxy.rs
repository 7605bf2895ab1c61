use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{frames::Frames, loopback::Loopback};

/// What a [`FlakyProxy`] does with the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Passes everything on at once.
    Pass,
    /// Passes replies on after this delay, always the same, however many are on their way.
    Delay(Duration),
    /// Passes requests on and drops the replies; the connection stays.
    ///
    /// A connection that lost a reply is closed when the mode changes: later replies would answer
    /// the wrong requests.
    SwallowReplies,
    /// Passes requests on, but closes both ends in place of the next so many replies; after them
    /// it is [`Pass`](Self::Pass).
    ///
    /// The server has acted by then, since what is lost is its reply.
    CutBeforeReply(usize),
    /// Closes all connections, and each new one at once.
    Refuse,
    /// Accepts connections, reads nothing and answers nothing. What was sent meanwhile passes
    /// when the mode changes.
    Blackhole,
}

/// A TCP proxy in front of Redis that misbehaves on demand, on a thread of its own until dropped.
///
/// A mode holds for all that is sent after [`set`](Self::set) returned, on old connections and new.
#[derive(Debug)]
pub struct FlakyProxy {
    server: Loopback,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    state: watch::Sender<State>,
    connections: AtomicUsize,
    requests: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
struct State {
    mode: Mode,
    /// A connection of an earlier era is closed. A mode alone could pass unseen when it changes
    /// twice in a row.
    era: u64,
}

impl FlakyProxy {
    /// Starts a proxy in front of `target`, in mode [`Pass`](Mode::Pass), on a free port of the
    /// loopback interface.
    ///
    /// # Errors
    ///
    /// When no thread, runtime or port is to be had.
    pub fn start(target: SocketAddr) -> io::Result<Self> {
        let (state, _) = watch::channel(State { mode: Mode::Pass, era: 0 });
        let shared =
            Arc::new(Shared { target, state, connections: AtomicUsize::new(0), requests: AtomicUsize::new(0) });
        let behind = Arc::clone(&shared);
        let server = Loopback::start("flaky-proxy", move |client| {
            let shared = Arc::clone(&behind);
            async move {
                shared.connections.fetch_add(1, Ordering::Relaxed);
                // How a connection ends is what this proxy is for.
                let _ = relay(client, &shared).await;
            }
        })?;
        Ok(Self { server, shared })
    }

    /// Where to connect instead of to Redis itself.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr())
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// Changes the mode.
    pub fn set(&self, mode: Mode) {
        let mode = if mode == Mode::CutBeforeReply(0) { Mode::Pass } else { mode };
        self.shared.state.send_modify(|state| {
            state.mode = mode;
            state.era += u64::from(mode == Mode::Refuse);
        });
    }

    /// The mode it is in.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.shared.state.borrow().mode
    }

    /// Closes all connections, once. New ones fare as the mode says.
    pub fn cut(&self) {
        self.shared.state.send_modify(|state| state.era += 1);
    }

    /// How many connections were accepted.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// How many whole requests were passed on to Redis.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Whether this reply is one of those to be cut.
    fn cuts_reply(&self) -> bool {
        self.state.send_if_modified(|state| {
            let Mode::CutBeforeReply(left) = state.mode else {
                return false;
            };
            state.mode = if left > 1 { Mode::CutBeforeReply(left - 1) } else { Mode::Pass };
            true
        })
    }
}

/// Both ends are closed when this returns.
async fn relay(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut states = shared.state.subscribe();
    let State { mode, era: born } = *states.borrow_and_update();
    if mode == Mode::Refuse {
        return Ok(());
    }
    let open = |state: &State| state.mode != Mode::Blackhole || state.era != born;
    states.wait_for(open).await.map_err(io::Error::other)?;
    let mut server = TcpStream::connect(shared.target).await?;
    server.set_nodelay(true)?;

    let mut frames = Frames::default();
    let mut late = VecDeque::new();
    let mut swallowed = false;
    let (mut request, mut reply) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    loop {
        let State { mode, era } = *states.borrow_and_update();
        if era != born || (swallowed && mode != Mode::SwallowReplies) {
            return Ok(());
        }
        let open = mode != Mode::Blackhole;
        let due = late.front().map(|(due, _)| *due);
        let in_due_time = sleep_until(due.unwrap_or_else(Instant::now));
        tokio::select! {
            // A change of mode comes before whatever was sent after it.
            biased;
            changed = states.changed() => changed.map_err(io::Error::other)?,
            () = in_due_time, if open && due.is_some() => {
                if let Some((_, bytes)) = late.pop_front() {
                    let bytes: Vec<u8> = bytes;
                    client.write_all(&bytes).await?;
                }
            }
            read = client.read(&mut request), if open => {
                let bytes = some_of(&request, read?)?;
                // Counted before it is sent: whoever has the reply finds it counted.
                shared.requests.fetch_add(frames.feed(bytes), Ordering::Relaxed);
                server.write_all(bytes).await?;
            }
            read = server.read(&mut reply), if open => {
                let bytes = some_of(&reply, read?)?;
                match mode {
                    Mode::SwallowReplies => swallowed = true,
                    Mode::CutBeforeReply(_) if shared.cuts_reply() => return Ok(()),
                    Mode::Delay(delay) => late.push_back((Instant::now() + delay, bytes.to_vec())),
                    // Never past one that is still on its way.
                    _ if due.is_some() => late.push_back((Instant::now(), bytes.to_vec())),
                    _ => client.write_all(bytes).await?,
                }
            }
        }
    }
}

/// What was read; nothing read means that this end has been closed.
fn some_of(buffer: &[u8], length: usize) -> io::Result<&[u8]> {
    if length == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(&buffer[..length]) }
}
