//! The Huffman code of header texts in HPACK and QPACK (RFC 7541 appendix B), read only: what we
//! send is not coded. The code is canonical, so lengths and the order of symbols say all of it.
//! No I/O.

/// How many symbols have a code of this many bits, for every length there is.
const LENGTHS: [(u32, u32); 21] = [
    (5, 10),
    (6, 26),
    (7, 32),
    (8, 6),
    (10, 5),
    (11, 3),
    (12, 2),
    (13, 6),
    (14, 2),
    (15, 3),
    (19, 3),
    (20, 8),
    (21, 13),
    (22, 26),
    (23, 29),
    (24, 12),
    (25, 4),
    (26, 15),
    (27, 19),
    (28, 29),
    (30, 3),
];

/// The symbols in the order of their codes.
#[rustfmt::skip]
const SYMBOLS: [u8; 256] = [
    48, 49, 50, 97, 99, 101, 105, 111, 115, 116, 32, 37, 45, 46, 47, 51, 52, 53, 54, 55, 56, 57,
    61, 65, 95, 98, 100, 102, 103, 104, 108, 109, 110, 112, 114, 117, 58, 66, 67, 68, 69, 70, 71,
    72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 89, 106, 107, 113, 118, 119,
    120, 121, 122, 38, 42, 44, 59, 88, 90, 33, 34, 40, 41, 63, 39, 43, 124, 35, 62, 0, 36, 64, 91,
    93, 126, 94, 125, 60, 96, 123, 92, 195, 208, 128, 130, 131, 162, 184, 194, 224, 226, 153, 161,
    167, 172, 176, 177, 179, 209, 216, 217, 227, 229, 230, 129, 132, 133, 134, 136, 146, 154, 156,
    160, 163, 164, 169, 170, 173, 178, 181, 185, 186, 187, 189, 190, 196, 198, 228, 232, 233, 1,
    135, 137, 138, 139, 140, 141, 143, 147, 149, 150, 151, 152, 155, 157, 158, 165, 166, 168, 174,
    175, 180, 182, 183, 188, 191, 197, 231, 239, 9, 142, 144, 145, 148, 159, 171, 206, 215, 225,
    236, 237, 199, 207, 234, 235, 192, 193, 200, 201, 202, 205, 210, 213, 218, 219, 238, 240, 242,
    243, 255, 203, 204, 211, 212, 214, 221, 222, 223, 241, 244, 245, 246, 247, 248, 250, 251, 252,
    253, 254, 2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 27, 28,
    29, 30, 31, 127, 220, 249, 10, 13, 22,
];

/// The text, or none if these bytes are no code: an unfinished one that is not the beginning of the
/// end mark, a whole byte of it, or the mark itself.
pub(crate) fn decode(coded: &[u8]) -> Option<Vec<u8>> {
    // The shortest code has five bits.
    let mut text = Vec::with_capacity(coded.len() * 8 / 5);
    each(coded, |symbol| text.push(symbol))?;
    Some(text)
}

/// The same, one symbol after the other.
pub(crate) fn each(coded: &[u8], mut take: impl FnMut(u8)) -> Option<()> {
    let mut bits: u64 = 0;
    let mut count: u32 = 0;
    let mut coded = coded.iter();
    loop {
        while count <= 56
            && let Some(byte) = coded.next()
        {
            bits = (bits << 8) | u64::from(*byte);
            count += 8;
        }
        match symbol(bits, count) {
            Some((symbol, length)) => {
                take(symbol);
                count -= length;
                bits &= (1 << count) - 1;
            }
            None => return (count < 8 && bits == (1 << count) - 1).then_some(()),
        }
    }
}

/// The first symbol of these bits, and the length of its code.
fn symbol(bits: u64, count: u32) -> Option<(u8, u32)> {
    let mut first_code: u64 = 0;
    let mut first_symbol: u32 = 0;
    let mut before = 0;
    for (length, symbols) in LENGTHS {
        if length > count {
            return None;
        }
        first_code <<= length - before;
        before = length;
        let code = bits >> (count - length);
        if code < first_code + u64::from(symbols) {
            let index = first_symbol + u32::try_from(code - first_code).ok()?;
            return Some((SYMBOLS[index as usize], length));
        }
        first_code += u64::from(symbols);
        first_symbol += symbols;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(coded: &[u8], expected: Option<&str>) {
        assert_eq!(decode(coded).as_deref(), expected.map(str::as_bytes));
    }

    #[test]
    fn the_examples_of_the_standard_are_read() {
        let host = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        check(&host, Some("www.example.com"));
        check(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], Some("no-cache"));
        check(&[], Some(""));
    }

    #[test]
    fn wrong_padding_is_refused() {
        // `0` is five zeros; three ones follow it.
        check(&[0b0000_0111], Some("0"));
        check(&[0b0000_0110], None);
        check(&[0b0000_0111, 0xff], None);
        // The end mark itself.
        check(&[0xff, 0xff, 0xff, 0xff], None);
    }

    #[test]
    fn every_symbol_is_read_back_from_its_code() {
        let (mut code, mut before, mut index) = (0_u64, 0, 0);
        for (length, symbols) in LENGTHS {
            code <<= length - before;
            before = length;
            for _ in 0..symbols {
                let left = 40 - length;
                let padded = (code << left) | ((1 << left) - 1);
                let bytes = padded.to_be_bytes();
                let coded = &bytes[3..][..length.div_ceil(8) as usize];
                assert_eq!(decode(coded), Some(vec![SYMBOLS[index]]));
                code += 1;
                index += 1;
            }
        }
        assert_eq!(index, SYMBOLS.len());
    }
}
