//! Keys and their places in a directory tree: any text, read as a key and as a path.

use forebay_fs::names::{Kind, Meaning, OWN_DIRECTORY, Place, meaning};

/// A key's places lead back to it, through names that a file system takes and that stay below the
/// bucket; any other name is a key's, or nothing.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    for name in text.split('/').filter(|name| !name.is_empty()) {
        check_name(name);
    }
    if text.is_empty() {
        return;
    }
    let Place {
        folders,
        plain,
        joins,
        escaped,
    } = Place::of_key(text);
    let mut paths = vec![[folders.clone(), joins, vec![escaped]].concat()];
    paths.extend(plain.map(|plain| [folders, vec![plain]].concat()));
    for path in paths {
        for name in &path {
            assert!((1..=255).contains(&name.len()), "{name:?}");
            assert!(![".", "..", OWN_DIRECTORY].contains(&name.as_str()));
            assert!(!name.contains(['/', '\0']), "{name:?}");
        }
        assert_eq!(key_of(&path).as_deref(), Some(text), "{path:?}");
    }
}

/// A name that means a whole plain segment is where that segment's key is.
fn check_name(name: &str) {
    if let Some(Meaning::Object(text)) = meaning(name, Kind::File) {
        assert!(!text.contains('/'));
        if *text == *name {
            assert_eq!(Place::of_key(name).plain.as_deref(), Some(name));
        }
    }
    match meaning(name, Kind::Directory) {
        Some(Meaning::Folder(text) | Meaning::Join(text)) => assert!(!text.contains('/')),
        Some(Meaning::Object(_)) => panic!("{name:?} is a directory"),
        None => {}
    }
}

/// Reads a path back to the key it stands for.
fn key_of(names: &[String]) -> Option<String> {
    let (last, folders) = names.split_last()?;
    let mut key = String::new();
    for folder in folders {
        match meaning(folder, Kind::Directory)? {
            Meaning::Folder(text) => key.extend([&text, "/"]),
            Meaning::Join(text) => key.push_str(&text),
            Meaning::Object(_) => return None,
        }
    }
    match meaning(last, Kind::File)? {
        Meaning::Object(text) => Some(key + &text),
        Meaning::Folder(_) | Meaning::Join(_) => None,
    }
}
