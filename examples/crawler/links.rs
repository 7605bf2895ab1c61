//! The links of a page.

use reqwest::Url;
use scraper::{Html, Selector};

/// Where the links of a document at `url` lead, as often as they are there, and wherever that is.
pub(crate) fn of(html: &str, url: &Url) -> Vec<Url> {
    let (Ok(base), Ok(link)) = (Selector::parse("base[href]"), Selector::parse("a[href], area[href]")) else {
        return Vec::new();
    };
    let document = Html::parse_document(html);
    let hrefs = |selector| document.select(selector).filter_map(|element| element.attr("href"));
    let base = hrefs(&base).next().and_then(|href| url.join(href.trim()).ok());
    let base = base.as_ref().unwrap_or(url);
    hrefs(&link).filter_map(|href| base.join(href.trim()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(html: &str) -> Vec<String> {
        let Ok(url) = Url::parse("http://h/a/b.html?q") else {
            return Vec::new();
        };
        of(html, &url).into_iter().map(String::from).collect()
    }

    #[test]
    fn links_are_resolved_against_the_page() {
        let cases = [
            ("c.html", "http://h/a/c.html"),
            (" ../c/ ", "http://h/c/"),
            ("/c", "http://h/c"),
            ("//i/c", "http://i/c"),
            ("?r", "http://h/a/b.html?r"),
            ("", "http://h/a/b.html?q"),
            ("#f", "http://h/a/b.html?q#f"),
            ("mailto:a@h", "mailto:a@h"),
            ("x?a=1&amp;b=2", "http://h/a/x?a=1&b=2"),
        ];
        for (href, url) in cases {
            assert_eq!(links(&format!("<p><A HREF='{href}'>unclosed")), [url], "{href}");
        }
    }

    #[test]
    fn a_base_moves_all_links() {
        assert_eq!(links("<base href=/z/><a href=c>c</a><map><area href=d></map>"), ["http://h/z/c", "http://h/z/d"]);
    }

    #[test]
    fn what_is_no_link_is_none() {
        assert!(links("<a name=x>x</a><a href='http://[/'>y</a><!-- <a href=z>z</a> --> \0 <").is_empty());
    }
}
