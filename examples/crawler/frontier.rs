//! What is still to be fetched.

use std::collections::{HashSet, VecDeque};

use reqwest::Url;

/// Redirects that are followed in a row.
const MAX_HOPS: u8 = 10;

/// The URLs of one host that were found and not yet taken, each once.
#[derive(Debug)]
pub(crate) struct Frontier {
    host: Option<String>,
    port: Option<u16>,
    queue: VecDeque<Stop>,
    seen: HashSet<Url>,
}

/// A URL to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) url: Url,
    /// Redirects that led here in a row.
    hops: u8,
}

/// What became of a URL that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    New,
    Known,
    /// On another host, or not of the web at all.
    Elsewhere,
    /// At the end of too many redirects.
    TooFar,
}

impl Frontier {
    /// Begins at `start`, and stays on its host.
    pub(crate) fn new(start: Url) -> Self {
        let (host, port) = (start.host_str().map(str::to_owned), start.port());
        let mut frontier = Self { host, port, queue: VecDeque::new(), seen: HashSet::new() };
        frontier.link(start);
        frontier
    }

    /// Offers the target of a link.
    pub(crate) fn link(&mut self, url: Url) -> Offer {
        self.offer(url, 0)
    }

    /// Offers the target of a redirect.
    pub(crate) fn redirect(&mut self, from: &Stop, url: Url) -> Offer {
        if from.hops == MAX_HOPS { Offer::TooFar } else { self.offer(url, from.hops + 1) }
    }

    /// Takes the URL that was found first.
    pub(crate) fn next(&mut self) -> Option<Stop> {
        self.queue.pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    fn offer(&mut self, mut url: Url, hops: u8) -> Offer {
        url.set_fragment(None);
        if !self.is_here(&url) {
            Offer::Elsewhere
        } else if self.seen.insert(url.clone()) {
            self.queue.push_back(Stop { url, hops });
            Offer::New
        } else {
            Offer::Known
        }
    }

    /// A site may well have pages on both http and https.
    fn is_here(&self, url: &Url) -> bool {
        matches!(url.scheme(), "http" | "https") && url.host_str() == self.host.as_deref() && url.port() == self.port
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frontier(start: &str) -> Result<Frontier, Box<dyn std::error::Error>> {
        Ok(Frontier::new(start.parse()?))
    }

    #[test]
    fn every_page_of_the_host_is_taken_once() -> Result<(), Box<dyn std::error::Error>> {
        let mut frontier = frontier("http://h/#top")?;
        for (url, offer) in [
            ("http://h", Offer::Known),
            ("http://H:80/", Offer::Known),
            ("http://h/a#1", Offer::New),
            ("http://h/b/../a#2", Offer::Known),
            ("https://h/a", Offer::New),
            ("http://h:81/", Offer::Elsewhere),
            ("http://sub.h/", Offer::Elsewhere),
            ("mailto:a@h", Offer::Elsewhere),
            ("javascript:void(0)", Offer::Elsewhere),
            ("ftp://h/a", Offer::Elsewhere),
        ] {
            assert_eq!(frontier.link(url.parse()?), offer, "{url}");
        }
        let taken: Vec<_> = std::iter::from_fn(|| frontier.next()).map(|stop| String::from(stop.url)).collect();
        assert_eq!(taken, ["http://h/", "http://h/a", "https://h/a"]);
        Ok(())
    }

    #[test]
    fn redirects_end_sometime() -> Result<(), Box<dyn std::error::Error>> {
        let mut frontier = frontier("http://h/0")?;
        for hop in 1..=10 {
            let stop = frontier.next().ok_or("nothing left")?;
            assert_eq!(frontier.redirect(&stop, format!("http://h/{hop}").parse()?), Offer::New);
        }
        let stop = frontier.next().ok_or("nothing left")?;
        assert_eq!(frontier.redirect(&stop, "http://h/11".parse()?), Offer::TooFar);
        Ok(())
    }
}
