use std::{
    future, io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpSocket, TcpStream};

use super::loopback::Loopback;

/// A way in which an upstream fails to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Nobody listens: connecting fails, so nothing can have been sent.
    RefuseConnection,
    /// Accepts and closes at once, reading nothing.
    CloseAtOnce,
    /// Reads the whole request, then closes without an answer.
    CloseAfterRequest,
    /// Reads the whole request and leaves the caller waiting.
    NeverAnswer,
}

/// A server with a [`Fault`], until dropped.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use outgate::testing::{Fault, FaultyUpstream};
///
/// let upstream: FaultyUpstream = Fault::CloseAfterRequest.start()?;
/// assert!(reqwest::get(upstream.url()).await.is_err(), "it may have been executed");
/// assert!(upstream.requests() >= 1 && upstream.connections() >= 1 && upstream.addr().ip().is_loopback());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FaultyUpstream {
    place: Place,
    seen: Arc<Seen>,
}

#[derive(Debug)]
enum Place {
    Served(Loopback),
    /// Bound but not listened on: nobody else gets the port, and connecting to it is refused.
    Reserved(SocketAddr, #[expect(dead_code, reason = "held, not used")] TcpSocket),
}

#[derive(Debug, Default)]
struct Seen {
    connections: AtomicUsize,
    requests: AtomicUsize,
}

impl Fault {
    /// Starts a server with this fault on a free port of the loopback interface.
    ///
    /// # Errors
    ///
    /// When no thread, runtime or port is to be had.
    pub fn start(self) -> io::Result<FaultyUpstream> {
        let seen = Arc::new(Seen::default());
        let place = if self == Self::RefuseConnection {
            let socket = TcpSocket::new_v4()?;
            socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
            Place::Reserved(socket.local_addr()?, socket)
        } else {
            let seen = Arc::clone(&seen);
            Place::Served(Loopback::start("faulty-upstream", move |stream| fail(self, Arc::clone(&seen), stream))?)
        };
        Ok(FaultyUpstream { place, seen })
    }
}

impl FaultyUpstream {
    /// Where to call, without a trailing slash.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// Where it listens, or would.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        match &self.place {
            Place::Served(server) => server.addr(),
            Place::Reserved(addr, _) => *addr,
        }
    }

    /// How many connections were accepted.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::Relaxed)
    }

    /// How many requests were read completely.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.seen.requests.load(Ordering::Relaxed)
    }
}

async fn fail(fault: Fault, seen: Arc<Seen>, stream: TcpStream) {
    seen.connections.fetch_add(1, Ordering::Relaxed);
    if fault == Fault::CloseAtOnce {
        return;
    }
    let service = service_fn(|request: Request<Incoming>| {
        let seen = Arc::clone(&seen);
        async move {
            request.into_body().collect().await.map_err(io::Error::other)?;
            seen.requests.fetch_add(1, Ordering::Relaxed);
            if fault == Fault::NeverAnswer {
                future::pending::<()>().await;
            }
            // hyper closes the connection of a service that fails, without a word.
            Err::<Response<Full<Bytes>>, _>(io::Error::other("closed after the request"))
        }
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
