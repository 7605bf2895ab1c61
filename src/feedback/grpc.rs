//! What a gRPC server says, in headers or trailers.

use std::time::Duration;

/// The status of who has spent a quota, and of a message that is larger than is allowed.
const RESOURCE_EXHAUSTED: &str = "8";

/// What libraries say of a message, or its metadata, that is larger than is allowed.
const TOO_LARGE: [&str; 6] = [
    "larger than max",
    "size larger than",
    "maximum configured message size",
    "grpc message exceeds maximum size",
    "message length too large",
    "metadata size exceeds",
];

/// What a gRPC server says, in headers or trailers.
#[derive(Debug, Default)]
pub(super) struct Grpc {
    is_exhausted: bool,
    is_too_large: bool,
    /// How long it asks to wait before the call is tried again.
    pub(super) pushback: Option<Duration>,
}

impl Grpc {
    pub(super) fn status(&mut self, text: &str) {
        self.is_exhausted |= text == RESOURCE_EXHAUSTED;
    }

    pub(super) fn message(&mut self, text: &str) {
        let message = decoded(text).to_ascii_lowercase();
        self.is_too_large |= TOO_LARGE.iter().any(|words| message.contains(words));
    }

    /// Whether a quota is spent.
    pub(super) const fn is_refused(&self) -> bool {
        self.is_exhausted && !self.is_too_large
    }
}

/// A text in which `%20` stands for a space. What is no such byte stands for itself.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| first == b'%').and_then(|digits| str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { behind.get(2..).unwrap_or_default() } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::sample::read;
    use super::super::{Dialect, Refusal};
    use super::*;

    #[test]
    fn a_message_that_is_larger_than_is_allowed_is_no_refusal() {
        let read = |message: &'static str| {
            let lines: [(&str, &str); 2] = [("grpc-message", message), ("grpc-status", "8")];
            [lines, [lines[1], lines[0]]].map(|lines| read(Dialect::GENERAL, 200, Box::leak(Box::new(lines))).refusal())
        };
        for message in [
            "grpc: received message larger than max (5000000 vs. 4194304)",
            "grpc:%20trying%20to%20send%20message%20larger%20than%20max%20(5000000%20vs.%204194304)",
            "CLIENT: Sent message larger than max (5000000 vs. 4194304)",
            "Received message exceeds the maximum configured message size.",
            "Sending message exceeds the maximum%20configured%20message%20size.",
            "gRPC message exceeds maximum size 4194304: 5000000",
            "Attempted to send message with a size larger than 4194304",
            "Error, decoded message length too large: found 5000000 bytes, the limit is: 4194304 bytes",
            "received initial metadata size exceeds limit",
        ] {
            assert_eq!(read(message), [None; 2], "{message}");
        }
        for message in ["Quota exceeded", "", "100%", "%zz%2", "message rate larger than the quota", "%ff%fe"] {
            assert_eq!(read(message), [Some(Refusal::Quota); 2], "{message}");
        }
    }

    #[test]
    fn only_bytes_in_hex_are_decoded() {
        let cases = [
            ("", ""),
            ("a%20b%2Fc", "a b/c"),
            ("%C3%bc", "ü"),
            ("100%", "100%"),
            ("%2", "%2"),
            ("%zz%2", "%zz%2"),
            ("%%20", "% "),
            ("%ü", "%ü"),
            ("%ff", "\u{fffd}"),
        ];
        for (text, expected) in cases {
            assert_eq!(decoded(text), expected, "{text}");
        }
    }
}
