//! Patterns of paths, in the form that the paths of URLs have.

use std::borrow::Cow;

use reqwest::Url;

/// The beginning of a path: it matches itself, and whatever follows it after a `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathPrefix(Box<str>);

impl PathPrefix {
    /// The prefix, or what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        if !text.starts_with(['/', '\\']) {
            return Err("does not begin with '/'");
        }
        for c in text.chars() {
            match c {
                '?' | '#' => return Err("has a '?' or '#', and no path has; for queries, use matching"),
                '{' | '}' => return Err("has a '{' or '}', but is a prefix: end it before, or use matching"),
                '*' => return Err("has a '*', but is a prefix, which matches whatever follows: leave it out"),
                c if c.is_control() => return Err("has a control character"),
                _ => {}
            }
        }
        if text.ends_with(char::is_whitespace) {
            return Err("ends with a blank; if it is meant, write %20");
        }
        // Any URL brings a path into the form that requests have.
        let mut url = Url::parse("http://h/").map_err(|_| "is no path")?;
        url.set_path(text);
        let path = canonical(url.path());
        Ok(Self(path.strip_suffix('/').unwrap_or(&path).into()))
    }

    /// The prefix, without a last `/`: empty where it is that of every path.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whatever of a path may be a prefix that matches it, the shortest but the empty one first.
pub(crate) fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(slash, _)| slash).chain([path.len()]);
    ends.skip(1).filter_map(|end| path.get(..end))
}

/// A path of a URL with its escapes in upper case, and with none of what needs none: `%c3` and `%C3` are one byte, `%7e` and `~` as well (RFC 3986,
/// section 6.2.2).
pub(crate) fn canonical(path: &str) -> Cow<'_, str> {
    let mut path = Cow::Borrowed(path);
    let mut from = 0;
    while let Some(percent) = path.get(from..).and_then(|rest| rest.find('%')) {
        let at = from + percent;
        from = at + 1;
        let escape = path.get(from..from + 2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let Some(byte) = escape.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else { continue };
        let is_lower = escape.is_some_and(|digits| digits.bytes().any(|digit| digit.is_ascii_lowercase()));
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.to_mut().replace_range(at..at + 3, char::from(byte).encode_utf8(&mut [0; 4]));
        } else if is_lower && let Some(digits) = path.to_mut().get_mut(from..from + 2) {
            digits.make_ascii_uppercase();
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_takes_the_form_that_urls_have() {
        let cases = [
            ("/", ""),
            ("/v1", "/v1"),
            ("/v1/", "/v1"),
            ("/v1//", "/v1/"),
            ("/a b", "/a%20b"),
            ("/\u{fc}", "/%C3%BC"),
            ("/%c3%bc", "/%C3%BC"),
            ("/100%", "/100%"),
            ("/%zz", "/%zz"),
            ("/%%c3", "/%%C3"),
            ("/%7eacme/%7Eb/x%2ey%2D%5f", "/~acme/~b/x.y-_"),
            ("/v%31/%4a%6A%2f", "/v1/Jj%2F"),
            ("/a/../b", "/b"),
            ("/a/%2E%2e/b", "/b"),
            ("/a\\b", "/a/b"),
            ("\\a", "/a"),
            ("/~a'b\"c", "/~a'b%22c"),
            ("/a:b@c", "/a:b@c"),
        ];
        for (text, path) in cases {
            assert_eq!(PathPrefix::parse(text), Ok(PathPrefix(path.into())), "{text}");
        }
    }

    #[test]
    fn what_can_match_no_path_is_told_apart() {
        let cases = [
            ("", "begin"),
            ("v1", "begin"),
            (" /v1", "begin"),
            ("https://h/v1", "begin"),
            ("/v1?q=1", "queries"),
            ("/v1#top", "queries"),
            ("/users/{id}", "prefix"),
            ("/users/*", "prefix"),
            ("/a\tb", "control"),
            ("/a\n", "control"),
            ("/a\u{7f}", "control"),
            ("/a ", "blank"),
        ];
        for (text, fault) in cases {
            let found = PathPrefix::parse(text).unwrap_err();
            assert!(found.contains(fault), "{text:?} {found}");
        }
    }

    #[test]
    fn escapes_alone_are_compared_without_regard_to_case() {
        let cases = [
            ("/a", "/a"),
            ("/%c3%bc/x", "/%C3%BC/x"),
            ("/%C3%BC", "/%C3%BC"),
            ("/abc%zz", "/abc%zz"),
            ("/%a", "/%a"),
            ("/%", "/%"),
            ("/%a%bc", "/%a%BC"),
        ];
        for (path, expected) in cases {
            assert_eq!(canonical(path), expected);
        }
    }
}
