//! AWS profile files: a line with the name of a section, then the file.

use std::fmt::Write as _;

use forebay_origin::credentials::profile::{Profile, parse};

use crate::input::Input;

/// A section that is found prints and reads the same, and is what a reading section by section
/// gives; whether a file is one does not depend on what is looked for in it.
pub fn check(data: &[u8]) {
    let mut input = Input(data);
    let section = input.text_line();
    let Ok(text) = std::str::from_utf8(input.0) else {
        return;
    };
    let read = parse(text, section);
    assert_eq!(read.as_ref().err(), parse(text, "other").as_ref().err());
    match read {
        Ok(found) => {
            assert_eq!(found, read_by_sections(text, section));
            if let Some(profile) = found {
                check_printed(section, &profile);
            }
        }
        Err(line) => {
            assert!((1..=text.lines().count()).contains(&line));
            let before: Vec<&str> = text.lines().take(line - 1).collect();
            assert!(parse(&before.join("\n"), section).is_ok());
        }
    }
}

fn check_printed(section: &str, profile: &Profile) {
    let mut printed = format!("[{section}]\n");
    for (name, value) in profile {
        assert_eq!(name.trim(), name);
        assert_eq!(value.trim(), value);
        assert!(!name.contains(['=', '\n']) && !value.contains('\n'));
        assert!(!name.chars().any(|c| c.is_ascii_uppercase()), "{name}");
        writeln!(printed, "{name}={value}").expect("a text takes all");
    }
    assert_eq!(
        parse(&printed, section).as_ref(),
        Ok(&Some(profile.clone()))
    );
    let shadowed = format!("[not {section}]\nwrong=1\n{printed}[]\nwrong=1\n");
    if !section.trim().is_empty() {
        assert_eq!(parse(&shadowed, section), Ok(Some(profile.clone())));
    }
}

/// Of a file that is one: cuts it into sections, then looks through those of the name.
fn read_by_sections(text: &str, section: &str) -> Option<Profile> {
    let words =
        |name: &str| -> Vec<String> { name.split_whitespace().map(str::to_owned).collect() };
    let mut sections: Vec<(Option<Vec<String>>, Vec<&str>)> = vec![(None, Vec::new())];
    for line in text.lines() {
        if line.starts_with([' ', '\t'])
            || matches!(line.trim().chars().next(), None | Some('#' | ';'))
        {
            continue;
        }
        match line
            .trim()
            .strip_prefix('[')
            .and_then(|rest| rest.find(']').map(|end| &rest[..end]))
        {
            Some(name) => sections.push((Some(words(name)), Vec::new())),
            None => sections.last_mut().expect("there is one").1.push(line),
        }
    }
    let named = Some(words(section));
    let mut ours = sections
        .into_iter()
        .filter(|(name, _)| *name == named)
        .peekable();
    ours.peek()?;
    let settings = ours.flat_map(|(_, lines)| lines).filter_map(|line| {
        let at = line.find('=')?;
        Some((
            line[..at].trim().to_ascii_lowercase(),
            line[at + 1..].trim().to_owned(),
        ))
    });
    Some(settings.collect())
}
