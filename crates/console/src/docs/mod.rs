//! The documentation of a running service: guides, the API reference from its OpenAPI document,
//! error codes, the page at `/`, and the index of the search. Every page is Markdown first: `.md`
//! returns it, the HTML is made of it when it is first asked for. This module knows no schema and
//! no request: `Service` has all that it shows.

mod errors;
mod examples;
mod guides;
mod home;
mod layout;
mod markdown;
mod reference;
mod search;
mod shape;

use crate::Asset;
use bytes::Bytes;
use layout::{Entry, Frame};
use markdown::{Rendered, quote};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// What the pages show of a service.
pub struct Service {
    pub name: String,
    pub description: Option<String>,
    /// The newest API version.
    pub version: String,
    /// The path of the resources, `/v1`.
    pub mount: String,
    pub openapi: Value,
    pub errors: Vec<ErrorCode>,
    /// The changes of each version, as Markdown.
    pub changelog: String,
    pub has_console: bool,
}

/// An error code that the service can return.
pub struct ErrorCode {
    pub code: String,
    pub status: String,
    pub kind: String,
    pub explanation: String,
    /// The actions that declare it; empty for codes of every service.
    pub actions: Vec<String>,
}

/// All pages, by path.
pub struct Docs {
    service: Service,
    pages: Vec<Page>,
    by_path: BTreeMap<String, usize>,
    index: OnceLock<Asset>,
    home: OnceLock<Asset>,
    llms: OnceLock<Asset>,
}

struct Page {
    group: &'static str,
    path: String,
    title: String,
    markdown: String,
    html: OnceLock<Asset>,
    source: OnceLock<Asset>,
}

const START: &str = "Start";
const GUIDES: &str = "Guides";
const REFERENCE: &str = "API reference";
const ERRORS: &str = "/errors";

impl Docs {
    pub fn new(service: Service) -> Docs {
        let mut pages = Vec::new();
        let mut add = |group, path: &str, title: &str, markdown: String| {
            pages.push(Page {
                group,
                path: path.to_owned(),
                title: title.to_owned(),
                markdown,
                html: OnceLock::new(),
                source: OnceLock::new(),
            });
        };
        add(START, "/docs", "Overview", String::new());
        for guide in guides::GUIDES {
            let path = format!("/docs/{}", guide.name);
            add(GUIDES, &path, guide.title, guide.markdown.to_owned());
        }
        for page in reference::pages(&service.openapi) {
            let path = format!("/docs/reference/{}", page.name);
            add(REFERENCE, &path, &page.name, page.markdown);
        }
        add(REFERENCE, ERRORS, "Error codes", errors::markdown(&service.errors));
        add(REFERENCE, "/docs/changelog", "Changes of each version", service.changelog.clone());
        let overview = overview(&service, &pages);
        pages[0].markdown = overview;
        let places = pages.iter().enumerate().map(|(place, page)| (page.path.clone(), place));
        let by_path = places.collect();
        let (index, home, llms) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Docs { service, pages, by_path, index, home, llms }
    }

    /// The page or file of a path. `wants_html`: the client is a browser.
    pub fn find(&self, path: &str, wants_html: bool) -> Option<Asset> {
        let path = if path == "/" { path } else { path.trim_end_matches('/') };
        match path {
            "/" => return Some(self.home(wants_html)),
            "/llms.txt" => return Some(self.llms()),
            "/docs/search.json" => return Some(self.index()),
            ERRORS if !wants_html => return None,
            _ => {}
        }
        if let Some(file) = asset_file(path) {
            return Some(file);
        }
        if let Some(place) = self.by_path.get(path) {
            return Some(self.html(&self.pages[*place]));
        }
        let source = path.strip_suffix(".md").filter(|path| *path != ERRORS)?;
        let page = &self.pages[*self.by_path.get(source)?];
        let make = || Asset::new("page.md", Bytes::from(page.markdown.clone()));
        Some(page.source.get_or_init(make).clone())
    }

    fn html(&self, page: &Page) -> Asset {
        page.html.get_or_init(|| self.framed(&page.path, &self.render(&page.markdown))).clone()
    }

    fn framed(&self, path: &str, rendered: &Rendered) -> Asset {
        let entries: Vec<Entry<'_>> = self
            .pages
            .iter()
            .map(|Page { group, path, title, .. }| Entry { group, path, title })
            .collect();
        let frame = Frame {
            service: &self.service.name,
            has_console: self.service.has_console,
            entries: &entries,
        };
        let Rendered { html, title, sections } = rendered;
        Asset::new("page.html", Bytes::from(frame.page(path, title, html, sections)))
    }

    fn render(&self, text: &str) -> Rendered {
        markdown::render(text, &|place| self.link(place))
    }

