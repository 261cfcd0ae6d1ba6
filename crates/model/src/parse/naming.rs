//! Names: their forms, the singular of a plural, and the nearest known name to a misspelt one.
//! Knows words only, neither the file nor its tables.

/// Longest name of anything; they end up in paths, columns and headers.
pub(super) const NAME_CHARS: usize = 63;

/// The service assigns these in every record, or in the notice of its deletion.
pub(super) const ASSIGNED: &[&str] =
    &["id", "object", "created_at", "updated_at", "livemode", "deleted"];

/// Query parameters of lists and feeds: a field of that name could not be filtered by.
pub(super) const PARAMETERS: &[&str] =
    &["page", "limit", "after", "sort", "q", "include", "expand", "fields", "wait", "since"];

/// `object` values the service answers with itself.
pub(super) const OBJECTS: &[&str] = &[
    "account",
    "key",
    "event",
    "webhook_endpoint",
    "delivery",
    "attempt",
    "replay",
    "erasure",
    "channel_token",
    "list",
    "error",
];

/// Message types of the live channels: clients could not distinguish a feed of that name.
pub(super) const MESSAGES: &[&str] =
    &["ack", "error", "online", "ping", "pong", "subscribe", "typing", "unsubscribe", "welcome"];

/// Prefixes of the service's own ids, keys and secrets.
pub(super) const PREFIXES: &[&str] =
    &["acct", "key", "evt", "we", "dlv", "att", "rpl", "ers", "req", "sk", "rk", "whsec"];

/// Plurals whose singular does not follow from the ending.
const IRREGULAR: &[(&str, &str)] = &[
    ("people", "person"),
    ("children", "child"),
    ("men", "man"),
    ("women", "woman"),
    ("data", "datum"),
    ("media", "medium"),
    ("criteria", "criterion"),
    ("indices", "index"),
    ("matrices", "matrix"),
    ("vertices", "vertex"),
    ("feet", "foot"),
    ("mice", "mouse"),
    ("news", "news"),
    ("series", "series"),
    ("species", "species"),
    ("movies", "movie"),
    ("cookies", "cookie"),
    ("ties", "tie"),
    ("caches", "cache"),
    ("buses", "bus"),
    ("statuses", "status"),
    ("bonuses", "bonus"),
    ("viruses", "virus"),
    ("campuses", "campus"),
    ("aliases", "alias"),
    ("analyses", "analysis"),
    ("lenses", "lens"),
    ("quizzes", "quiz"),
    ("heroes", "hero"),
    ("potatoes", "potato"),
    ("tomatoes", "tomato"),
    ("shelves", "shelf"),
    ("leaves", "leaf"),
    ("halves", "half"),
    ("knives", "knife"),
    ("lives", "life"),
    ("loaves", "loaf"),
    ("wolves", "wolf"),
];

/// Lower-case words joined by single `join` characters; starts with a letter.
fn is_words(text: &str, join: char) -> bool {
    text.len() <= NAME_CHARS
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.split(join).all(|word| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        })
}

/// `payment-intents`
pub(super) fn is_path_segment(text: &str) -> bool {
    is_words(text, '-')
}

/// `payment_intent`
pub(super) fn is_snake(text: &str) -> bool {
    is_words(text, '_')
}

/// `[a-z][a-z0-9_]{0,19}`
pub(super) fn is_id_prefix(text: &str) -> bool {
    text.len() <= 20
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// `order.cancelled`: at least two parts, joined by dots.
pub(super) fn is_event_type(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    text.len() <= 2 * NAME_CHARS && text.contains('.') && text.split('.').all(part)
}

/// The singular of a collection's name in snake_case; `None` when the name is no plural we know.
pub(super) fn singular(name: &str) -> Option<String> {
    let (head, last) = match name.rfind('-') {
        Some(hyphen) => name.split_at(hyphen + 1),
        None => ("", name),
    };
    Some(format!("{head}{}", singular_word(last)?).replace('-', "_"))
}

fn singular_word(word: &str) -> Option<String> {
    if let Some((_, single)) = IRREGULAR.iter().find(|(plural, _)| *plural == word) {
        return Some((*single).to_owned());
    }
    if let Some(stem) = word.strip_suffix("ies").filter(|stem| !stem.is_empty()) {
        return Some(format!("{stem}y"));
    }
    if ["sses", "xes", "ches", "shes"].iter().any(|ending| word.ends_with(ending)) {
        return word.strip_suffix("es").map(str::to_owned);
    }
    // "address" is one, not many.
    if word.ends_with("ss") {
        return None;
    }
    word.strip_suffix('s').filter(|stem| !stem.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn singulars_name_the_objects_people_expect() {
        for (plural, expected) in [
            ("books", Some("book")),
            ("payment-intents", Some("payment_intent")),
            ("categories", Some("category")),
            ("boxes", Some("box")),
            ("branches", Some("branch")),
            ("addresses", Some("address")),
            ("invoices", Some("invoice")),
            ("houses", Some("house")),
            ("order-statuses", Some("order_status")),
            ("shelves", Some("shelf")),
            ("people", Some("person")),
            ("address", None),
            ("fish", None),
            ("s", None),
        ] {
            assert_eq!(singular(plural).as_deref(), expected, "{plural}");
        }
    }

    #[test]
    fn names_have_the_forms_that_paths_and_json_demand() {
        assert!(is_path_segment("payment-intents"));
        for bad in ["Books", "payment_intents", "a--b", "-a", "a-", "", "1st", "bücher"] {
            assert!(!is_path_segment(bad), "{bad}");
        }
        assert!(is_snake("last_payment_error"));
        for bad in ["lastError", "a__b", "_a", "a_", "a-b", ""] {
            assert!(!is_snake(bad), "{bad}");
        }
        assert!(is_event_type("payment_intent.payment_failed"));
        for bad in ["order", "order.", ".order", "Order.paid", "order paid.x"] {
            assert!(!is_event_type(bad), "{bad}");
        }
    }
}
