//! A text of limited length without memory of its own: noting a request allocates nothing.

/// Bytes that are kept: enough for the path of a record below another one.
const BYTES: usize = 126;

#[derive(Clone, Copy)]
pub(crate) struct ShortText {
    length: u8,
    is_cut: bool,
    bytes: [u8; BYTES],
}

impl ShortText {
    /// Keeps the beginning of a longer text, whole characters only.
    pub fn new(text: &str) -> ShortText {
        let end = text.floor_char_boundary(BYTES);
        let mut bytes = [0; BYTES];
        bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
        ShortText { length: u8::try_from(end).unwrap_or(0), is_cut: end < text.len(), bytes }
    }

    /// The text; one that was cut ends with an ellipsis.
    pub fn to_text(self) -> String {
        let kept = &self.bytes[..usize::from(self.length)];
        let mut text = String::from_utf8_lossy(kept).into_owned();
        if self.is_cut {
            text.push('…');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(ShortText::new("/v1/books").to_text(), "/v1/books");
        assert_eq!(ShortText::new("").to_text(), "");
        let long = format!("{}ß and more", "x".repeat(BYTES - 1));
        assert_eq!(ShortText::new(&long).to_text(), format!("{}…", "x".repeat(BYTES - 1)));
    }
}
