//! The store in front of a real S3 server, where its binary is installed.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use forebay_origin::{OriginStore, PayloadSigning};
use forebay_s3::checksum::{Algorithm, Checksum};
use forebay_store::contract::requests::{
    complete_upload, copy, create_bucket, create_upload, delete_many, get, head, list_v2, put,
    upload_part,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::scripted::{fed, settings, store};

struct Server {
    child: Child,
    endpoint: String,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn binary() -> Option<PathBuf> {
    let named = std::env::var_os("FOREBAY_VERSITYGW").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("go/bin/versitygw"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join("versitygw"));
    named
        .into_iter()
        .chain(in_path)
        .chain(home)
        .find(|path| path.is_file())
}

async fn server() -> Option<Server> {
    let binary = binary()?;
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let child = Command::new(binary)
        .args(["--access", "AKIDORIGIN", "--secret", "origin-secret"])
        .args(["--port", &format!("127.0.0.1:{port}"), "posix"])
        .arg(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let endpoint = format!("http://127.0.0.1:{port}");
    let server = Server {
        child,
        endpoint,
        _folder: folder,
    };
    while tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .is_err()
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Some(server)
}

/// Goal: every form of payload is accepted by an S3 server that we did not write.
#[tokio::test]
async fn a_real_server_accepts_every_form() {
    let Some(server) = server().await else {
        println!("no versitygw here; the black-box suite covers this");
        return;
    };
    for signing in [PayloadSigning::Unsigned, PayloadSigning::Chunks] {
        let mut settings = settings(&server.endpoint);
        settings.payload_signing = signing;
        let bucket = format!("bucket-{signing:?}").to_lowercase();
        round_trips(&store(&settings), &bucket).await;
    }
}

async fn round_trips(store: &OriginStore, bucket: &str) {
    create_bucket(bucket).expect(200, store).await;
    let large: Vec<u8> = (0..300_001_u32).map(|i| (i % 253) as u8).collect();
    for (key, bytes) in [
        ("empty", &[][..]),
        ("a b/ü+&=?%2F", b"small"),
        ("large", &large),
    ] {
        let sent = put(bucket, key)
            .header("content-type", "text/x-test")
            .header("x-amz-meta-mine", "1")
            .body(bytes.to_vec());
        sent.expect(200, store).await;
        let got = get(bucket, key).expect(200, store).await;
        assert!(got.body == bytes, "{key}");
        assert_eq!(got.header("content-type"), "text/x-test");
        assert_eq!(got.header("x-amz-meta-mine"), "1");
        assert_eq!(got.header("content-encoding"), "");
        let length = head(bucket, key).expect(200, store).await;
        assert_eq!(length.header("content-length"), bytes.len().to_string());
    }
    with_trailer(store, bucket, &large).await;
    let range = get(bucket, "large")
        .range("bytes=10-19")
        .expect(206, store)
        .await;
    assert_eq!(&*range.body, &large[10..20]);
    let upload = create_upload(bucket, "parts")
        .expect(200, store)
        .await
        .element("UploadId");
    let part = upload_part(bucket, "parts", &upload, 1).body(large.clone());
    let part = part.expect(200, store).await;
    complete_upload(bucket, "parts", &upload, &[(1, part.etag())])
        .expect(200, store)
        .await;
    copy((bucket, "parts"), (bucket, "copy"))
        .expect(200, store)
        .await;
    assert!(get(bucket, "copy").expect(200, store).await.body == large);
    let keys = list_v2(bucket).expect(200, store).await.elements("Key");
    assert_eq!(
        keys,
        ["a b/ü+&=?%2F", "copy", "empty", "large", "parts", "trailer"]
    );
    // S3 wants a checksum of what is to be deleted.
    let mut deleting = delete_many(bucket, &["copy", "empty"]).build();
    let (document, _) = std::mem::take(&mut deleting.body)
        .collect(1000)
        .await
        .unwrap();
    let crc32 = Checksum::of(Algorithm::Crc32, &document).to_base64();
    let deleting = delete_many(bucket, &["copy", "empty"]).header("x-amz-checksum-crc32", crc32);
    deleting.expect(200, store).await;
    get(bucket, "copy").expect(404, store).await;
}

async fn with_trailer(store: &OriginStore, bucket: &str, bytes: &[u8]) {
    for (value, expected) in [
        (Checksum::of(Algorithm::Crc32, bytes).to_base64(), 200),
        (Checksum::of(Algorithm::Crc32, b"other").to_base64(), 400),
    ] {
        let (feed, body) = fed(bytes.len() as u64);
        let sending = put(bucket, "trailer")
            .header("x-amz-trailer", "x-amz-checksum-crc32")
            .header("x-amz-sdk-checksum-algorithm", "CRC32")
            .body(body)
            .expect(expected, store);
        let feeding = async {
            for piece in bytes.chunks(7777) {
                feed.data(piece.to_vec()).await;
            }
            let name = HeaderName::from_static("x-amz-checksum-crc32");
            let trailers: HeaderMap = [(name, HeaderValue::from_str(&value).unwrap())]
                .into_iter()
                .collect();
            feed.trailers(trailers).await;
            drop(feed);
        };
        tokio::join!(sending, feeding);
    }
    let got = get(bucket, "trailer")
        .header("x-amz-checksum-mode", "ENABLED")
        .expect(200, store);
    let got = got.await;
    assert!(got.body == bytes);
    assert_eq!(got.header("content-encoding"), "");
    let crc32 = Checksum::of(Algorithm::Crc32, bytes).to_base64();
    assert_eq!(got.header("x-amz-checksum-crc32"), crc32);
}
