//! What is still to be fetched.

use std::collections::{HashSet, VecDeque};

use reqwest::Url;

/// Redirects that are followed in a row.
const MAX_HOPS: u8 = 10;

/// The URLs of some hosts that were found and not yet taken, each once.
#[derive(Debug)]
pub(crate) struct Frontier {
    sites: Vec<Site>,
    /// Whose turn it is: where each host is called slowly, one must not take all places.
    turn: usize,
    seen: HashSet<Url>,
}

/// The URLs of one host.
#[derive(Debug)]
struct Site {
    host: Option<String>,
    port: Option<u16>,
    queue: VecDeque<Stop>,
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
    /// Begins at these URLs, and stays on their hosts.
    pub(crate) fn new(starts: Vec<Url>) -> Self {
        let mut frontier = Self { sites: Vec::new(), turn: 0, seen: HashSet::new() };
        for start in starts {
            if frontier.site_of(&start).is_none() {
                let (host, port) = (start.host_str().map(str::to_owned), start.port());
                frontier.sites.push(Site { host, port, queue: VecDeque::new() });
            }
            frontier.link(start);
        }
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

    /// Takes the URL that was found first, of each host in turn.
    pub(crate) fn next(&mut self) -> Option<Stop> {
        let count = self.sites.len();
        let turn = (0..count).map(|after| (self.turn + after) % count).find(|&at| !self.sites[at].queue.is_empty())?;
        self.turn = turn + 1;
        self.sites[turn].queue.pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.sites.iter().map(|site| site.queue.len()).sum()
    }

    fn offer(&mut self, mut url: Url, hops: u8) -> Offer {
        url.set_fragment(None);
        let Some(site) = self.site_of(&url) else { return Offer::Elsewhere };
        if self.seen.insert(url.clone()) {
            self.sites[site].queue.push_back(Stop { url, hops });
            Offer::New
        } else {
            Offer::Known
        }
    }

    /// A site may well have pages on both http and https.
    fn site_of(&self, url: &Url) -> Option<usize> {
        let is_of = |site: &Site| url.host_str() == site.host.as_deref() && url.port() == site.port;
        self.sites.iter().position(|site| matches!(url.scheme(), "http" | "https") && is_of(site))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frontier(start: &str) -> Result<Frontier, Box<dyn std::error::Error>> {
        Ok(Frontier::new(vec![start.parse()?]))
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
    fn hosts_take_turns() -> Result<(), Box<dyn std::error::Error>> {
        let starts = ["http://h/", "http://i/", "http://h/1", "http://i:81/"];
        let mut frontier = Frontier::new(starts.map(str::parse).into_iter().collect::<Result<_, _>>()?);
        for url in ["http://h/2", "http://h/3", "http://i/1"] {
            assert_eq!(frontier.link(url.parse()?), Offer::New);
        }
        assert_eq!((frontier.len(), frontier.link("http://j/".parse()?)), (7, Offer::Elsewhere));
        let taken: Vec<_> = std::iter::from_fn(|| frontier.next()).map(|stop| String::from(stop.url)).collect();
        let expected = ["h/", "i/", "i:81/", "h/1", "i/1", "h/2", "h/3"];
        assert_eq!(taken, expected.map(|url| format!("http://{url}")));
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
