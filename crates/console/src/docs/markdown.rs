//! Markdown to HTML, for guides and generated pages alike. HTML in the text is shown, never
//! interpreted, and a link leads only to places that a page may lead to: the text may come from a
//! schema file.

use pulldown_cmark::{CodeBlockKind, CowStr, Event, Options, Parser, Tag, TagEnd, html};
use std::collections::HashMap;

/// A page as HTML, with what the table of contents and the search need.
pub struct Rendered {
    pub html: String,
    /// The text of the first heading.
    pub title: String,
    pub sections: Vec<Section>,
}

/// A heading and the text below it, up to the next heading.
pub struct Section {
    pub id: String,
    pub title: String,
    /// 1 for the title of the page.
    pub level: u8,
    pub text: String,
}

/// Renders a page. `link` maps the destination of each link; `None` leaves the text without a link.
pub fn render(markdown: &str, link: &dyn Fn(&str) -> Option<String>) -> Rendered {
    let source = Parser::new_ext(markdown, Options::ENABLE_TABLES);
    let mut events: Vec<Event<'_>> = Vec::new();
    let mut sections: Vec<Section> = Vec::new();
    let mut ids = Ids::default();
    // The place of the heading that is being read, and whether it has only code in it.
    let mut heading: Option<(usize, bool)> = None;
    // Whether the links that are open lead anywhere.
    let mut links: Vec<bool> = Vec::new();
    for event in source {
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                heading = Some((events.len(), true));
                sections.push(Section {
                    id: String::new(),
                    title: String::new(),
                    level: level as u8,
                    text: String::new(),
                });
                events.push(event);
            }
            Event::End(TagEnd::Heading(_)) => {
                if let (Some((start, only_code)), Some(section)) =
                    (heading.take(), sections.last_mut())
                {
                    section.id = ids.of(&section.title, only_code);
                    set_id(&mut events[start], &section.id);
                    let anchor = format!("<a class=\"anchor\" href=\"#{}\">", escape(&section.id));
                    events.insert(start + 1, Event::InlineHtml(anchor.into()));
                    events.push(Event::InlineHtml("</a>".into()));
                }
                events.push(event);
            }
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                // A heading is itself a link, and links cannot be inside of one another.
                let place = link(&dest_url).filter(|_| heading.is_none());
                links.push(place.is_some());
                if let Some(place) = place {
                    let dest_url = CowStr::from(place);
                    events.push(Event::Start(Tag::Link { link_type, dest_url, title, id }));
                }
            }
            Event::End(TagEnd::Link) => {
                if links.pop() == Some(true) {
                    events.push(event);
                }
            }
            // A page loads nothing from elsewhere: only the text of an image is shown.
            Event::Start(Tag::Image { .. }) | Event::End(TagEnd::Image) => {}
            Event::Html(text) | Event::InlineHtml(text) => events.push(Event::Text(text)),
            Event::Start(Tag::HtmlBlock) => events.push(Event::Start(Tag::Paragraph)),
            Event::End(TagEnd::HtmlBlock) => events.push(Event::End(TagEnd::Paragraph)),
            Event::Start(Tag::CodeBlock(kind)) => events.push(code_block(&kind)),
            Event::Start(Tag::Table(_)) => {
                events.push(Event::Html(TABLE.into()));
                events.push(event);
            }
            Event::End(TagEnd::Table) => {
                events.push(event);
                events.push(Event::Html("</div>\n".into()));
            }
            event => {
                note(&event, &mut sections, &mut heading);
                events.push(event);
            }
        }
    }
    let mut text = String::with_capacity(markdown.len() * 2);
    html::push_html(&mut text, events.into_iter());
    let title = sections.first().map(|section| section.title.clone()).unwrap_or_default();
    Rendered { html: text, title, sections }
}

/// A wide table scrolls by itself, also with the keyboard.
const TABLE: &str = "<div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"Table\">";

/// Collects the text of headings and sections.
fn note(event: &Event<'_>, sections: &mut [Section], heading: &mut Option<(usize, bool)>) {
    let (text, is_code) = match event {
        Event::Text(text) => (&**text, false),
        Event::Code(text) => (&**text, true),
        Event::SoftBreak | Event::HardBreak | Event::End(TagEnd::TableCell) => (" ", true),
        Event::End(TagEnd::Paragraph | TagEnd::Item | TagEnd::CodeBlock) => (" ", true),
        _ => return,
    };
    let Some(section) = sections.last_mut() else { return };
    match heading {
        Some((_, only_code)) => {
            *only_code &= is_code;
            section.title.push_str(text);
        }
        None => section.text.push_str(text),
    }
}

fn set_id(start: &mut Event<'_>, name: &str) {
    if let Event::Start(Tag::Heading { id, .. }) = start {
        *id = Some(CowStr::from(name.to_owned()));
    }
}

fn code_block<'a>(kind: &CodeBlockKind<'_>) -> Event<'a> {
    let language = match kind {
        CodeBlockKind::Fenced(info) => info.split_whitespace().next().unwrap_or_default(),
        CodeBlockKind::Indented => "",
    };
    let class = format!(" class=\"language-{}\"", escape(language));
    let class = if language.is_empty() { "" } else { &class };
    Event::Html(format!("<pre tabindex=\"0\"><code{class}>").into())
}

