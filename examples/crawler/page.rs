//! One page: a single call, and what came of it.

use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Response, StatusCode, Url};
use reqwest_middleware::ClientWithMiddleware;
use tokio::task::spawn_blocking;

use crate::links;
use crate::wire::Waiting;

/// The largest body that is read.
const LARGEST: usize = 5_000_000;

/// What came of a call.
#[derive(Debug)]
pub(crate) enum Outcome {
    Page {
        bytes: usize,
        links: Vec<Url>,
    },
    Redirect(Url),
    NotHtml,
    /// A few words: those alike are counted together.
    Failed(String),
}

/// Calls for a page. Whatever goes wrong is an outcome like any other.
pub(crate) async fn fetch(http: ClientWithMiddleware, url: Url, waiting: Waiting) -> Outcome {
    match http.get(url.clone()).with_extension(waiting).send().await {
        Ok(response) => read(response, url).await,
        Err(error) => Outcome::Failed(reason(&error)),
    }
}

async fn read(response: Response, url: Url) -> Outcome {
    let status = response.status();
    match redirect(&response, &url) {
        Some(target) => Outcome::Redirect(target),
        None if !status.is_success() => Outcome::Failed(format!("HTTP {}", status.as_u16())),
        None if !is_html(&response) => Outcome::NotHtml,
        None => match body(response).await {
            Ok(body) => parse(body, url).await,
            Err(reason) => Outcome::Failed(reason),
        },
    }
}

/// Where a response points to. One that points nowhere is no redirect.
fn redirect(response: &Response, url: &Url) -> Option<Url> {
    let redirects = [
        StatusCode::MOVED_PERMANENTLY,
        StatusCode::FOUND,
        StatusCode::SEE_OTHER,
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ];
    let location = response.headers().get(LOCATION).filter(|_| redirects.contains(&response.status()))?;
    url.join(location.to_str().ok()?).ok()
}

fn is_html(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    ["text/html", "application/xhtml+xml"].iter().any(|html| kind.eq_ignore_ascii_case(html))
}

async fn body(mut response: Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > LARGEST => return Err("too large".to_owned()),
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(error) => return Err(reason(&error.into())),
        }
    }
}

/// Parsing takes a while, and those who wait for their slots must not wait for it.
async fn parse(body: Vec<u8>, url: Url) -> Outcome {
    let bytes = body.len();
    let links = spawn_blocking(move || links::of(&String::from_utf8_lossy(&body), &url)).await;
    links.map_or_else(|_| Outcome::Failed("not to be parsed".to_owned()), |links| Outcome::Page { bytes, links })
}

fn reason(error: &reqwest_middleware::Error) -> String {
    let reason = match outgate::Error::find(error) {
        Some(outgate::Error::StoreUnavailable { .. }) => "Redis unavailable",
        Some(_) => "throttled",
        None if error.is_timeout() => "timeout",
        None if error.is_connect() => "no connection",
        None => "connection broken",
    };
    reason.to_owned()
}
