//! The text of a generated file, line by line.

use super::names::one_line;

/// Columns of a line of a comment.
const WIDTH: usize = 100;

#[derive(Default)]
pub struct Text {
    out: String,
    indent: &'static str,
    level: usize,
}

impl Text {
    pub fn new(indent: &'static str) -> Text {
        Text { indent, ..Text::default() }
    }

    /// One line, indented; without text an empty one.
    pub fn line(&mut self, text: &str) -> &mut Text {
        if !text.is_empty() {
            (0..self.level).for_each(|_| self.out.push_str(self.indent));
        }
        self.out.push_str(text);
        self.out.push('\n');
        self
    }

    /// A text of several lines as it is.
    pub fn lines(&mut self, text: &str) -> &mut Text {
        for line in text.lines() {
            self.line(line);
        }
        self
    }

    /// Lines one level further in.
    pub fn inside(&mut self, lines: impl FnOnce(&mut Text)) -> &mut Text {
        self.level += 1;
        lines(self);
        self.level -= 1;
        self
    }

    /// A comment that is broken into lines, each of which begins with `mark`.
    pub fn comment(&mut self, mark: &str, text: &str) -> &mut Text {
        let room = WIDTH - self.level * self.indent.len() - mark.len() - 1;
        let mut line = String::new();
        for word in one_line(text).split(' ').filter(|word| !word.is_empty()) {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
                self.line(&format!("{mark} {line}"));
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        if line.is_empty() { self } else { self.line(&format!("{mark} {line}")) }
    }

    pub fn finish(self) -> String {
        self.out
    }
}
