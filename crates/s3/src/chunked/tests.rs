//! AWS's published bodies, everything that can be wrong with one, and the round trip.

use std::num::NonZeroU64;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;
use crate::checksum::{Algorithm, Checksum, ChecksumHeader};
use crate::code::Code;
use crate::sigv4::{PayloadMode, ScopedKey, SecretKey, Signature};
use crate::time::AmzDate;

const CRC32C: HeaderName = HeaderName::from_static("x-amz-checksum-crc32c");

fn signature(text: &str) -> Signature {
    Signature::from_ascii(text.as_bytes().try_into().unwrap())
}

fn signer(seed: &str) -> ChunkSigner {
    let date = AmzDate::parse("20130524T000000Z").unwrap();
    let secret = SecretKey::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
    let key = ScopedKey::derive(&secret, &date, "us-east-1", "s3");
    ChunkSigner::new(key.key().clone(), &date, key.scope(), signature(seed))
}

fn signed() -> Framing {
    Framing::Signed(signer(
        "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
    ))
}

fn signed_trailer() -> Framing {
    Framing::SignedTrailer(signer(
        "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
    ))
}

/// AWS's example payload: 65 KiB of `a` in chunks of 64 KiB.
const EXAMPLE_BYTES: u64 = 66_560;
const EXAMPLE_CHUNK: NonZeroU64 = NonZeroU64::new(65_536).unwrap();

fn example_body(signatures: [&str; 3], end: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for (size, signature) in [65_536, 1024].into_iter().zip(signatures) {
        body.extend(format!("{size:x};chunk-signature={signature}\r\n").bytes());
        body.extend(std::iter::repeat_n(b'a', size));
        body.extend(b"\r\n");
    }
    body.extend(format!("0;chunk-signature={}\r\n{end}", signatures[2]).bytes());
    body
}

fn example_signed() -> Vec<u8> {
    example_body(
        [
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
        ],
        "\r\n",
    )
}

fn example_signed_trailer_with(end: &str) -> Vec<u8> {
    example_body(
        [
            "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
            "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
            "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
        ],
        end,
    )
}

const EXAMPLE_TRAILERS: &str = "x-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:\
    d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n";

/// Decodes a body that arrives in pieces of that size.
fn decode(
    framing: Framing,
    expected_bytes: u64,
    trailers: &[HeaderName],
    body: &[u8],
    piece_bytes: usize,
) -> Result<(Vec<u8>, HeaderMap), ChunkedError> {
    let mut decoder = Decoder::new(framing, expected_bytes, trailers.to_vec());
    let mut payload = Vec::new();
    for piece in body.chunks(piece_bytes) {
        let mut input = Bytes::copy_from_slice(piece);
        while let Some(piece) = decoder.decode(&mut input)? {
            assert!(!piece.is_empty());
            payload.extend_from_slice(&piece);
        }
        assert!(input.is_empty());
    }
    Ok((payload, decoder.finish()?))
}

fn unsigned(expected_bytes: u64, body: &str) -> Result<(Vec<u8>, HeaderMap), ChunkedError> {
    let one = decode(
        Framing::UnsignedTrailer,
        expected_bytes,
        &[CRC32C],
        body.as_bytes(),
        1,
    );
    let all = decode(
        Framing::UnsignedTrailer,
        expected_bytes,
        &[CRC32C],
        body.as_bytes(),
        9999,
    );
    assert_eq!(one, all, "pieces must not matter");
    all
}

#[test]
fn the_published_bodies_decode_in_pieces_of_any_size() {
    for piece in [1, 2, 3, 1000, 65_536, 1 << 20] {
        let (payload, trailers) =
            decode(signed(), EXAMPLE_BYTES, &[], &example_signed(), piece).unwrap();
        assert_eq!((payload.len() as u64, trailers.len()), (EXAMPLE_BYTES, 0));
        assert!(payload.iter().all(|byte| *byte == b'a'));
        let body = example_signed_trailer_with(EXAMPLE_TRAILERS);
        let (payload, trailers) =
            decode(signed_trailer(), EXAMPLE_BYTES, &[CRC32C], &body, piece).unwrap();
        assert_eq!(payload.len() as u64, EXAMPLE_BYTES);
        assert_eq!(trailers[CRC32C], "sOO8/Q==");
        assert_eq!(trailers.len(), 1);
    }
}

