use std::{
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
};

use super::{frames::Frames, loopback::Loopback, transit::Transit, upstream_builder::random};

/// What a [`FlakyProxy`] does with the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Passes everything on at once.
    Pass,
    /// Passes replies on after this delay, always the same, however many are on their way.
    Delay(Duration),
    /// Passes each request on after one delay and each reply after another, always the same.
    DelayBothWays {
        /// How long a request is on its way.
        request: Duration,
        /// How long a reply is on its way.
        reply: Duration,
    },
    /// Passes each reply on after a delay of its own, drawn evenly from `from..to`. None overtakes
    /// another, and those that leave Redis together stay together.
    ///
    /// A range that holds nothing stands for its start.
    Jitter {
        /// The shortest delay.
        from: Duration,
        /// The end of the range, not part of it.
        to: Duration,
    },
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
    /// Passes replies on with the lowest bit of each byte flipped.
    GarbleReplies,
    /// Passes each reply on twice, one copy behind the other. What comes behind them answers the wrong requests, in any mode.
    DoubleReplies,
    /// Closes all connections, and each new one at once.
    Refuse,
    /// Accepts connections, reads nothing and answers nothing. What was sent meanwhile passes
    /// when the mode changes.
    Blackhole,
}

/// A TCP proxy in front of Redis that misbehaves on demand, on a thread of its own until dropped.
///
/// A mode holds for all that is sent after [`set`](Self::set) returned, on old connections and new.
/// What was delayed before comes when it is due, and nothing overtakes it.
///
/// ```
/// # async fn shown() -> Result<(), Box<dyn std::error::Error>> {
/// use outgate::testing::{FlakyProxy, Mode, RedisServer};
///
/// let redis = RedisServer::start()?;
/// let proxy = FlakyProxy::start(redis.addr())?;
/// let url = proxy.url(); // for the store
/// proxy.set(Mode::SwallowReplies); // Redis acts, and nobody hears of it
/// assert_eq!((proxy.mode(), proxy.addr().ip().is_loopback()), (Mode::SwallowReplies, true));
/// proxy.cut();
/// println!("{} requests on {} connections of {url}", proxy.requests(), proxy.connections());
/// # Ok(())
/// # }
/// ```
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

impl Mode {
    fn request_delay(self) -> Duration {
        if let Self::DelayBothWays { request, .. } = self { request } else { Duration::ZERO }
    }

    fn reply_delay(self) -> Duration {
        match self {
            Self::Delay(delay) | Self::DelayBothWays { reply: delay, .. } => delay,
            Self::Jitter { from, to } => random(&(from..to)),
            _ => Duration::ZERO,
        }
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
    // Counted before they are sent: whoever has the reply finds its request counted.
    let mut count = |bytes: &[u8]| shared.requests.fetch_add(frames.feed(bytes), Ordering::Relaxed);
    let (mut requests, mut replies) = (Transit::default(), Transit::default());
    let mut swallowed = false;
    let (mut request, mut reply) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    loop {
        let State { mode, era } = *states.borrow_and_update();
        if era != born || (swallowed && mode != Mode::SwallowReplies) {
            return Ok(());
        }
        let open = mode != Mode::Blackhole;
        tokio::select! {
            // A change of mode comes before whatever was sent after it.
            biased;
            changed = states.changed() => changed.map_err(io::Error::other)?,
            bytes = replies.next(), if open => client.write_all(&bytes).await?,
            bytes = requests.next(), if open => {
                count(&bytes);
                server.write_all(&bytes).await?;
            }
            read = client.read(&mut request), if open => {
                requests.push(mode.request_delay(), some_of(&request, read?)?);
            }
            read = server.read(&mut reply), if open => {
                let bytes = some_of(&reply, read?)?;
                match mode {
                    Mode::SwallowReplies => swallowed = true,
                    Mode::GarbleReplies => {
                        let garbled: Vec<u8> = bytes.iter().map(|byte| byte ^ 1).collect();
                        replies.push(Duration::ZERO, &garbled);
                    }
                    Mode::DoubleReplies => replies.push(Duration::ZERO, &bytes.repeat(2)),
                    Mode::CutBeforeReply(_) if shared.cuts_reply() => return Ok(()),
                    _ => replies.push(mode.reply_delay(), bytes),
                }
            }
        }
    }
}

/// What was read; nothing read means that this end has been closed.
fn some_of(buffer: &[u8], length: usize) -> io::Result<&[u8]> {
    if length == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(&buffer[..length]) }
}
