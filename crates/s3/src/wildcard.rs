//! Patterns with `*` for any number of characters and `?` for one: of buckets, keys, actions.
//!
//! A policy's resources have patterns of their own (`policy`), with variables in them.

/// Whether `text` matches `pattern`.
///
/// Goes back to the last `*` on a mismatch: time is at most the product of the two lengths, memory
/// is constant.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern_bytes, text_bytes) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut retry = None;
    while t < text.len() {
        match pattern_bytes.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(b'?') if text.is_char_boundary(t) => (p, t) = (p + 1, next_character(text, t)),
            Some(&byte) if byte == text_bytes[t] && byte != b'?' => (p, t) = (p + 1, t + 1),
            _ => {
                let Some((after_star, eaten)) = retry else {
                    return false;
                };
                retry = Some((after_star, eaten + 1));
                (p, t) = (after_star, eaten + 1);
            }
        }
    }
    pattern_bytes[p..].iter().all(|&byte| byte == b'*')
}

/// Offset of the character after the one at `t`, which is before the end.
fn next_character(text: &str, t: usize) -> usize {
    (t + 1..text.len())
        .find(|&next| text.is_char_boundary(next))
        .unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_is_any_text_and_a_question_mark_one_character() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("logs-*", "logs-", true),
            ("logs-*", "log", false),
            ("a?c", "abc", true),
            ("a?c", "aéc", true),
            ("a??c", "aéc", false),
            ("*?", "é", true),
            ("*??", "é", false),
            ("?", "?", true),
            ("*.parquet", "a/b.parquet", true),
            ("a*b*c", "aXbXbc", true),
            ("a*b*c", "aXbXbd", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    proptest! {
        /// Goal: patterns match as the plain definition says.
        /// Method: a recursive matcher that is too slow to use and too simple to be wrong.
        #[test]
        fn wildcards_match_as_defined(pattern in "[abé*?]{0,8}", text in "[abé]{0,8}") {
            fn defined(pattern: &[char], text: &[char]) -> bool {
                match (pattern, text) {
                    ([], []) => true,
                    (['*', rest @ ..], _) => {
                        defined(rest, text) || (!text.is_empty() && defined(pattern, &text[1..]))
                    }
                    (['?', rest @ ..], [_, tail @ ..]) => defined(rest, tail),
                    ([a, rest @ ..], [b, tail @ ..]) => a == b && defined(rest, tail),
                    _ => false,
                }
            }
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(matches(&pattern, &text), defined(&chars(&pattern), &chars(&text)));
        }
    }
}