#[test]
fn the_line_ends_that_clients_get_wrong_are_tolerated() {
    let signature = "x-amz-trailer-signature:\
        d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435";
    for end in [
        format!("x-amz-checksum-crc32c:sOO8/Q==\n\r\n{signature}\r\n\r\n"),
        format!("\r\nx-amz-checksum-crc32c:sOO8/Q==\r\n{signature}\r\n"),
        format!("x-amz-checksum-crc32c: sOO8/Q== \r\n{signature}"),
    ] {
        let body = example_signed_trailer_with(&end);
        let decoded = decode(signed_trailer(), EXAMPLE_BYTES, &[CRC32C], &body, 4096);
        assert!(decoded.is_ok(), "{end:?}");
    }
    assert!(unsigned(1, "1\r\na\r\n0\r\nx-amz-checksum-crc32c:sOO8/Q==\r\n").is_ok());
}

#[test]
fn encoding_gives_the_published_bodies_and_their_lengths() {
    let trailers: HeaderMap = [(CRC32C, HeaderValue::from_static("sOO8/Q=="))]
        .into_iter()
        .collect();
    let sizes = [("x-amz-checksum-crc32c", 8)];
    for (framing, mode, body, trailers, length) in [
        (
            signed(),
            PayloadMode::StreamingSigned,
            example_signed(),
            HeaderMap::new(),
            66_824,
        ),
        (
            signed_trailer(),
            PayloadMode::StreamingSignedTrailer,
            example_signed_trailer_with(EXAMPLE_TRAILERS),
            trailers,
            66_946,
        ),
    ] {
        let mut encoder = Encoder::new(framing, EXAMPLE_BYTES, EXAMPLE_CHUNK);
        let mut wire = Vec::new();
        let mut out = |piece: Bytes| wire.extend_from_slice(&piece);
        for piece in vec![b'a'; 66_560].chunks(10_000) {
            encoder
                .push(Bytes::copy_from_slice(piece), &mut out)
                .unwrap();
        }
        encoder.finish(&trailers, &mut out).unwrap();
        assert!(wire == body, "{mode:?}");
        assert_eq!(wire.len(), length);
        let ahead = encoded_bytes(mode, EXAMPLE_BYTES, EXAMPLE_CHUNK, &sizes);
        assert_eq!(ahead, length as u64, "{mode:?}");
    }
}

#[test]
fn every_flipped_byte_of_a_signed_body_is_noticed() {
    let trailers = [CRC32C];
    let body = example_signed_trailer_with(EXAMPLE_TRAILERS);
    let tail = body.len() - 300;
    for at in (0..100)
        .chain([5000, 65_600, 65_700])
        .chain(tail..body.len() - 4)
    {
        let mut spoiled = body.clone();
        spoiled[at] ^= 1;
        let decoded = decode(signed_trailer(), EXAMPLE_BYTES, &trailers, &spoiled, 4096);
        assert!(decoded.is_err(), "byte {at}: {:?}", char::from(body[at]));
    }
    // The last chunk dropped, its predecessor made last: the length tells.
    let short = b"0;chunk-signature=".as_slice();
    let decoded = decode(signed(), EXAMPLE_BYTES, &[], short, 4096);
    assert_eq!(decoded, Err(ChunkedError::Cut));
}

#[test]
fn a_body_that_ends_early_is_never_complete() {
    let body = "3\r\nabc\r\n2\r\nde\r\n0\r\nx-amz-checksum-crc32c:sOO8/Q==\r\n\r\n";
    assert!(unsigned(5, body).is_ok());
    // Up to the trailer's name. What is cut after it is a client that left out line ends, or a
    // value that will not match the checksum.
    for len in 0..=body.find("crc32c").unwrap() + "crc32c".len() {
        assert!(unsigned(5, &body[..len]).is_err(), "{len}");
    }
}

