//! A TCP listener on the loopback interface, on a thread and async runtime of its own.

use std::{
    future::Future,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Mutex, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    runtime,
    sync::oneshot,
};

/// A thread that somebody's closure keeps busy is left to itself after so long.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves until dropped; then the port is closed, every connection is cut, and the thread is gone, unless a closure blocks it.
#[derive(Debug)]
pub(super) struct Loopback {
    addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Closed when the thread ends.
    ended: Mutex<mpsc::Receiver<()>>,
}

impl Loopback {
    /// Runs what `on_connect` returns for each connection, all side by side on one thread.
    pub(super) fn start<C, F>(name: &str, on_connect: C) -> io::Result<Self>
    where
        C: Fn(TcpStream) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let (bound, is_bound) = mpsc::channel();
        let serve = async move {
            let listener = match listen() {
                Ok((listener, addr)) => {
                    let _ = bound.send(Ok(addr));
                    listener
                }
                Err(error) => {
                    let _ = bound.send(Err(error));
                    return;
                }
            };
            tokio::select! {
                () = accept(listener, on_connect) => {}
                _ = stopped => {}
            }
        };
        // The runtime ends with the thread, and its connections with it.
        let (ends, ended) = mpsc::channel::<()>();
        let serve = move || {
            let _ends = ends;
            runtime.block_on(serve);
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(serve)?;
        let addr = is_bound.recv().map_err(io::Error::other)??;
        Ok(Self { addr, stop: Some(stop), thread: Some(thread), ended: Mutex::new(ended) })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner).recv_timeout(PATIENCE);
        let is_over = ended != Err(mpsc::RecvTimeoutError::Timeout);
        if let Some(thread) = self.thread.take().filter(|_| is_over) {
            // A panic over there was printed when it happened.
            let _ = thread.join();
        }
    }
}

fn listen() -> io::Result<(TcpListener, SocketAddr)> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    // Deep enough for hundreds of callers that connect at once: a full queue costs them a second
    // each.
    let listener = socket.listen(1024)?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}

async fn accept<C, F>(listener: TcpListener, on_connect: C)
where
    C: Fn(TcpStream) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Without it only latency suffers.
                let _ = stream.set_nodelay(true);
                tokio::spawn(on_connect(stream));
            }
            // A caller that hung up in the queue, or too many open files: the next one may fare
            // better.
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}
