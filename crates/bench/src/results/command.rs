//! Command lines and addresses as a run file may hold them: without secrets.

/// What stands where a secret stood.
const HIDDEN: &str = "***";

/// Flags whose value is secret, wherever they come in a name: `--secret-key`, `--session-token`.
const SECRET_WORDS: [&str; 4] = ["secret", "token", "password", "credential"];

/// The command line with its secrets hidden: values of flags that name one, whole or after `=`, and
/// what an address holds of user, password and query.
pub fn redacted(arguments: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut hides_next = false;
    let mut shown = Vec::new();
    for argument in arguments {
        if std::mem::take(&mut hides_next) {
            shown.push(HIDDEN.to_owned());
            continue;
        }
        let is_flag = argument.starts_with('-');
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) if is_flag => (name, Some(value)),
            _ => (argument.as_str(), None),
        };
        let is_secret = is_flag && SECRET_WORDS.iter().any(|word| name.contains(word));
        shown.push(match (is_secret, value) {
            (true, Some(_)) => format!("{name}={HIDDEN}"),
            (true, None) => {
                hides_next = true;
                argument
            }
            (false, Some(value)) => format!("{name}={}", without_credentials(value)),
            (false, None) => without_credentials(&argument),
        });
    }
    shown
}

/// A text in which every address (`scheme://…`) has lost its user, password and query; a label
/// before it (`a=http://…`) stays.
pub(super) fn without_credentials(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}
