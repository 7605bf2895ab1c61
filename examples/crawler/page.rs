//! One page: a single call, and what came of it.

use std::error::Error;
use std::iter;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Response, StatusCode, Url};
use reqwest_middleware::ClientWithMiddleware;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::explain;
use crate::links;
use crate::wire::Waiting;

/// The largest body that is read.
const LARGEST: usize = 5_000_000;

/// How long a page may take to parse: elements nested a hundred thousand deep take minutes.
const LONGEST_PARSE: Duration = Duration::from_secs(5);

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
    let parse = spawn_blocking(move || links::of(&String::from_utf8_lossy(&body), &url));
    match timeout(LONGEST_PARSE, parse).await {
        Ok(Ok(links)) => Outcome::Page { bytes, links },
        Ok(Err(_)) | Err(_) => Outcome::Failed("not to be parsed".to_owned()),
    }
}

fn reason(error: &reqwest_middleware::Error) -> String {
    match outgate::Error::find(error) {
        Some(error) => explain(error),
        None if error.is_timeout() => "timeout".to_owned(),
        None => root_cause(error),
    }
}

/// What went wrong in the end: what is above it names the URL, and no two calls would count as alike.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    let causes = iter::successors(Some(error), |&error| error.source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}
