//! Patterns of hosts, in the form that the hosts of URLs have.

use std::net::Ipv6Addr;
use std::sync::Arc;

use reqwest::Url;

/// One host, or every host below a domain; on one port, or on any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPattern {
    /// Lower case, punycode, without a last dot.
    pub(crate) name: Box<str>,
    pub(crate) is_wildcard: bool,
    pub(crate) port: Option<u16>,
}

impl HostPattern {
    /// The pattern, or what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        check_characters(text)?;
        let (is_wildcard, rest) = text.strip_prefix("*.").map_or((false, text), |rest| (true, rest));
        if rest.contains('*') {
            return Err(
                "may have a '*' as its first label only, as in *.example.com; for every host, use matching(|_| true)",
            );
        }
        let (host, port) = split_port(rest)?;
        let url = Url::parse(&format!("http://{host}/"))
            .map_err(|_| "is no host: write api.example.com, *.example.com or [::1], with :port or without")?;
        let name = name(&url).ok_or("is empty")?;
        if name.contains(['{', '}']) {
            return Err("is a template; write *.example.com for every host below it, or use matching()");
        }
        // What stands for a dot or a '*' in other scripts is one by now.
        if name.split('.').any(str::is_empty) {
            return Err("has an empty label; for every host below a domain, write *.example.com");
        }
        if name.contains('*') {
            return Err("may have a '*' as its first label only, as in *.example.com");
        }
        if is_wildcard && url.domain().is_none() {
            return Err("is an IP address, and there are no hosts below one");
        }
        Ok(Self { name: name.into(), is_wildcard, port })
    }
}

/// The host of a URL as patterns have it: without a last dot.
pub(crate) fn name(url: &Url) -> Option<&str> {
    url.host_str().map(|host| host.strip_suffix('.').unwrap_or(host))
}

/// The host of a URL, and its port where that is not the one of the scheme: nothing else of it, which may hold secrets.
pub(crate) fn with_port(url: &Url) -> Arc<str> {
    let name = name(url).unwrap_or_default();
    url.port().map_or_else(|| name.into(), |port| format!("{name}:{port}").into())
}

/// The domains that a host lies below, the shortest first.
pub(crate) fn domains(host: &str) -> impl Iterator<Item = &str> {
    host.rmatch_indices('.').filter_map(|(dot, _)| host.get(dot + 1..))
}

/// What is no part of a host is named, as the whole would only be "no host" otherwise.
fn check_characters(text: &str) -> Result<(), &'static str> {
    if text.contains("://") {
        return Err("has a scheme; write the host alone");
    }
    if text.contains('@') {
        return Err("has an '@'; write the host alone, without credentials");
    }
    if text.contains(['/', '\\', '?', '#']) {
        return Err("has a path or a query; write the host alone, and the path with path()");
    }
    // URLs drop tabs and ends of lines, which would hide a setting that was read badly.
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("has a blank or a control character");
    }
    Ok(())
}

fn split_port(text: &str) -> Result<(&str, Option<u16>), &'static str> {
    if text.parse::<Ipv6Addr>().is_ok() {
        return Err("is an IPv6 address without brackets; write it as in [::1]");
    }
    let bracket = if text.starts_with('[') { text.find(']').unwrap_or(text.len()) } else { 0 };
    let (before, after) = text.split_at(bracket);
    let Some((host, port)) = after.split_once(':') else {
        return if text.is_empty() { Err("is empty") } else { Ok((text, None)) };
    };
    let host = &text[..before.len() + host.len()];
    if host.is_empty() {
        return Err("has no host before its ':'");
    }
    if port.is_empty() {
        return Err("has an empty port; for every port, write the host alone");
    }
    let number = port.bytes().all(|digit| digit.is_ascii_digit()).then(|| port.parse().ok()).flatten();
    number.map(|number| (host, Some(number))).ok_or("has a port that is no number up to 65535")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_takes_the_form_that_urls_have() {
        let cases = [
            ("A.com", "a.com", false, None),
            ("*.A.com:8080", "a.com", true, Some(8080)),
            ("b\u{fc}cher.com", "xn--bcher-kva.com", false, None),
            ("localhost.", "localhost", false, None),
            ("localhost.:0080", "localhost", false, Some(80)),
            ("127.1:9", "127.0.0.1", false, Some(9)),
            ("[0:0::1]:65535", "[::1]", false, Some(65_535)),
            ("my_host", "my_host", false, None),
            ("a\u{3002}com", "a.com", false, None),
        ];
        for (text, name, is_wildcard, port) in cases {
            assert_eq!(HostPattern::parse(text), Ok(HostPattern { name: name.into(), is_wildcard, port }), "{text}");
        }
    }

    #[test]
    fn what_can_match_no_host_is_told_apart() {
        let cases = [
            ("", "empty"),
            (".", "empty"),
            ("*.", "empty"),
            ("*", "'*'"),
            ("a.*.com", "'*'"),
            ("a*.com", "'*'"),
            ("*.*.com", "'*'"),
            ("\u{ff0a}.a.com", "'*'"),
            ("h:", "empty port"),
            ("*.h:", "empty port"),
            ("[::1]:", "empty port"),
            (":80", "no host before"),
            ("h:65536", "65535"),
            ("h:http", "65535"),
            ("h:+80", "65535"),
            ("h:80:80", "65535"),
            ("[::1]:x", "65535"),
            (".example.com", "empty label"),
            ("\u{3002}example.com", "empty label"),
            ("a..b", "empty label"),
            ("a..", "empty label"),
            ("*..a.com", "empty label"),
            ("*.127.0.0.1", "IP address"),
            ("*.127.1", "IP address"),
            ("*.[::1]", "IP address"),
            ("::1", "brackets"),
            ("[::1", "no host"),
            ("[::1]x", "no host"),
            ("a,b", ""),
            ("300.300.300.300", "no host"),
            ("a.com b.com", "blank"),
            ("a.com ", "blank"),
            ("a.com\n", "blank"),
            ("a\u{a0}b", "blank"),
            ("user@a.com", "'@'"),
            ("h::80", "65535"),
            ("https://a.com", "scheme"),
            ("a.com/v1", "path"),
            ("a.com\\v1", "path"),
            ("a.com?q", "query"),
            ("a.com#f", "query"),
        ];
        for (text, fault) in cases {
            match HostPattern::parse(text) {
                Ok(pattern) => assert!(fault.is_empty(), "{text:?} is {pattern:?}"),
                Err(found) => assert!(found.contains(fault), "{text:?} {found}"),
            }
        }
    }
}
