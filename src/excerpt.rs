//! What an error may show of a setting that is wrong: its place, and what can hold no secret.
//!
//! Whoever takes a host from a URL may have left a token in it, or a password with a '/' or an '@' of its own. So nothing is
//! shown of which it is not certain that it is a host, or the first part of a path.

use std::net::Ipv6Addr;

/// No name of a host is longer.
const LONGEST: usize = 253;

/// Which host: `the 2nd host ("api.example.com")`.
pub(crate) fn of_host(text: &str, place: usize) -> String {
    show("host", place, host_in(text).unwrap_or_default())
}

/// Which path, and how it begins: `the 1st path ("/v1…")`.
pub(crate) fn of_path(text: &str, place: usize) -> String {
    let excerpt = path_in(text).unwrap_or_default();
    let more = if excerpt.is_empty() || excerpt == text { "" } else { "…" };
    show("path", place, &format!("{excerpt}{more}"))
}

/// A place in words: 1st, 2nd, 3rd.
pub(crate) fn ordinal(place: usize) -> String {
    let suffix = match (place % 100, place % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{place}{suffix}")
}

fn show(noun: &str, place: usize, excerpt: &str) -> String {
    let place = ordinal(place);
    if excerpt.is_empty() || excerpt.len() > LONGEST {
        format!("the {place} {noun}")
    } else {
        format!("the {place} {noun} ({excerpt:?})")
    }
}

fn host_in(text: &str) -> Option<&str> {
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let text =
        text.split_once("://").filter(|(scheme, _)| scheme.chars().all(is_scheme)).map_or(text, |(_, rest)| rest);
    let end = text.find(['/', '\\', '?', '#']).unwrap_or(text.len());
    let (authority, rest) = text.split_at_checked(end)?;
    if rest.contains('@') {
        // `user:to/ken@host` or `host/to@ken`: nobody can tell where the secret ends.
        return None;
    }
    let host = authority.rsplit('@').next()?;
    if host.parse::<Ipv6Addr>().is_ok() {
        return Some(host);
    }
    let bare = host.strip_prefix("*.").unwrap_or(host);
    if let Some(bracketed) = bare.strip_prefix('[') {
        let (address, _) = bracketed.split_once(']')?;
        return address.parse::<Ipv6Addr>().is_ok().then_some(address);
    }
    let (host, port) = host.split_once(':').unwrap_or((host, ""));
    // Else it is `user:token`, and the host was forgotten.
    let is_port = port.bytes().all(|digit| digit.is_ascii_digit());
    let is_host = host.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '*'));
    (is_port && is_host).then_some(host)
}

/// The first part of a path: the others may be those of a webhook.
fn path_in(text: &str) -> Option<&str> {
    // A whole URL perhaps, or a bot's token.
    if text.contains(['@', ':', '\\']) || text.starts_with("//") {
        return None;
    }
    let path = text.split(['?', '#']).next()?;
    let after = usize::from(path.starts_with('/'));
    let end = path.get(after..)?.find('/').map_or(path.len(), |end| after + end);
    path.get(..end)
}

#[cfg(test)]
mod tests;
