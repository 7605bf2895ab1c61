use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    str,
    time::Duration,
};

/// What Redis replied, in RESP2.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// An integer.
    Int(i64),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// A status such as `OK`.
    Simple(String),
    /// A refusal: its code, then words.
    Error(String),
    /// Nothing: a null string or a null array.
    Nil,
    /// A list of replies.
    Array(Vec<Reply>),
}

impl Reply {
    /// The number, if it is one.
    #[must_use]
    pub fn int(&self) -> Option<i64> {
        if let Self::Int(number) = self { Some(*number) } else { None }
    }

    /// The text of a status, of an error, or of a string that is UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Simple(text) | Self::Error(text) => Some(text),
            Self::Bulk(bytes) => str::from_utf8(bytes).ok(),
            Self::Int(_) | Self::Nil | Self::Array(_) => None,
        }
    }
}

/// A blocking connection to Redis that does exactly what it is told: no handshake, no retry, no
/// reconnect.
///
/// ```
/// # async fn shown() -> Result<(), Box<dyn std::error::Error>> {
/// use outgate::testing::{RedisServer, RespClient};
/// use std::time::Duration;
///
/// let redis = RedisServer::start()?;
/// let mut client = RespClient::connect(redis.addr(), Duration::from_secs(1))?;
/// assert_eq!(client.command(&["ECHO", "a"])?.text(), Some("a"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RespClient {
    stream: BufReader<TcpStream>,
}

impl RespClient {
    /// Connects to `addr`. Connecting, and later each reply, may take as long as `patience`,
    /// which must not be zero.
    ///
    /// # Errors
    ///
    /// When nobody listens there.
    pub fn connect(addr: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, patience)?;
        stream.set_nodelay(true)?;
        let mut client = Self { stream: BufReader::new(stream) };
        client.set_patience(patience)?;
        Ok(client)
    }

    /// Changes how long each reply may take; not to zero.
    ///
    /// # Errors
    ///
    /// When `patience` is zero.
    pub fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        let stream = self.stream.get_ref();
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))
    }

    /// Sends a command and waits for its reply. A refusal by Redis is a [`Reply::Error`].
    ///
    /// # Errors
    ///
    /// When the connection breaks, or the reply is late or not RESP2; then the connection is of
    /// no further use.
    pub fn command<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<Reply> {
        self.send(words)?;
        self.receive()
    }

    /// Sends a command only.
    ///
    /// # Errors
    ///
    /// When the connection is broken.
    pub fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words.iter().map(AsRef::as_ref) {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request)
    }

    /// Waits for the reply to the earliest command that has none yet.
    ///
    /// # Errors
    ///
    /// As for [`command`](Self::command).
    pub fn receive(&mut self) -> io::Result<Reply> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        let line = line.strip_suffix(b"\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let line = str::from_utf8(line).map_err(|_| malformed("a line that is not UTF-8"))?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| malformed("an empty line"))?;
        let number = || rest.parse::<i64>().map_err(|_| malformed(line));
        match kind {
            "+" => Ok(Reply::Simple(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => Ok(Reply::Int(number()?)),
            // A negative length is RESP2's null.
            "$" => usize::try_from(number()?).map_or(Ok(Reply::Nil), |length| self.bulk(length)),
            "*" => usize::try_from(number()?).map_or(Ok(Reply::Nil), |length| self.array(length)),
            _ => Err(malformed(line)),
        }
    }

    fn bulk(&mut self, length: usize) -> io::Result<Reply> {
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(Reply::Bulk(bytes))
    }

    fn array(&mut self, length: usize) -> io::Result<Reply> {
        (0..length).map(|_| self.receive()).collect::<io::Result<_>>().map(Reply::Array)
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a RESP2 reply: {what}"))
}
