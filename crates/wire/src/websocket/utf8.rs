//! Checks text that arrives in pieces, which may end within a character. Checks each byte when it
//! arrives, so that a fault is found before the message ends.

use super::ProtocolError;

/// The characters that are complete, and the beginning of one that is not.
#[derive(Debug, Default)]
pub(super) struct Text {
    complete: String,
    begun: [u8; 4],
    begun_bytes: usize,
}

impl Text {
    pub(super) fn len(&self) -> usize {
        self.complete.len() + self.begun_bytes
    }

    pub(super) fn capacity(&self) -> usize {
        self.complete.capacity()
    }

    /// Makes room for so many bytes in all.
    pub(super) fn reserve_to(&mut self, bytes: usize) {
        self.complete.reserve_exact(bytes.saturating_sub(self.complete.len()));
    }

    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), ProtocolError> {
        let piece = self.complete_character(piece)?;
        let (whole, begun) = piece.split_at(piece.len() - begun_at_the_end(piece));
        let whole = str::from_utf8(whole).map_err(|_| ProtocolError::NOT_UTF_8)?;
        self.complete.push_str(whole);
        if begun.is_empty() {
            return Ok(());
        }
        self.begun[..begun.len()].copy_from_slice(begun);
        self.begun_bytes = begun.len();
        self.check_begun()
    }

    pub(super) fn finish(self) -> Result<String, ProtocolError> {
        if self.begun_bytes == 0 { Ok(self.complete) } else { Err(ProtocolError::NOT_UTF_8) }
    }

    /// Completes the character that the last piece began; returns the rest of this piece.
    fn complete_character<'p>(&mut self, mut piece: &'p [u8]) -> Result<&'p [u8], ProtocolError> {
        while self.begun_bytes > 0
            && let Some((next, rest)) = piece.split_first()
        {
            // At most four: the fourth completes it or is wrong.
            self.begun[self.begun_bytes] = *next;
            self.begun_bytes += 1;
            self.check_begun()?;
            piece = rest;
        }
        Ok(piece)
    }

    /// Moves the character if it is complete. Fails if it can never be.
    fn check_begun(&mut self) -> Result<(), ProtocolError> {
        match str::from_utf8(&self.begun[..self.begun_bytes]) {
            Ok(character) => {
                self.complete.push_str(character);
                self.begun_bytes = 0;
                Ok(())
            }
            Err(fault) if fault.error_len().is_none() => Ok(()),
            Err(_) => Err(ProtocolError::NOT_UTF_8),
        }
    }
}

/// The number of bytes at the end that belong to an incomplete character: the rest can be checked
/// at once.
fn begun_at_the_end(piece: &[u8]) -> usize {
    let last = piece.iter().rev().take(3);
    for (back, byte) in (1..).zip(last) {
        let wanted = match byte {
            0x80..=0xbf => continue,
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xff => 4,
            _ => 1,
        };
        return if wanted > back { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of bytes before the fault is reported; none without a fault.
    fn fault_after(bytes: &[u8]) -> Option<usize> {
        let mut text = Text::default();
        let fault = bytes.iter().position(|byte| text.push(&[*byte]).is_err());
        fault.or_else(|| text.finish().err().map(|_| bytes.len()))
    }

    #[test]
    fn a_fault_is_reported_at_its_first_wrong_byte() {
        for (bytes, expected) in [
            (&b"plain"[..], None),
            ("κόσμε 日本 🦀 \u{10ffff}".as_bytes(), None),
            (b"a\x80", Some(1)),
            (b"\xc0\x80", Some(0)),
            (b"\xf5", Some(0)),
            (b"\xf4\x90\x80\x80", Some(1)),
            (b"\xed\xa0\x80", Some(1)),
            (b"\xe0\x80\x80", Some(1)),
            (b"\xe2\x82", Some(2)),
            (b"\xe2\x82a", Some(2)),
            (b"\xf0\x9f\xa6", Some(3)),
        ] {
            assert_eq!(fault_after(bytes), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn a_text_does_not_depend_on_how_its_bytes_are_split() {
        let bytes = "aκ日🦀".repeat(3).into_bytes();
        for one in 0..=bytes.len() {
            for other in one..=bytes.len() {
                let mut text = Text::default();
                for piece in [&bytes[..one], &bytes[one..other], &bytes[other..]] {
                    text.push(piece).unwrap();
                }
                assert_eq!(text.len(), bytes.len());
                assert_eq!(text.finish().unwrap().as_bytes(), bytes, "cut at {one} and {other}");
            }
        }
    }
}
