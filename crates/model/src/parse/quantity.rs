//! Durations and sizes as people write them: `"500ms"`, `"5m"`, `"1 MiB"`. Knows texts only.

use std::time::Duration;

/// A whole number and a unit: ms, s, m, h or d.
pub fn duration(text: &str) -> Option<Duration> {
    let (count, unit) = split(text)?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    Some(Duration::from_millis(count.checked_mul(milliseconds)?))
}

/// A whole number of bytes, KiB or MiB.
pub(super) fn size_bytes(text: &str) -> Option<u64> {
    let (count, unit) = split(text)?;
    let bytes = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    count.checked_mul(bytes)
}

/// How a duration is written in a message: the largest unit that leaves no rest.
pub(crate) fn show(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if milliseconds > 0 && milliseconds.is_multiple_of(size) {
            return format!("{}{unit}", milliseconds / size);
        }
    }
    format!("{milliseconds}ms")
}

fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    Some((count.parse().ok()?, unit.strip_prefix(' ').unwrap_or(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_read_as_written() {
        for (text, milliseconds) in [
            ("500ms", Some(500)),
            ("1s", Some(1_000)),
            ("5m", Some(300_000)),
            ("2h", Some(7_200_000)),
            ("3 d", Some(259_200_000)),
            ("1.5s", None),
            ("s", None),
            ("-1s", None),
            ("1 week", None),
            ("99999999999999999999d", None),
            ("99999999999999999d", None),
        ] {
            assert_eq!(duration(text), milliseconds.map(Duration::from_millis), "{text}");
        }
        assert_eq!(size_bytes("1 MiB"), Some(1_048_576));
        assert_eq!(size_bytes("64KiB"), Some(65_536));
        assert_eq!(size_bytes("512"), Some(512));
        assert_eq!(size_bytes("1 MB"), None);
    }

    #[test]
    fn messages_show_durations_in_their_largest_unit() {
        assert_eq!(show(Duration::from_millis(1)), "1ms");
        assert_eq!(show(Duration::from_secs(60)), "1m");
        assert_eq!(show(Duration::from_secs(90)), "90s");
        assert_eq!(show(Duration::from_secs(86_400)), "1d");
    }
}
