//! The beats of a late answer by paused time, and documents without their declarations.

use std::future::poll_fn;

use super::*;

const SILENCE_MAX: Duration = Duration::from_secs(5);

fn answered(status: StatusCode, body: impl Into<Body>) -> Response {
    Response::new(status).with_body(body)
}

/// A store that gives this after so many seconds.
fn after(seconds: u64, result: Result<Response, Error>) -> Working {
    Box::pin(async move {
        sleep(Duration::from_secs(seconds)).await;
        result
    })
}

/// What is said before the outcome, and the outcome.
async fn told(mut late: LateAnswer) -> (String, Result<Response, Error>) {
    let mut said = String::new();
    loop {
        match poll_fn(|cx| late.poll(cx)).await {
            Next::Wait(bytes) => said.push_str(std::str::from_utf8(&bytes).unwrap()),
            Next::Outcome(result) => return (said, result),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_declaration_comes_first_and_then_white_space_at_every_silence() {
    for (seconds, white_space) in [(0, ""), (4, ""), (6, " "), (61, "            ")] {
        let working = after(seconds, Ok(answered(StatusCode::OK, "<Done/>")));
        let (said, result) = told(LateAnswer::new(working, SILENCE_MAX)).await;
        let declared = String::from_utf8(DECLARATION.to_vec()).unwrap();
        assert_eq!(said, declared + white_space, "{seconds} s");
        assert_eq!(
            result.unwrap().body.collect(100).await.unwrap().0,
            "<Done/>"
        );
    }
}

#[tokio::test]
async fn an_error_that_follows_a_200_is_always_a_document() {
    let document = "<?xml version=\"1.0\"?>\n<Error><Code>Of tomorrow</Code></Error>";
    for (status, sent, code) in [
        (404, document, None),
        (500, " <Error/>", None),
        (503, "", Some(Code::ServiceUnavailable)),
        (502, "<html>", Some(Code::ServiceUnavailable)),
        (
            400,
            "<?xml version=\"1.0\"?><Wrong/>",
            Some(Code::InvalidRequest),
        ),
        (301, "", Some(Code::InvalidRequest)),
    ] {
        let status = StatusCode::from_u16(status).unwrap();
        let made = as_document(answered(status, sent)).await;
        match (made, code) {
            (Ok(response), None) => {
                assert_eq!(response.status, status);
                assert_eq!(response.body.collect(1000).await.unwrap().0, sent);
            }
            (Err(Error::Unavailable { reason }), Some(Code::ServiceUnavailable)) => {
                assert!(reason.contains(status.as_str()), "{reason}");
            }
            (Err(Error::Refused(refusal)), Some(code)) => assert_eq!(refusal.code, code),
            (made, _) => panic!("{status} {sent:?}: {made:?}"),
        }
    }
}

#[test]
fn a_declaration_is_found_at_the_beginning_only() {
    for (text, place) in [
        ("<?xml version=\"1.0\"?>\n<A/>", Declaration::Ends(21)),
        (" \n<?xml version='1.0' ?><A/>", Declaration::Ends(24)),
        ("<A/>", Declaration::Absent),
        ("<?xml-stylesheet href='a'?><A/>", Declaration::Absent),
        ("<A><?xml version=\"1.0\"?></A>", Declaration::Absent),
        ("", Declaration::Unknown),
        ("  ", Declaration::Unknown),
        ("<?x", Declaration::Unknown),
        ("<?xml", Declaration::Unknown),
        ("<?xml version=\"1.0\"?", Declaration::Unknown),
    ] {
        assert_eq!(declaration(text.as_bytes()), place, "{text:?}");
    }
    let endless = format!("<?xml {}", "x".repeat(DECLARATION_BYTES_MAX));
    assert_eq!(declaration(endless.as_bytes()), Declaration::Absent);
}

#[test]
fn a_document_loses_its_declaration_however_it_is_cut_and_white_space_is_not_kept_back() {
    let text = "  \n<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\n<Result>a<?xml b?></Result>";
    let left = "\n\n<Result>a<?xml b?></Result>";
    for cut in 0..=text.len() {
        for second in cut..=text.len() {
            let mut document = Undeclared::new(Body::empty());
            let mut out = Vec::new();
            let pieces = [&text[..cut], &text[cut..second], &text[second..]];
            for piece in pieces {
                let bytes = Bytes::copy_from_slice(piece.as_bytes());
                // As the body does: only the beginning is looked at.
                let leaving = if document.is_past {
                    bytes
                } else {
                    document.take(&bytes)
                };
                out.extend_from_slice(&leaving);
                assert!(cut > 3 || out.len() >= cut, "kept back: {pieces:?}");
            }
            // White space in the piece with the declaration may go with it.
            let out = String::from_utf8(out).unwrap();
            assert!(
                text[..3].starts_with(&out[..out.len() - left.len()]),
                "{pieces:?}"
            );
            assert!(out.ends_with(left), "{pieces:?}");
        }
    }
}

#[tokio::test]
async fn a_beginning_that_never_became_a_declaration_is_not_lost() {
    for text in ["", " ", "<?xm", "<?xml version=\"1.0\"", "plain"] {
        let body = Body::stream(Undeclared::new(Body::from(text)));
        assert_eq!(body.collect(100).await.unwrap().0, text);
    }
}
