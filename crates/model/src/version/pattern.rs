//! Texts that match a simple pattern: literals, classes, groups without choices inside, and counts.
//! What is not understood yields nothing; the caller keeps only what matches anyway.

/// Most repetitions of one part that are written out.
const REPEATS: usize = 32;
/// Characters that are tried wherever a part takes them.
const LETTERS: [char; 8] = ['a', '0', '1', 'A', 'x', 'é', '-', '_'];

/// A part of the pattern: what one character of it may be, and how often it stands.
struct Part {
    one: regex::Regex,
    /// Some character that fits.
    any: String,
    least: usize,
    most: usize,
}

/// One text for each letter and separator, used wherever the pattern lets it.
pub(super) fn samples(pattern: &str, separators: &[String]) -> Vec<String> {
    let letters = separators.iter().filter_map(|by| by.chars().next()).chain(LETTERS);
    let Some(parts) = parts(pattern) else { return Vec::new() };
    let mut found = Vec::new();
    for letter in letters.map(String::from) {
        for most in [false, true] {
            let piece = |part: &Part| {
                let fits = part.one.is_match(&letter);
                let character = if fits { &letter } else { &part.any };
                character.repeat(if most { part.most } else { part.least })
            };
            let text: String = parts.iter().map(piece).collect();
            if !found.contains(&text) {
                found.push(text);
            }
        }
    }
    found
}

fn parts(pattern: &str) -> Option<Vec<Part>> {
    let inner = pattern.strip_prefix('^').unwrap_or(pattern);
    let mut rest = inner.strip_suffix('$').unwrap_or(inner);
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let (atom, after) = atom(rest)?;
        let (least, most, after) = count(after)?;
        let one = regex::Regex::new(&format!("^{atom}$")).ok()?;
        parts.push(Part { any: any(atom, &one)?, one, least, most });
        rest = after;
    }
    Some(parts)
}

/// Some character that the atom takes.
fn any(atom: &str, one: &regex::Regex) -> Option<String> {
    let plain = (' '..='~').chain(['é', '日']);
    let named = atom.chars().filter(|c| !"[]\\^".contains(*c));
    let mut tried = named.chain(plain).map(String::from);
    tried.find(|text| one.is_match(text))
}

/// The next part of the pattern: a class, an escape or a character.
fn atom(rest: &str) -> Option<(&str, &str)> {
    let first = rest.chars().next()?;
    let length = match first {
        '[' => {
            // A bracket right after the opening one is a member.
            let from = if rest[1..].starts_with('^') { 3 } else { 2 };
            rest.get(from..)?.find(']')? + from + 1
        }
        '\\' => 1 + rest[1..].chars().next()?.len_utf8(),
        '(' | ')' | '|' | '*' | '+' | '?' | '{' => return None,
        other => other.len_utf8(),
    };
    Some(rest.split_at(length))
}

/// How often it stands, at least and at most, and what follows.
fn count(after: &str) -> Option<(usize, usize, &str)> {
    /// What "any number" is here.
    const MORE: usize = 3;
    match after.chars().next() {
        Some('*') => Some((0, MORE, &after[1..])),
        Some('+') => Some((1, 1 + MORE, &after[1..])),
        Some('?') => Some((0, 1, &after[1..])),
        Some('{') => {
            let (bounds, rest) = after[1..].split_once('}')?;
            let (least, most) = match bounds.split_once(',') {
                Some((least, "")) => (least, None),
                Some((least, most)) => (least, Some(most)),
                None => (bounds, Some(bounds)),
            };
            let least: usize = least.parse().ok()?;
            let most = most.map_or(Some(least + MORE), |most| most.parse().ok())?;
            Some((least.min(REPEATS), most.min(REPEATS), rest))
        }
        _ => Some((1, 1, after)),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn simple_patterns_are_met() {
        for pattern in ["^[0-9Xx-]{10,17}$", "^[a-z]{3}$", r"^\d+\.\d{2}$", "^[^ ]+$", "^a?b*$"] {
            let regex = regex::Regex::new(pattern).unwrap();
            let found = super::samples(pattern, &[" ".to_owned()]);
            assert!(found.iter().any(|text| regex.is_match(text)), "{pattern}: {found:?}");
        }
        assert!(super::samples("^(a|b)$", &[]).is_empty());
    }
}
