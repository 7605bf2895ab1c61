//! A response, as far as it says anything of its upstream.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use reqwest::{Response, Url};

use crate::client::url::Target;

/// What is read of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    /// Whether it speaks for the upstream that was called: after a redirect another may have answered.
    pub(crate) speaks: bool,
    /// Whether it comes from the very URL that was called, so that what it says of the call is true of the one that was made.
    pub(crate) is_direct: bool,
    /// Its head, where its trailers came later and are among its headers.
    pub(crate) head: Option<Head<'a>>,
}

/// The head of a response whose trailers say later whether it is a refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) headers: &'a HeaderMap,
    /// Whether the breaker has judged it.
    pub(crate) is_judged: bool,
    /// How long ago it came, unless the trailers tell the time.
    pub(crate) age: Duration,
}

impl<'a> Answer<'a> {
    /// The answer of a client that follows no redirects.
    pub(crate) const fn direct(status: StatusCode, headers: &'a HeaderMap) -> Self {
        Self { status, headers, speaks: true, is_direct: true, head: None }
    }

    /// The answer to a call of this target; whether the way from one URL to another `leaves` its upstream, the throttle knows.
    #[inline]
    pub(crate) fn to(target: &Target<'_>, response: &'a Response, leaves: impl FnOnce(&Url, &Url) -> bool) -> Self {
        let url = response.url();
        let is_direct = target.is_answered_by(url);
        let speaks = is_direct || target.is_spoken_for_by(url, leaves);
        Self { status: response.status(), headers: response.headers(), speaks, is_direct, head: None }
    }
}
