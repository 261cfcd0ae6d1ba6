//! A row while it is moved, and the checksum of the rows of a table. Both engines give the same
//! cells for the same row, so both have the same checksum.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// One value of a row. Of those in a mark, only integers and texts occur.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    Null,
    Integer(i64),
    Number(f64),
    Text(String),
    Bytes(Vec<u8>),
}

/// The values of a row, in the order of the columns of its table.
pub type Row = Vec<Cell>;

impl Cell {
    /// Bytes that it takes in memory, roughly.
    pub fn bytes(&self) -> usize {
        const FIXED: usize = 32;
        FIXED
            + match self {
                Cell::Text(text) => text.len(),
                Cell::Bytes(bytes) => bytes.len(),
                Cell::Null | Cell::Integer(_) | Cell::Number(_) => 0,
            }
    }

    /// Kind, length and content: no two rows have the same bytes.
    fn digest(&self, into: &mut Sha256) {
        let mut add = |kind: u8, content: &[u8]| {
            into.update([kind]);
            into.update((content.len() as u64).to_be_bytes());
            into.update(content);
        };
        match self {
            Cell::Null => add(0, &[]),
            Cell::Integer(whole) => add(1, &whole.to_be_bytes()),
            // SQLite has no negative zero.
            Cell::Number(number) => add(2, &(number + 0.0).to_be_bytes()),
            Cell::Text(text) => add(3, text.as_bytes()),
            Cell::Bytes(bytes) => add(4, bytes),
        }
    }
}

/// How many rows there are, and the sum of their digests: it does not depend on their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum {
    pub rows: u64,
    sum: u128,
}

impl Checksum {
    pub fn add(&mut self, row: &[Cell]) {
        let mut digest = Sha256::new();
        row.iter().for_each(|cell| cell.digest(&mut digest));
        let digest = digest.finalize();
        let half = digest.iter().take(16).fold(0, |sum: u128, byte| sum << 8 | u128::from(*byte));
        self.rows += 1;
        self.sum = self.sum.wrapping_add(half);
    }

    pub fn hex(&self) -> String {
        format!("{:032x}", self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(rows: &[&[Cell]]) -> Checksum {
        let mut sum = Checksum::default();
        rows.iter().for_each(|row| sum.add(row));
        sum
    }

    #[test]
    fn a_checksum_differs_where_a_value_moves_to_another_column() {
        let text = |text: &str| Cell::Text(text.to_owned());
        let ab = [text("a"), text("b")];
        for other in [
            [text("b"), text("a")],
            [text("ab"), text("")],
            [text("a"), Cell::Null],
            [text("a"), Cell::Bytes(b"b".to_vec())],
        ] {
            assert_ne!(sum(&[&ab]), sum(&[&other]), "{other:?}");
        }
        let one = [Cell::Integer(1)];
        assert_ne!(sum(&[&one]), sum(&[&one, &one]));
        assert_eq!(sum(&[&one, &ab]), sum(&[&ab, &one]), "the order does not count");
        assert_eq!(sum(&[&[Cell::Number(-0.0)]]), sum(&[&[Cell::Number(0.0)]]));
    }
}
