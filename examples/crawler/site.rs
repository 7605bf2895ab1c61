//! Sites to crawl, which insist on their limits.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HOST, LOCATION};
use http::{HeaderValue, Request, Response, StatusCode};
use outgate::testing::{Shape, StrictUpstream};
use reqwest::Url;

/// Calls that the sites answer together in any second. They answer 429 to any other.
pub(crate) const QUOTA: u32 = 50;
/// Calls that each of several sites answers in any second.
pub(crate) const QUOTA_OF_EACH: u32 = 1;

const SECTIONS: u32 = 16;
const TOPICS: u32 = 4;
const ARTICLES: u32 = 4;

/// One server, which serves every site the same: 337 pages, 16 redirects, 4 dead links and a picture.
pub(crate) struct Sites {
    server: StrictUpstream,
    count: u32,
}

impl Sites {
    pub(crate) fn start(count: u32) -> io::Result<Self> {
        let second = Duration::from_secs(1);
        let mut server = StrictUpstream::builder()
            .limit(QUOTA.into(), second, Shape::SlidingLog)
            .response_delay(Duration::from_millis(5)..Duration::from_millis(40))
            .handler(|request| answer(request.uri().path()).map(Into::into));
        if count > 1 {
            server = server.limit_each(QUOTA_OF_EACH.into(), second, Shape::SlidingLog, |call| (host(call), 1));
        }
        Ok(Self { server: server.start()?, count })
    }

    /// What the sites are called, where there are several.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        (1..=self.count).filter(|_| self.count > 1).map(|number| format!("site-{number}.test"))
    }

    /// Where all of them are.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// Where each begins.
    pub(crate) fn urls(&self) -> Result<Vec<Url>, Box<dyn Error>> {
        let port = self.addr().port();
        let named = self.names().map(|name| format!("http://{name}:{port}/"));
        let urls = if self.count > 1 { named.collect() } else { vec![self.server.url()] };
        Ok(urls.iter().map(|url| url.parse()).collect::<Result<_, _>>()?)
    }

    /// When calls came, in microseconds.
    pub(crate) fn stamps(&self) -> Vec<i64> {
        self.server.stamps()
    }
}

fn host(request: &Request<()>) -> String {
    request.headers().get(HOST).map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned()).unwrap_or_default()
}

fn answer(path: &str) -> Response<String> {
    let place: Vec<_> = path.split('/').skip(1).collect();
    match place[..] {
        [""] => page("Contents", &contents()),
        ["picture.png"] => reply(StatusCode::OK, CONTENT_TYPE, "image/png", "not really".to_owned()),
        ["moved", section] if is("section", section, SECTIONS) => {
            reply(StatusCode::FOUND, LOCATION, &format!("../{section}/"), String::new())
        }
        [section, ""] if is("section", section, SECTIONS) => page(section, &topics()),
        [section, topic, ""] if is("section", section, SECTIONS) && is("topic", topic, TOPICS) => {
            page(topic, &articles())
        }
        [section, topic, article]
            if is("section", section, SECTIONS) && is("topic", topic, TOPICS) && is("article", article, ARTICLES) =>
        {
            page(article, &neighbours())
        }
        _ => reply(StatusCode::NOT_FOUND, CONTENT_TYPE, "text/html", "nothing here".to_owned()),
    }
}

/// Whether a part of a path is `kind`-0, `kind`-1, …
fn is(kind: &str, part: &str, count: u32) -> bool {
    (0..count).any(|number| part == format!("{kind}-{number}"))
}

fn contents() -> Vec<String> {
    let sections = (0..SECTIONS).flat_map(|n| [format!("section-{n}/"), format!("moved/section-{n}")]);
    sections.chain(["picture.png", "#end", "mailto:nobody@example.com"].map(str::to_owned)).collect()
}

fn topics() -> Vec<String> {
    (0..TOPICS).map(|n| format!("./topic-{n}/")).chain(["..".to_owned()]).collect()
}

fn articles() -> Vec<String> {
    (0..ARTICLES).map(|n| format!("article-{n}#top")).chain(["../".to_owned(), "/".to_owned()]).collect()
}

fn neighbours() -> Vec<String> {
    let dead = (0..4).map(|n| format!("/dead/{n}"));
    (0..ARTICLES).map(|n| format!("article-{n}")).chain(dead).collect()
}

fn page(title: &str, links: &[String]) -> Response<String> {
    let mut html = format!("<!doctype html><title>{title}</title><h1 id=top>{title}</h1><ul>");
    for link in links {
        // Writing to a String cannot fail.
        let _ = write!(html, "<li><a href=\"{link}\">{link}</a>");
    }
    html.push_str("</ul><p id=end>");
    reply(StatusCode::OK, CONTENT_TYPE, "text/html; charset=utf-8", html)
}

fn reply(status: StatusCode, header: http::HeaderName, value: &str, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(header, value);
    }
    response
}
