//! The nearest known word to a misspelt one. Knows no file and no schema.

/// Longer words are not compared: the comparison takes quadratic time, and no known name is longer.
const MAX_CHARS: usize = 63;

/// ` (did you mean `x`?)`, or nothing when no candidate is close.
pub(crate) fn hint<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(word, candidates) {
        Some(near) => format!(" (did you mean `{near}`?)"),
        None => String::new(),
    }
}

fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    if length > MAX_CHARS {
        return None;
    }
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(far, _)| *far <= length.div_ceil(3))
        .min_by_key(|(far, _)| *far)
        .map(|(_, candidate)| candidate)
}

/// Edit distance in which a swap of neighbours counts as one edit, as typists make them.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut rows = vec![vec![0; right.len() + 1]; left.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=right.len()).collect();
    for i in 1..=left.len() {
        for j in 1..=right.len() {
            let change = rows[i - 1][j - 1] + usize::from(left[i - 1] != right[j - 1]);
            let mut best = change.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            let swapped =
                i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1];
            if swapped {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_names_find_the_one_that_was_meant() {
        let known = ["required", "description", "default", "min"];
        assert_eq!(hint("requierd", known), " (did you mean `required`?)");
        assert_eq!(hint("descripton", known), " (did you mean `description`?)");
        assert_eq!(hint("colour", known), "");
        assert_eq!(hint(&"x".repeat(5000), known), "");
    }
}
