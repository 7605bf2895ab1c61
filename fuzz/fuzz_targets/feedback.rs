//! Reads any status and header: `cargo +nightly fuzz run feedback`.
//!
//! The first two bytes are the status, the rest are lines of `name: value`.

#![no_main]

use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use libfuzzer_sys::fuzz_target;
use outgate::Feedback;

fuzz_target!(|data: &[u8]| {
    let [high, low, lines @ ..] = data else { return };
    let Ok(status) = StatusCode::from_u16(100 + u16::from_be_bytes([*high, *low]) % 900) else { return };
    let mut headers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(&line[colon + 1..]));
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    let feedback = Feedback::read(status, &headers, UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    assert!(feedback.wait().is_none_or(|wait| wait <= Feedback::LONGEST_WAIT));
    assert_eq!(feedback.over_cap(), feedback.told_wait() > feedback.wait());
});