/// The ids of headings, each once.
#[derive(Default)]
struct Ids {
    used: HashMap<String, usize>,
}

impl Ids {
    /// A heading that is a name in the API keeps it, so that `/errors#code` finds the code.
    fn of(&mut self, title: &str, is_name: bool) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let keeps = is_name && title.chars().all(is_plain);
        let id = if keeps { title.to_owned() } else { slug(title) };
        let count = self.used.entry(id.clone()).or_default();
        *count += 1;
        if *count == 1 { id } else { format!("{id}-{count}") }
    }
}

/// As other Markdown tools do it: lower case, hyphens for spaces, no punctuation.
pub fn slug(title: &str) -> String {
    let kept = title.chars().filter_map(|c| match c {
        ' ' | '-' => Some('-'),
        '_' => Some('_'),
        c if c.is_alphanumeric() => Some(c),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Text as HTML, also in attributes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A text of the schema inside Markdown: one line, in which only code between backticks has a
/// meaning, and nothing ends a table cell.
pub fn quote(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts: Vec<&str> = line.split('`').collect();
    // With an even number of parts, the last backtick has no partner.
    let paired = parts.len() - (1 - parts.len() % 2);
    let mut quoted = String::with_capacity(line.len());
    for (place, part) in parts.iter().enumerate() {
        if place % 2 == 1 && place < paired && !part.is_empty() {
            quoted.push_str(&code(part));
        } else {
            if place % 2 == 1 {
                quoted.push_str("\\`");
            }
            part.chars().for_each(|c| push_plain(&mut quoted, c));
        }
    }
    quoted
}

fn push_plain(into: &mut String, c: char) {
    if c.is_ascii_punctuation()
        && !matches!(c, ',' | ';' | ':' | '.' | '?' | '\'' | '"' | '/' | '%' | ')' | '(')
    {
        into.push('\\');
    }
    into.push(c);
}

/// A name or value of the schema as code inside Markdown.
pub fn code(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = line.replace('|', "\\|");
    let longest = line.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let pad =
        if line.starts_with('`') || line.ends_with('`') || line.is_empty() { " " } else { "" };
    format!("{fence}{pad}{line}{pad}{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(markdown: &str) -> String {
        let link = |place: &str| place.starts_with('/').then(|| place.to_owned());
        render(markdown, &link).html
    }

    #[test]
    fn html_in_a_text_is_shown_and_not_interpreted() {
        for markdown in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "<div>\n\n# x\n\n</div>",
            "| a |\n|---|\n| <b onclick=x()> |",
            "![<svg onload=x()>](https://example.com/x.png)",
            "```a\"onclick=x()\n<script>\n```",
            "# <script>x()</script>",
        ] {
            let html = html(markdown);
            for tag in ["<script", "<img", "<svg", "<b ", "\"onclick", "onerror=\"", "<div>"] {
                assert!(!html.contains(tag), "{markdown}: {html}");
            }
        }
    }

    #[test]
    fn a_link_leads_only_where_it_may() {
        assert!(html("[a](/docs/live)").contains("<a href=\"/docs/live\">a</a>"));
        for place in ["javascript:x()", "data:text/html,x", "vbscript:x", "other.html"] {
            let html = html(&format!("[a]({place})"));
            assert_eq!(html, "<p>a</p>\n", "{place}");
        }
        let nested = html("# [a](/docs) b");
        assert_eq!(nested.matches("<a ").count(), 1, "{nested}");
    }

    #[test]
    fn headings_have_ids_and_names_of_the_api_keep_theirs() {
        let page = render("# One\n## `card_declined`\n## A b's\n## A b's\n", &|_| None);
        let ids: Vec<&str> = page.sections.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(ids, ["one", "card_declined", "a-bs", "a-bs-2"]);
        assert!(page.html.contains("<h2 id=\"card_declined\">"), "{}", page.html);
    }

    #[test]
    fn texts_of_a_schema_stay_in_their_cell_and_are_no_markup() {
        for (text, shown) in [
            ("plain text", "plain text"),
            ("a | b\nc", "a | b c"),
            ("uses `x|y` here", "uses <code>x|y</code> here"),
            ("[a](javascript:x) *b* __c__ <b>", "[a](javascript:x) *b* __c__ &lt;b&gt;"),
            ("one ` alone", "one ` alone"),
            ("# no heading", "# no heading"),
            ("&lt; \\ end", "&amp;lt; \\ end"),
            ("https://x \"t\"", "https://x \"t\""),
            (": x", ": x"),
            ("[a]: /x \"t\"", "[a]: /x \"t\""),
        ] {
            let table = format!("| h |\n|---|\n| {} |\n", quote(text));
            let html = html(&table);
            assert!(html.contains(&format!("<td>{shown}</td>")), "{text}: {html}");
            assert_eq!(html.matches("<td>").count(), 1, "{text}: {html}");
        }
        assert_eq!(code("a`b"), "``a`b``");
    }
}
