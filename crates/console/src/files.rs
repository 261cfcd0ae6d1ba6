//! The list of the files. They are embedded; a debug build reads them from the source folder first,
//! so that an edit needs no compilation.

use crate::asset::Asset;
use bytes::Bytes;
use std::sync::OnceLock;

struct File {
    name: &'static str,
    bytes: &'static [u8],
    asset: OnceLock<Asset>,
}

macro_rules! files {
    ($($name:literal)*) => {
        [$(File {
            name: $name,
            bytes: include_bytes!(concat!("../static/", $name)),
            asset: OnceLock::new(),
        }),*]
    };
}

static FILES: [File; 22] = files! {
    "index.html"
    "style.css"
    "favicon.svg"
    "theme.js"
    "app.js"
    "api.js"
    "dom.js"
    "schema.js"
    "form.js"
    "home.js"
    "records.js"
    "record.js"
    "events.js"
    "webhooks.js"
    "deliveries.js"
    "replays.js"
    "doctor.js"
    "live.js"
    "requests.js"
    "versions.js"
    "keys.js"
    "explorer.js"
};

pub fn find(name: &str) -> Option<Asset> {
    let file = FILES.iter().find(|file| file.name == name)?;
    #[cfg(debug_assertions)]
    if let Some(bytes) = on_disk(name) {
        return Some(Asset::new(name, bytes));
    }
    let embedded = || Asset::new(name, Bytes::from_static(file.bytes));
    Some(file.asset.get_or_init(embedded).clone())
}

/// The file in the source folder; `None` if the executable was moved to another machine.
#[cfg(debug_assertions)]
fn on_disk(name: &str) -> Option<Bytes> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/static");
    std::fs::read(std::path::Path::new(folder).join(name)).ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The bar for the first visit, for all files together: a visit loads only some of them.
    const MAX_FIRST_VISIT_BYTES: usize = 100_000;

    #[test]
    fn every_file_of_the_folder_is_embedded() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/static");
        let entries = std::fs::read_dir(folder).unwrap();
        let there: BTreeSet<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let listed: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
        assert_eq!(there, listed);
    }

    #[test]
    fn all_files_together_are_smaller_than_the_bar_of_a_first_visit() {
        let assets = FILES.iter().map(|file| find(file.name).unwrap());
        let sent = |asset: Asset| asset.gzip.unwrap_or(asset.body).len();
        let total: usize = assets.map(sent).sum();
        assert!(total < MAX_FIRST_VISIT_BYTES, "{total}");
    }

    #[test]
    fn no_page_contains_inline_script_or_style_or_text_as_html() {
        for file in &FILES {
            let text = String::from_utf8_lossy(file.bytes);
            for forbidden in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "style=",
            ] {
                assert!(!text.contains(forbidden), "{}: {forbidden}", file.name);
            }
            assert!(!text.contains("<script>"), "{}", file.name);
            assert!(
                !text.contains("http://") || text.contains("http://www.w3.org"),
                "{}",
                file.name
            );
        }
    }
}
