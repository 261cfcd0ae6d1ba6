//! The frame of a page: head, navigation, search, contents. No inline script and no inline style,
//! as the Content-Security-Policy demands.

use super::markdown::{Section, escape};

/// An entry of the navigation.
pub struct Entry<'a> {
    pub group: &'a str,
    pub path: &'a str,
    pub title: &'a str,
}

pub struct Frame<'a> {
    pub service: &'a str,
    pub has_console: bool,
    pub entries: &'a [Entry<'a>],
}

impl Frame<'_> {
    /// A whole page around its content.
    pub fn page(&self, path: &str, title: &str, content: &str, sections: &[Section]) -> String {
        let markdown = match path {
            "/" => String::new(),
            path => format!("<a class=\"source\" href=\"{}.md\">Markdown</a>", escape(path)),
        };
        let markdown = if path == "/errors" { String::new() } else { markdown };
        let name = match title == self.service {
            true => title.to_owned(),
            false => format!("{title} · {}", self.service),
        };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{name}</title>\n\
             <link rel=\"icon\" href=\"/docs/icon.svg\" type=\"image/svg+xml\">\n\
             <link rel=\"stylesheet\" href=\"/docs/style.css\">\n\
             <script type=\"module\" src=\"/docs/docs.js\"></script>\n</head>\n<body>\n\
             <a class=\"skip\" href=\"#content\">Skip to the content</a>\n\
             <header class=\"top\">\n<a class=\"brand\" href=\"/\">{service}</a>\n\
             <a class=\"menu\" href=\"#pages\">Contents</a>\n\
             <div class=\"search\" role=\"search\" hidden>\n\
             <input type=\"search\" id=\"search\" placeholder=\"Search\" \
             aria-label=\"Search the documentation\" autocomplete=\"off\" \
             aria-controls=\"found\">\n\
             <ul id=\"found\" hidden></ul>\n<p class=\"hidden-text\" id=\"said\" \
             role=\"status\"></p>\n</div>\n\
             <nav class=\"links\" aria-label=\"Service\">{links}</nav>\n</header>\n\
             <div class=\"columns\">\n<main id=\"content\" tabindex=\"-1\">\n{content}\
             <p class=\"end\">{markdown}</p>\n</main>\n\
             <nav id=\"pages\" aria-label=\"Documentation\">\n{pages}</nav>\n{contents}</div>\n\
             </body>\n</html>\n",
            name = escape(&name),
            service = escape(self.service),
            links = self.links(),
            pages = self.pages(path),
            contents = contents(sections),
        )
    }

    fn links(&self) -> String {
        let mut links =
            vec![("/docs", "Docs"), ("/errors", "Errors"), ("/openapi.json", "OpenAPI")];
        if self.has_console {
            links.push(("/console", "Console"));
        }
        let link = |(path, name): (&str, &str)| format!("<a href=\"{path}\">{name}</a>");
        links.into_iter().map(link).collect::<Vec<_>>().join(" ")
    }

    fn pages(&self, current: &str) -> String {
        let mut text = String::new();
        let mut group = "";
        for entry in self.entries {
            if entry.group != group {
                let end = if group.is_empty() { "" } else { "</ul>\n" };
                text.push_str(&format!("{end}<h2>{}</h2>\n<ul>\n", escape(entry.group)));
                group = entry.group;
            }
            let here = if entry.path == current { " aria-current=\"page\"" } else { "" };
            text.push_str(&format!(
                "<li><a href=\"{}\"{here}>{}</a></li>\n",
                escape(entry.path),
                escape(entry.title)
            ));
        }
        if !group.is_empty() {
            text.push_str("</ul>\n");
        }
        text
    }
}

/// The headings of the page.
fn contents(sections: &[Section]) -> String {
    // A page with few headings needs no list of them.
    const FEW: usize = 3;
    let shown: Vec<&Section> = sections.iter().filter(|section| section.level == 2).collect();
    if shown.len() < FEW {
        return String::new();
    }
    let item = |section: &&Section| {
        format!("<li><a href=\"#{}\">{}</a></li>\n", escape(&section.id), escape(&section.title))
    };
    let items: String = shown.iter().map(item).collect();
    format!(
        "<nav id=\"contents\" aria-label=\"On this page\">\n<h2>On this page</h2>\n\
             <ul>\n{items}</ul>\n</nav>\n"
    )
}
