//! Percent-encoded paths and queries: any text.

use forebay_s3::uri::{decode_path, encode_path, encode_query, query_pairs};

/// Decoding agrees with a byte-by-byte one, and what is encoded decodes to itself.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let simple = decode(data, Plus::Itself).and_then(|bytes| String::from_utf8(bytes).ok());
    assert_eq!(decode_path(text).ok().as_deref(), simple.as_deref());

    assert_eq!(decode_path(&encode_path(text)).as_deref(), Ok(text));
    assert!(
        encode_path(text)
            .bytes()
            .all(|byte| is_unreserved(byte) || b"/%".contains(&byte))
    );
    assert!(
        encode_query(text)
            .bytes()
            .all(|byte| is_unreserved(byte) || byte == b'%')
    );
    let encoded = encode_query(text);
    let pair = format!("{encoded}={encoded}");
    let mut pairs = query_pairs(&pair);
    let pair = pairs.next().expect("there is one pair");
    assert_eq!((&*pair.0, &*pair.1), (text, text));
    assert!(pairs.next().is_none());

    let pairs: Vec<_> = query_pairs(text).collect();
    assert_eq!(
        pairs.len(),
        text.split('&').filter(|pair| !pair.is_empty()).count()
    );
    let printed: Vec<_> = pairs
        .iter()
        .map(|(name, value)| format!("{}={}", encode_query(name), encode_query(value)))
        .collect();
    assert!(query_pairs(&printed.join("&")).eq(pairs.iter().cloned()));
    for ((name, _), pair) in pairs
        .iter()
        .zip(text.split('&').filter(|pair| !pair.is_empty()))
    {
        let encoded = pair.split('=').next().unwrap_or_default();
        if let Some(bytes) = decode(encoded.as_bytes(), Plus::Space) {
            assert_eq!(*name, String::from_utf8_lossy(&bytes));
        }
    }
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

#[derive(Clone, Copy, PartialEq)]
enum Plus {
    Itself,
    Space,
}

/// Decodes; `None` when a `%` has no two hex digits after it.
fn decode(text: &[u8], plus: Plus) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(*bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            b'+' if plus == Plus::Space => b' ',
            other => *other,
        });
    }
    Some(decoded)
}
