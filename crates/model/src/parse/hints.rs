//! `early_hints`: links that a client gets before its response is ready (RFC 8297).

use super::reader::{Report, Table};

/// Each is a request the client makes before it knows whether it needs to.
const HINTS: usize = 8;
const HINT_CHARS: usize = 500;

/// Values of the header `Link`, checked.
pub(super) fn read(report: &mut Report<'_>, table: &Table<'_>) -> Vec<String> {
    let Some(texts) = table.texts(report, "early_hints") else { return Vec::new() };
    if let Some(extra) = texts.get(HINTS) {
        report.say(extra.at, format!("`early_hints` has at most {HINTS} links"));
    }
    for text in &texts {
        if !is_link(text.value) {
            report.say(
                text.at,
                format!(
                    "`early_hints` holds values of the header Link of at most {HINT_CHARS} plain \
                     characters, such as \"</style.css>; rel=preload; as=style\""
                ),
            );
        }
    }
    texts.into_iter().map(|text| text.value.to_owned()).collect()
}

/// One link with a relation: `<target>; rel=…`.
fn is_link(value: &str) -> bool {
    let plain = value.len() <= HINT_CHARS && value.bytes().all(|b| (0x20..0x7f).contains(&b));
    let parts = value.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    let Some((target, parameters)) = parts.filter(|_| plain) else { return false };
    let target_fits = !target.is_empty() && !target.contains([' ', '<', '"']);
    let mut parameters = parameters.split(';').map(str::trim);
    let begins = parameters.next() == Some("");
    let related = parameters.any(|parameter| {
        parameter.strip_prefix("rel=").is_some_and(|rel| !rel.trim_matches('"').is_empty())
    });
    target_fits && begins && related && !value.contains(',')
}

#[cfg(test)]
mod tests {
    use super::is_link;

    #[test]
    fn a_link_has_a_target_and_a_relation() {
        for good in [
            "</style.css>; rel=preload; as=style",
            "<https://cdn.example>; rel=preconnect",
            "</a>;rel=\"preload\"",
        ] {
            assert!(is_link(good), "{good}");
        }
        let long = format!("</{}>; rel=preload", "a".repeat(600));
        for bad in [
            "",
            "/style.css",
            "</style.css>",
            "<>; rel=preload",
            "</a b>; rel=preload",
            "</a> rel=preload",
            "</a>; as=style",
            "</a>; rel=",
            "</a>; rel=preload, </b>; rel=preload",
            "</a>; rel=preload\r\nX: y",
            "</ä>; rel=preload",
            &long,
        ] {
            assert!(!is_link(bad), "{bad}");
        }
    }
}
