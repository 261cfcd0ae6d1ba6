//! The mask of every client payload, so that no proxy takes it for something else (RFC 6455 5.3).
//! It is no secret; the code only has to be fast.

/// Removes or adds the mask: the payload begins with the mask's first byte.
pub(super) fn apply(payload: &mut [u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = payload.as_chunks_mut::<8>();
    for eight in words {
        *eight = (u64::from_ne_bytes(*eight) ^ word).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

/// The mask after this many bytes.
pub(super) fn behind(mut mask: [u8; 4], count: usize) -> [u8; 4] {
    mask.rotate_left(count % 4);
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_applies_correctly_in_any_split_of_the_payload() {
        let mask = [1, 2, 4, 8];
        for length in 0..40 {
            let expected: Vec<u8> = (0..length).map(|at| 7 ^ mask[at % 4]).collect();
            for cut in 0..=length {
                let mut payload = vec![7; length];
                let (one, other) = payload.split_at_mut(cut);
                apply(one, mask);
                apply(other, behind(mask, cut));
                assert_eq!(payload, expected, "{length} bytes cut at {cut}");
            }
        }
    }
}
