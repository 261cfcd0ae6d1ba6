//! Places in the log as clients write them: `<epoch>.<seq>`, valid on every channel, or a bare
//! sequence number, which is what the id of a feed's record is.

use std::fmt;

/// Which log a position is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(pub u32);

/// What a client's words for a place mean here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumePoint {
    /// Just after this sequence number of our log.
    After(i64),
    /// In another log: a restored copy, or a database made anew.
    Foreign,
}

impl Epoch {
    pub fn at(self, seq: i64) -> Position {
        Position { epoch: self, seq }
    }

    /// Reads a place; none if it is not written like one.
    pub fn read(self, text: &str) -> Option<ResumePoint> {
        let Some((epoch, seq)) = text.split_once('.') else {
            return number(text).map(ResumePoint::After);
        };
        let seq = number(seq)?;
        let digits = epoch.len() == 8 && epoch.bytes().all(|b| b.is_ascii_hexdigit());
        let epoch = u32::from_str_radix(epoch, 16).ok().filter(|_| digits)?;
        Some(if Epoch(epoch) == self { ResumePoint::After(seq) } else { ResumePoint::Foreign })
    }
}

/// Digits alone: a sign or a blank is no part of a sequence number.
fn number(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// A place in this log, to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    epoch: Epoch,
    seq: i64,
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:08x}.{}", self.epoch.0, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_shown() {
        let epoch = Epoch(0xab);
        assert_eq!(epoch.at(17).to_string(), "000000ab.17");
        assert_eq!(epoch.read("000000ab.17"), Some(ResumePoint::After(17)));
        assert_eq!(epoch.read("17"), Some(ResumePoint::After(17)));
        assert_eq!(epoch.read("000000ac.17"), Some(ResumePoint::Foreign));
    }

    #[test]
    fn an_invalid_position_is_refused() {
        for bad in [
            "",
            ".",
            "1.",
            ".1",
            "-1",
            "+1",
            " 1",
            "1 ",
            "1e3",
            "0x10",
            "abc",
            "ab.1",
            "000000ab.-1",
            "000000ab.1.2",
            "+00000ab.1",
            "99999999999999999999",
            "000000ab.99999999999999999999",
        ] {
            assert_eq!(Epoch(0xab).read(bad), None, "{bad}");
        }
    }
}
