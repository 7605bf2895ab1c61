//! Counts the requests in a stream of RESP, however it was cut into pieces.

use std::str;

#[derive(Debug, Default)]
pub(super) struct Frames {
    line: Vec<u8>,
    /// Words of the current request that have not ended yet.
    words: usize,
    /// Bytes of the current word, and of the line end behind it, that have not come yet.
    skip: usize,
}

impl Frames {
    /// How many requests end within `bytes`.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> usize {
        let mut ended = 0;
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = &bytes[skipped..];
                ended += usize::from(self.skip == 0 && self.word_ended());
                continue;
            }
            bytes = rest;
            if byte == b'\n' {
                ended += usize::from(self.line_ended());
                self.line.clear();
            } else {
                self.line.push(byte);
            }
        }
        ended
    }

    fn word_ended(&mut self) -> bool {
        self.words = self.words.saturating_sub(1);
        self.words == 0
    }

    /// Whether a request ended with this line.
    fn line_ended(&mut self) -> bool {
        match self.line.trim_ascii_end().split_first() {
            Some((b'*', count)) => {
                self.words = number(count);
                self.words == 0
            }
            Some((b'$', length)) => {
                self.skip = number(length) + 2;
                false
            }
            // The inline form: one line, one request.
            _ => true,
        }
    }
}

fn number(digits: &[u8]) -> usize {
    str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_however_the_stream_is_cut() {
        let stream = b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$5\r\na\r\n*1\r\nPING\r\n*1\r\n$0\r\n\r\n";
        for piece in 1..=stream.len() {
            let mut frames = Frames::default();
            let ended: usize = stream.chunks(piece).map(|bytes| frames.feed(bytes)).sum();
            assert_eq!(ended, 4, "in pieces of {piece}");
        }
    }

    #[test]
    fn an_unfinished_request_does_not_count() {
        for (stream, ended) in [("", 0), ("*1\r\n$4\r\nPING\r", 0), ("*1\r\n$4\r\nPING\r\n*1\r\n", 1), ("PING", 0)] {
            assert_eq!(Frames::default().feed(stream.as_bytes()), ended, "{stream:?}");
        }
    }
}