#[test]
fn broken_coding_is_refused() {
    let crc = "x-amz-checksum-crc32c:sOO8/Q==\r\n";
    let long_line = format!("1;{}\r\na\r\n", "x".repeat(300));
    let long_trailers = format!("1\r\na\r\n0\r\n{crc}x: {}\r\n\r\n", "x".repeat(9000));
    let table = [
        ("\r\n", "IncompleteBody"),
        ("g\r\n", "IncompleteBody"),
        ("-1\r\n", "IncompleteBody"),
        ("+1\r\na\r\n", "IncompleteBody"),
        ("1\na\r\n0\r\n\r\n", "IncompleteBody"),
        ("00000000000000001\r\na\r\n", "IncompleteBody"),
        ("ffffffffffffffff\r\na\r\n", "IncompleteBody"),
        ("1\r\nab\r\n0\r\n\r\n", "IncompleteBody"),
        ("2\r\na\r\n0\r\n\r\n", "IncompleteBody"),
        ("0\r\n\r\n", "IncompleteBody"),
        (&long_line, "IncompleteBody"),
        (&format!("1\r\na\r\n0\r\n{crc}\r\nmore"), "IncompleteBody"),
        ("1\r\na\r\n0\r\n\r\n", "MalformedTrailerError"),
        (
            "1\r\na\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n",
            "MalformedTrailerError",
        ),
        (
            &format!("1\r\na\r\n0\r\n{crc}{crc}\r\n"),
            "MalformedTrailerError",
        ),
        (
            &format!("1\r\na\r\n0\r\n{crc}extra:1\r\n\r\n"),
            "MalformedTrailerError",
        ),
        ("1\r\na\r\n0\r\nno colon\r\n\r\n", "MalformedTrailerError"),
        (&long_trailers, "MalformedTrailerError"),
    ];
    for (body, code) in table {
        assert!(Code::parse(code).is_some(), "{code}");
        assert_eq!(unsigned(1, body).unwrap_err().code(), code, "{body:?}");
    }
    let trailing = decode(signed(), 1, &[], b"1\r\na\r\n", 100).unwrap_err();
    assert_eq!(
        trailing.code(),
        "IncompleteBody",
        "a signed body needs signatures"
    );
}

#[test]
fn a_chunk_beyond_the_declared_length_is_refused_before_its_bytes() {
    let mut decoder = Decoder::new(Framing::UnsignedTrailer, 5, Vec::new());
    let mut input = Bytes::from_static(b"3\r\nabc\r\n3\r\ndef");
    assert_eq!(decoder.decode(&mut input).unwrap().unwrap(), "abc");
    let excess = ChunkedError::Length {
        expected: 5,
        received: 6,
    };
    assert_eq!(decoder.decode(&mut input), Err(excess));
}

#[test]
fn pieces_share_the_memory_they_arrived_in() {
    let body = Bytes::from_static(b"5\r\nhello\r\n");
    let mut decoder = Decoder::new(Framing::UnsignedTrailer, 5, Vec::new());
    let piece = decoder.decode(&mut body.clone()).unwrap().unwrap();
    assert_eq!(piece.as_ptr(), body[3..].as_ptr());
}

#[test]
fn unchecked_bodies_decode_whatever_their_signatures() {
    for (body, trailers) in [
        (example_signed(), &[][..]),
        (example_signed_trailer_with(EXAMPLE_TRAILERS), &[CRC32C][..]),
    ] {
        let body = String::from_utf8(body)
            .unwrap()
            .replace("signature=", "signature=0");
        let decoded = decode(
            Framing::Unchecked,
            EXAMPLE_BYTES,
            trailers,
            body.as_bytes(),
            777,
        )
        .unwrap();
        assert_eq!(decoded.0.len() as u64, EXAMPLE_BYTES);
    }
}

