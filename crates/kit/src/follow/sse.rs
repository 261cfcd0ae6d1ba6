//! The text of an event stream, block by block, as the HTML standard defines it. Knows no I/O.

use std::collections::VecDeque;

/// One block: the lines up to an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) event: Option<String>,
    pub(super) id: Option<String>,
    pub(super) data: Option<String>,
    pub(super) retry_ms: Option<u64>,
}

/// A block is larger than the limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

pub(super) struct Parser {
    limit_bytes: usize,
    line: Vec<u8>,
    block: Block,
    size_bytes: usize,
    /// The last byte was a CR: an LF that follows belongs to it.
    after_cr: bool,
    first_line: bool,
    blocks: VecDeque<Block>,
}

impl Parser {
    pub(super) fn new(limit_bytes: usize) -> Parser {
        Parser {
            limit_bytes,
            line: Vec::new(),
            block: Block::default(),
            size_bytes: 0,
            after_cr: false,
            first_line: true,
            blocks: VecDeque::new(),
        }
    }

    /// The next complete block. What a broken connection leaves behind is never returned.
    pub(super) fn next(&mut self) -> Option<Block> {
        self.blocks.pop_front()
    }

    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<(), TooLarge> {
        while let Some(first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &bytes[..end.unwrap_or(bytes.len())];
            self.size_bytes += part.len();
            if self.size_bytes > self.limit_bytes {
                return Err(TooLarge);
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else { break };
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.end_line();
        }
        Ok(())
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let mut line = &*line;
        if std::mem::take(&mut self.first_line) {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            self.size_bytes = 0;
            let block = std::mem::take(&mut self.block);
            if block != Block::default() {
                self.blocks.push_back(block);
            }
            return;
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => self.block.event = Some(value.to_owned()),
            "data" => match &mut self.block.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                data => *data = Some(value.to_owned()),
            },
            "id" if !value.contains('\0') => self.block.id = Some(value.to_owned()),
            "retry" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.block.retry_ms = value.parse().ok();
            }
            // A comment, or a field that is not defined.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(event: Option<&str>, id: Option<&str>, data: Option<&str>) -> Block {
        let own = |text: Option<&str>| text.map(str::to_owned);
        Block { event: own(event), id: own(id), data: own(data), retry_ms: None }
    }

    #[test]
    fn blocks_are_the_same_however_the_bytes_are_cut_and_whatever_ends_a_line() {
        let text = "\u{feff}retry: 3558\nid: e.0\n\n: still here\nid: e.1\n\nevent: order.created\n\
                    id: e.2\ndata: {\"a\":\ndata:  1}\n\nid\ndata\nfoo: bar\n\n\n\n\
                    event: half\ndata: x";
        let expected = [
            Block { retry_ms: Some(3558), ..block(None, Some("e.0"), None) },
            block(None, Some("e.1"), None),
            block(Some("order.created"), Some("e.2"), Some("{\"a\":\n 1}")),
            block(None, Some(""), Some("")),
        ];
        for ending in ["\n", "\r\n", "\r"] {
            let text = text.replace('\n', ending);
            for size in 1..=text.len() {
                let mut parser = Parser::new(1000);
                text.as_bytes().chunks(size).for_each(|part| parser.push(part).unwrap());
                let blocks: Vec<Block> = std::iter::from_fn(|| parser.next()).collect();
                assert_eq!(blocks, expected, "{ending:?} in parts of {size}");
            }
        }
    }

    #[test]
    fn a_block_has_a_limit_and_a_stream_has_none() {
        let mut parser = Parser::new(100);
        for _ in 0..100 {
            parser.push(b"data: 0123456789\nid: 1\n\n").unwrap();
        }
        assert_eq!(parser.push(&[b'x'; 101]), Err(TooLarge));
        let mut parser = Parser::new(100);
        let many = (0..20).try_for_each(|_| parser.push(b"data: 0123456789\n"));
        assert_eq!(many, Err(TooLarge));
    }
}