    /// Where a link of a text leads: pages of the documentation, the service, and HTTPS elsewhere.
    fn link(&self, place: &str) -> Option<String> {
        let is_outside = place.starts_with("https://") || place.starts_with("http://");
        let is_inside = place.starts_with('/') && !place.starts_with("//");
        if is_outside || is_inside || place.starts_with('#') {
            return Some(place.to_owned());
        }
        let (file, fragment) = place.split_once('#').unwrap_or((place, ""));
        let name = file.strip_suffix(".md")?;
        let name = name.trim_start_matches("../").trim_start_matches("docs/");
        let path = match name {
            "errors" => ERRORS.to_owned(),
            name => format!("/docs/{name}"),
        };
        self.by_path.get(&path)?;
        let mark = if fragment.is_empty() { "" } else { "#" };
        Some(format!("{path}{mark}{fragment}"))
    }

    fn home(&self, wants_html: bool) -> Asset {
        if !wants_html {
            let text = home::json(&self.service).to_string();
            return Asset::new("service.json", Bytes::from(text));
        }
        let make = || {
            let tags = self.service.openapi["tags"].as_array();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let pair = |tag: &Value| (text(&tag["name"]), text(&tag["description"]));
            let collections: Vec<(String, String)> = tags.into_iter().flatten().map(pair).collect();
            self.framed("/", &self.render(&home::markdown(&self.service, &collections)))
        };
        self.home.get_or_init(make).clone()
    }

    fn index(&self) -> Asset {
        let make = || {
            let entries = self.pages.iter().flat_map(|page| {
                let rendered = self.render(&page.markdown);
                search::entries(&page.path, &page.title, &rendered.sections)
            });
            let text = Value::Array(entries.collect()).to_string();
            Asset::new("search.json", Bytes::from(text))
        };
        self.index.get_or_init(make).clone()
    }

    /// The list of all pages for language models: <https://llmstxt.org>.
    fn llms(&self) -> Asset {
        let make = || {
            let service = &self.service;
            let about = service.description.as_deref().unwrap_or("A JSON resource API.");
            let mut text = format!("# {}\n\n> {}\n", quote(&service.name), quote(about));
            text.push_str(
                "\nEvery page is Markdown. Authenticate with `Authorization: Bearer <key>`. \
                 Errors have a stable `code`.\n",
            );
            text.push_str(&self.listed(&|page| match page.path.as_str() {
                ERRORS => ERRORS.to_owned(),
                path => format!("{path}.md"),
            }));
            text.push_str("\n## Contracts\n\n- [OpenAPI](/openapi.json)\n");
            text.push_str("- [AsyncAPI](/asyncapi.json)\n");
            Asset::new("llms.txt", Bytes::from(text))
        };
        self.llms.get_or_init(make).clone()
    }

    fn listed(&self, place: &dyn Fn(&Page) -> String) -> String {
        list(&self.pages, place)
    }
}

/// The files that the pages load.
fn asset_file(path: &str) -> Option<Asset> {
    static FILES: [(&str, &[u8]); 3] = [
        ("style.css", include_bytes!("../../assets/docs.css")),
        ("docs.js", include_bytes!("../../assets/docs.js")),
        ("icon.svg", include_bytes!("../../assets/icon.svg")),
    ];
    static MADE: [OnceLock<Asset>; 3] = [const { OnceLock::new() }; 3];
    let name = path.strip_prefix("/docs/")?;
    let place = FILES.iter().position(|(file, _)| *file == name)?;
    let make = || Asset::new(name, Bytes::from_static(FILES[place].1));
    Some(MADE[place].get_or_init(make).clone())
}

/// The first page: what there is.
fn overview(service: &Service, pages: &[Page]) -> String {
    let about = service.description.as_deref().unwrap_or_default();
    let about = quote(about);
    format!(
        "# Documentation of {}\n\n{about}\n\nThis service runs on restive: a schema file \
         declares its resources, and restive serves them as JSON, with an event log, webhooks and \
         live channels. The guides are about restive; the reference is generated from the schema \
         of this service, API version {}. Every page is also there as Markdown: add `.md` to its \
         path.\n{}",
        quote(&service.name),
        markdown::code(&service.version),
        list(&pages[1..], &|page| page.path.clone()),
    )
}

fn list(pages: &[Page], place: &dyn Fn(&Page) -> String) -> String {
    let mut text = String::new();
    let mut group = "";
    for page in pages {
        if page.group != group {
            text.push_str(&format!("\n## {}\n\n", page.group));
            group = page.group;
        }
        text.push_str(&format!("- [{}]({})\n", quote(&page.title), place(page)));
    }
    text
}

#[cfg(test)]
mod tests;