#[test]
fn intake_verifies_coding_and_trailer_together() {
    let take = |crc: &str| {
        let headers: HeaderMap = [
            ("x-amz-decoded-content-length", "5"),
            ("x-amz-trailer", "x-amz-checksum-crc32c"),
        ]
        .map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        })
        .into_iter()
        .collect();
        let mode = PayloadMode::StreamingUnsignedTrailer;
        let mut intake = Intake::new(&headers, mode, ChecksumHeader::OfPayload, None)?.with_md5();
        let mut input = Bytes::from(format!(
            "5\r\nhello\r\n0\r\nx-amz-checksum-crc32c:{crc}\r\n\r\n"
        ));
        let mut payload = Vec::new();
        while let Some(piece) = intake.take(&mut input)? {
            payload.extend_from_slice(&piece);
        }
        assert_eq!(payload, b"hello");
        intake.finish()
    };
    let checksum = Checksum::of(Algorithm::Crc32c, b"hello");
    let received = take(&checksum.to_base64()).unwrap();
    assert_eq!(received.digests.checksum, Some(checksum));
    assert_eq!(received.digests.length, 5);
    assert_eq!(received.digests.md5.unwrap()[..2], [0x5d, 0x41]);
    assert_eq!(take("AAAAAA==").unwrap_err().code(), "BadDigest");
    assert_eq!(take("AAA=").unwrap_err().code(), "InvalidRequest");
}

#[test]
fn aws_chunked_is_not_a_content_encoding() {
    for (given, kept) in [
        (vec!["aws-chunked"], vec![]),
        (vec!["aws-chunked,gzip"], vec!["gzip"]),
        (vec!["gzip, AWS-Chunked", "br"], vec!["gzip", "br"]),
        (vec!["gzip , br"], vec!["gzip , br"]),
        (vec![], vec![]),
    ] {
        let mut headers = HeaderMap::new();
        for value in &given {
            headers.append(CONTENT_ENCODING, HeaderValue::from_static(value));
        }
        remove_aws_chunked(&mut headers);
        let left: Vec<_> = headers.get_all(CONTENT_ENCODING).iter().collect();
        assert_eq!(left, kept, "{given:?}");
    }
}

proptest! {
    /// Goal: whatever is encoded decodes to itself, at the length announced, in every framing.
    #[test]
    fn what_is_encoded_decodes(
        payload in prop::collection::vec(any::<u8>(), 0..3000),
        chunk_bytes in 1_u64..1000,
        piece_bytes in 1_usize..700,
    ) {
        let chunk_bytes = NonZeroU64::new(chunk_bytes).unwrap();
        let total = payload.len() as u64;
        let trailers: HeaderMap =
            [(CRC32C, HeaderValue::from_static("sOO8/Q=="))].into_iter().collect();
        for (framing, mode, trailers) in [
            (signed(), PayloadMode::StreamingSigned, HeaderMap::new()),
            (signed_trailer(), PayloadMode::StreamingSignedTrailer, trailers.clone()),
            (Framing::UnsignedTrailer, PayloadMode::StreamingUnsignedTrailer, trailers),
        ] {
            let mut encoder = Encoder::new(framing.clone(), total, chunk_bytes);
            let mut wire = Vec::new();
            let mut out = |piece: Bytes| wire.extend_from_slice(&piece);
            for piece in payload.chunks(piece_bytes) {
                encoder.push(Bytes::copy_from_slice(piece), &mut out).unwrap();
            }
            encoder.finish(&trailers, &mut out).unwrap();
            let size = |(name, value)| (HeaderName::as_str(name), HeaderValue::len(value));
            let sizes: Vec<_> = trailers.iter().map(size).collect();
            prop_assert_eq!(wire.len() as u64, encoded_bytes(mode, total, chunk_bytes, &sizes));
            let names: Vec<_> = trailers.keys().cloned().collect();
            let decoded = decode(framing, total, &names, &wire, piece_bytes).unwrap();
            prop_assert_eq!(&decoded, &(payload.clone(), trailers));
        }
    }

    /// Goal: no body makes the decoder panic or give more than was declared.
    #[test]
    fn arbitrary_bodies_never_panic(
        body in prop::collection::vec(
            prop_oneof![prop::sample::select(b"\r\n10:;".to_vec()), any::<u8>()],
            0..200,
        ),
        piece_bytes in 1_usize..50,
    ) {
        for framing in [signed(), signed_trailer(), Framing::UnsignedTrailer, Framing::Unchecked] {
            if let Ok((payload, _)) = decode(framing, 17, &[], &body, piece_bytes) {
                prop_assert_eq!(payload.len(), 17);
            }
        }
    }
}
