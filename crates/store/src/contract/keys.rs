//! Odd keys: each is its own object, in every operation.

use super::{
    bucket,
    requests::{copy, delete, get, head, list_v2, put},
};
use crate::Store;

/// Short ones.
const ODD: [&str; 63] = [
    "a",
    "a/",
    "a//",
    "a//b",
    "a/b",
    "a/b/",
    "a/b/c",
    "a-",
    "a0",
    "/",
    "//",
    "/a",
    ".",
    "..",
    "./a",
    "../a",
    "../../etc/passwd",
    "a/../b",
    "a/./b",
    "a/..",
    " ",
    " a ",
    "a b",
    "a\tb",
    "a\nb",
    "a\rb",
    "a\0b",
    "\0",
    "\u{1}",
    "\u{7f}",
    "%2F",
    "%00",
    "a%2Fb",
    "%",
    "%25",
    "+",
    "a+b",
    "&<>\"'",
    "a\\b",
    "*",
    "?",
    "#",
    "~",
    "$HOME",
    "-rf",
    "CON",
    "é",
    "e\u{301}",
    "😀",
    "\u{fffe}",
    "\u{ffff}",
    ".forebay",
    ".forebay/tmp",
    ".forebay/uploads/x",
    ".forebay%a",
    ".object%a",
    ".folder%a",
    ".join%a",
    ".object%",
    "lost+found",
    "a.tmp",
    "A",
    "Z",
];

/// Keys that a file name, a path or a document can't hold as they are, or that look like others.
fn odd_keys() -> Vec<String> {
    let mut keys: Vec<String> = ODD.map(str::to_owned).into();
    keys.push("n".repeat(255));
    keys.push(format!("{}/x", "n".repeat(255)));
    keys.push("n".repeat(256));
    keys.push(format!("{}/{}", "s".repeat(300), "t".repeat(300)));
    keys.push(format!("{}/", "s".repeat(300)));
    keys.push("s".repeat(300));
    keys.push("é".repeat(200));
    keys.push(format!(".object%{}", "x".repeat(250)));
    keys.push("k".repeat(1024));
    keys.push("d/".repeat(512));
    keys.push("/".repeat(1024));
    keys.push("%".repeat(1024));
    keys.push("\0".repeat(1024));
    keys
}

pub(super) async fn check(store: &dyn Store) {
    let b = bucket(store, "contract-keys").await;
    let mut keys = odd_keys();
    for key in &keys {
        put(b, key)
            .header("x-amz-meta-k", "v")
            .body(format!("of {key}"))
            .expect(200, store)
            .await;
    }
    for key in &keys {
        let read = get(b, key).expect(200, store).await;
        assert_eq!(read.text(), format!("of {key}"), "{key:?}");
        assert_eq!(read.header("x-amz-meta-k"), "v", "{key:?}");
        head(b, key).expect(200, store).await;
    }
    keys.sort_unstable();
    let listed = list_v2(b).expect(200, store).await.elements("Key");
    assert_eq!(listed, keys, "keys in byte order");
    delete_each(store, b, &keys).await;
    puts_in_the_other_order(store).await;
}

/// Deletes from both ends, so that each of two keys that get in each other's way goes first once.
async fn delete_each(store: &dyn Store, b: &str, keys: &[String]) {
    copy((b, "../a"), (b, "copied/../x"))
        .expect(200, store)
        .await;
    assert_eq!(
        get(b, "copied/../x").expect(200, store).await.text(),
        "of ../a"
    );
    delete(b, "copied/../x").expect(204, store).await;
    let mut left: std::collections::BTreeSet<&String> = keys.iter().collect();
    while let (Some(first), Some(last)) = (left.pop_first(), left.pop_last()) {
        for key in [first, last] {
            delete(b, key).expect(204, store).await;
            assert_eq!(get(b, key).refusal(store).await, "NoSuchKey", "{key:?}");
        }
    }
    for key in keys {
        delete(b, key).expect(204, store).await;
    }
    assert_eq!(list_v2(b).expect(200, store).await.elements("Key"), [""; 0]);
}

async fn puts_in_the_other_order(store: &dyn Store) {
    let b = bucket(store, "contract-keys-order").await;
    for round in 0..2 {
        let mut keys = ["x/y/z", "x/y", "x", "x/", "x/y/"];
        keys.sort_unstable();
        if round == 1 {
            keys.reverse();
        }
        for key in keys {
            put(b, key).body(key.to_owned()).expect(200, store).await;
        }
        for key in keys {
            put(b, key)
                .body(format!("{key} again"))
                .expect(200, store)
                .await;
            assert_eq!(
                get(b, key).expect(200, store).await.text(),
                format!("{key} again")
            );
        }
        let mut listed = list_v2(b).expect(200, store).await.elements("Key");
        keys.sort_unstable();
        assert_eq!(listed, keys);
        for key in keys {
            delete(b, key).expect(204, store).await;
            listed.remove(0);
            assert_eq!(list_v2(b).expect(200, store).await.elements("Key"), listed);
        }
    }
}
