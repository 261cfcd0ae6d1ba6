//! Texts that match a simple pattern: literals, classes, groups without choices inside, and counts.
//! What is not understood yields nothing; the caller keeps only what matches anyway.

/// Most repetitions of one part that are written out.
const REPEATS: usize = 32;
/// Characters that are tried wherever a part takes them.
const LETTERS: [char; 8] = ['a', '0', '1', 'A', 'x', 'é', '-', '_'];

/// One text for each letter and separator, used wherever the pattern lets it.
pub(super) fn samples(pattern: &str, separators: &[String]) -> Vec<String> {
    let letters = separators.iter().filter_map(|by| by.chars().next()).chain(LETTERS);
    let mut found = Vec::new();
    for letter in letters {
        for most in [false, true] {
            found.extend(text(pattern, letter, most).filter(|text| !found.contains(text)));
        }
    }
    found
}

/// A text in which `letter` stands wherever it may.
fn text(pattern: &str, letter: char, most: bool) -> Option<String> {
    let inner = pattern.strip_prefix('^').unwrap_or(pattern);
    let mut rest = inner.strip_suffix('$').unwrap_or(inner);
    let mut out = String::new();
    while !rest.is_empty() {
        let (atom, after) = atom(rest)?;
        let (count, after) = count(after, most)?;
        let piece = match regex::Regex::new(&format!("^{atom}$")) {
            Ok(one) if one.is_match(letter.encode_utf8(&mut [0; 4])) => letter.to_string(),
            Ok(one) => any(atom, &one)?,
            Err(_) => return None,
        };
        out.push_str(&piece.repeat(count));
        rest = after;
    }
    Some(out)
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

/// How often it stands, and what follows.
fn count(after: &str, most: bool) -> Option<(usize, &str)> {
    let open = |least: usize| if most { least + 3 } else { least };
    match after.chars().next() {
        Some('*') => Some((open(0), &after[1..])),
        Some('+') => Some((open(1), &after[1..])),
        Some('?') => Some((usize::from(most), &after[1..])),
        Some('{') => {
            let (bounds, rest) = after[1..].split_once('}')?;
            let (least, limit) = match bounds.split_once(',') {
                Some((least, "")) => (least.parse().ok()?, None),
                Some((least, limit)) => (least.parse().ok()?, limit.parse().ok()),
                None => (bounds.parse().ok()?, bounds.parse().ok()),
            };
            let many = if most { limit.unwrap_or(open(least)) } else { least };
            Some((many.min(REPEATS), rest))
        }
        _ => Some((1, after)),
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
