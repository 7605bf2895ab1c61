//! Patterns of hosts and paths, and what they match.

use reqwest::Url;

/// A pattern in the form that URLs have: lower case, punycode, without a last dot. What is no host stays as it is, to be
/// found when the throttle is built.
pub(crate) fn canonical(pattern: &str) -> String {
    let (wildcard, host) = pattern.strip_prefix("*.").map_or(("", pattern), |host| ("*.", host));
    let (host, port) = match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) && !host.is_empty() => {
            (host, Some(port))
        }
        _ => (host, None),
    };
    let url = Url::parse(&format!("http://{host}/"));
    let known = url.ok().filter(|url| url.path() == "/" && url.port().is_none() && url.query().is_none());
    let known = known.as_ref().and_then(Url::host_str).unwrap_or(host);
    let known = known.strip_suffix('.').unwrap_or(known);
    port.map_or_else(|| format!("{wildcard}{known}"), |port| format!("{wildcard}{known}:{port}"))
}

/// Whether a URL is on the host of a pattern, and on its port where it names one.
pub(crate) fn is_host(pattern: &str, url: &Url) -> bool {
    let Some(host) = url.host_str() else {
        return false;
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    let matches = |pattern: &str| {
        let below = |domain| host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
        pattern.strip_prefix("*.").map_or_else(|| pattern == host, below)
    };
    match pattern.rsplit_once(':') {
        Some((pattern, port)) if !port.contains(']') => {
            matches(pattern) && url.port_or_known_default().is_some_and(|own| port.parse() == Ok(own))
        }
        _ => matches(pattern),
    }
}

/// Whether a path is a prefix, or lies below it.
pub(crate) fn is_below(prefix: &str, path: &str) -> bool {
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a pattern, in canonical form, can match any host.
pub(crate) fn is_pattern(pattern: &str) -> bool {
    let bare = pattern.strip_prefix("*.").unwrap_or(pattern);
    let url = Url::parse(&format!("http://{bare}/"));
    let plain = url.is_ok_and(|url| url.path() == "/" && url.username().is_empty() && url.query().is_none());
    !bare.is_empty() && !bare.contains(['*', '/', '@', '?', '#']) && plain
}
