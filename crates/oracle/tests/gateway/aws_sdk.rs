//! AWS's own client for Rust, as anyone has it: its defaults, no retries, path-style addresses.
//!
//! Each test runs before a gateway on a directory, and before a gateway with a cache in front of
//! that. What the client verifies by itself (checksums of what it reads, the form of documents)
//! counts as asserted: it fails when they do not hold.

use std::{
    fmt::Write as _,
    io::Write as _,
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_sdk_s3::{
    Client,
    config::{
        BehaviorVersion, ConfigBag, Credentials, Intercept, Region, RuntimeComponents,
        interceptors::BeforeTransmitInterceptorContextRef, retry::RetryConfig,
    },
    error::{BoxError, ProvideErrorMetadata as _},
    presigning::{PresignedRequest, PresigningConfig},
    primitives::ByteStream,
    types::{
        ChecksumAlgorithm, ChecksumType, CompletedMultipartUpload, CompletedPart, Delete,
        ObjectAttributes, ObjectIdentifier,
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::server::{ACCESS_KEY, REGION, SECRET_KEY, Server};

const MIB: usize = 1 << 20;
/// The smallest part that need not be the last.
const PART_BYTES: usize = 5 * MIB;
const BUCKET: &str = "sdk";

/// A client, the gateway it talks to, and what it last sent.
struct Trial {
    client: Client,
    sent: Sent,
    _server: Server,
}

/// Each place where the client must find the same S3, with an empty bucket there.
async fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for server in [
        Server::on_directory().await,
        Server::before(Server::on_directory().await).await,
    ] {
        let sent = Sent::default();
        let config = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .credentials_provider(Credentials::new(
                ACCESS_KEY, SECRET_KEY, None, None, "oracle",
            ))
            .region(Region::new(REGION))
            .endpoint_url(server.url())
            .force_path_style(true)
            // A retry would hide what went wrong the first time.
            .retry_config(RetryConfig::disabled())
            .interceptor(sent.clone())
            .build();
        let client = Client::from_conf(config);
        client.create_bucket().bucket(BUCKET).send().await.unwrap();
        trials.push(Trial {
            client,
            sent,
            _server: server,
        });
    }
    trials
}

/// Headers of the last request, as they left the client.
#[derive(Debug, Clone, Default)]
struct Sent(Arc<Mutex<Vec<(String, String)>>>);

impl Sent {
    fn header(&self, name: &str) -> Option<String> {
        let headers = self.0.lock().unwrap();
        let found = headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    }
}

impl Intercept for Sent {
    fn name(&self) -> &'static str {
        "Sent"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let headers = context.request().headers().iter();
        *self.0.lock().unwrap() = headers
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Ok(())
    }
}

fn content(length: usize) -> Vec<u8> {
    forebay_store::contract::sample_bytes(length)
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_put_read_in_ranges_and_deleted() {
    for Trial { client, .. } in trials().await {
        let bytes = content(3 * MIB + 17);
        let put = client.put_object().bucket(BUCKET).key("a b/ü+&%2F");
        let put = put
            .content_type("text/x-test")
            .metadata("colour", "blue")
            .body(bytes.clone().into());
        let etag = put.send().await.unwrap().e_tag.unwrap();
        let object = || (BUCKET, "a b/ü+&%2F");
        // Cold and warm.
        for _ in 0..2 {
            let (bucket, key) = object();
            let get = client.get_object().bucket(bucket).key(key);
            let read = get.send().await.unwrap();
            assert_eq!(read.e_tag(), Some(&*etag));
            assert_eq!(read.content_type(), Some("text/x-test"));
            assert_eq!(read.metadata().unwrap()["colour"], "blue");
            assert!(read.body.collect().await.unwrap().to_vec() == bytes);

            let get = client.get_object().bucket(bucket).key(key);
            let read = get.range("bytes=1048570-1048585").send().await.unwrap();
            assert_eq!(read.content_range(), Some("bytes 1048570-1048585/3145745"));
            let body = read.body.collect().await.unwrap().to_vec();
            assert_eq!(body, bytes[1_048_570..1_048_586]);

            let head = client.head_object().bucket(bucket).key(key);
            let head = head.send().await.unwrap();
            assert_eq!(head.content_length(), Some(3_145_745));
            assert_eq!(head.e_tag(), Some(&*etag));
        }
        let (bucket, key) = object();
        let delete = client.delete_object().bucket(bucket).key(key);
        delete.send().await.unwrap();
        let get = client.get_object().bucket(bucket).key(key).send().await;
        assert!(get.unwrap_err().into_service_error().is_no_such_key());
        let head = client.head_object().bucket(bucket).key(key).send().await;
        assert!(head.unwrap_err().into_service_error().is_not_found());
        let get = client.get_object().bucket("absent").key(key).send().await;
        assert_eq!(get.unwrap_err().code(), Some("NoSuchBucket"));
    }
}

/// Goal: the client's own way with files arrives whole, and the checksum comes back with it: a
/// CRC32 in the trailer of aws-chunked, with signed chunks since there is no TLS.
#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_upload_brings_its_checksum_in_a_trailer() {
    let bytes = content(2 * MIB + 5);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    for Trial { client, sent, .. } in trials().await {
        let body = ByteStream::from_path(file.path()).await.unwrap();
        let put = client.put_object().bucket(BUCKET).key("k").body(body);
        let put = put.send().await.unwrap();
        assert_eq!(
            sent.header("x-amz-trailer").as_deref(),
            Some("x-amz-checksum-crc32")
        );
        assert_eq!(
            sent.header("x-amz-content-sha256").as_deref(),
            Some("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER")
        );
        assert_eq!(
            sent.header("content-encoding").as_deref(),
            Some("aws-chunked")
        );
        let crc = put.checksum_crc32.unwrap();
        let read = client.get_object().bucket(BUCKET).key("k").send();
        let read = read.await.unwrap();
        assert_eq!(read.checksum_crc32(), Some(&*crc));
        assert_eq!(read.checksum_type(), Some(&ChecksumType::FullObject));
        assert_eq!(read.content_encoding(), None);
        assert!(read.body.collect().await.unwrap().to_vec() == bytes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_with_checksums_become_one_object_with_attributes() {
    let parts = [content(PART_BYTES), b"the end".to_vec()];
    for Trial { client, .. } in trials().await {
        for (algorithm, kind) in [
            (ChecksumAlgorithm::Sha256, ChecksumType::Composite),
            (ChecksumAlgorithm::Crc32, ChecksumType::FullObject),
        ] {
            let create = client.create_multipart_upload().bucket(BUCKET).key("k");
            let create = create
                .checksum_algorithm(algorithm.clone())
                .checksum_type(kind.clone());
            let id = create.send().await.unwrap().upload_id.unwrap();
            let mut completed = CompletedMultipartUpload::builder();
            for (number, bytes) in (1..).zip(&parts) {
                let part = client.upload_part().bucket(BUCKET).key("k").upload_id(&id);
                let part = part
                    .part_number(number)
                    .checksum_algorithm(algorithm.clone())
                    .body(bytes.clone().into());
                let part = part.send().await.unwrap();
                completed = completed.parts(
                    CompletedPart::builder()
                        .part_number(number)
                        .set_e_tag(part.e_tag)
                        .set_checksum_sha256(part.checksum_sha256)
                        .set_checksum_crc32(part.checksum_crc32)
                        .build(),
                );
            }
            let listed = client.list_parts().bucket(BUCKET).key("k").upload_id(&id);
            assert_eq!(listed.send().await.unwrap().parts().len(), 2);
            let complete = client.complete_multipart_upload();
            let complete = complete.bucket(BUCKET).key("k").upload_id(&id);
            let complete = complete
                .checksum_type(kind.clone())
                .multipart_upload(completed.build());
            let done = complete.send().await.unwrap();
            assert!(done.e_tag().unwrap().ends_with("-2\""), "{done:?}");

            let read = client.get_object().bucket(BUCKET).key("k").send();
            let read = read.await.unwrap();
            assert_eq!(read.checksum_type(), Some(&kind));
            assert!(read.body.collect().await.unwrap().to_vec() == parts.concat());
            let told = client.get_object_attributes().bucket(BUCKET).key("k");
            let told = told
                .object_attributes(ObjectAttributes::Etag)
                .object_attributes(ObjectAttributes::Checksum)
                .object_attributes(ObjectAttributes::ObjectParts)
                .object_attributes(ObjectAttributes::ObjectSize);
            let told = told.send().await.unwrap();
            assert_eq!(told.e_tag(), done.e_tag().map(|tag| tag.trim_matches('"')));
            assert_eq!(told.object_size(), Some(5_242_887));
            assert_eq!(told.object_parts().unwrap().total_parts_count(), Some(2));
            let checksum = told.checksum().unwrap();
            assert_eq!(checksum.checksum_type(), Some(&kind));
            let (sha256, crc32) = (done.checksum_sha256(), done.checksum_crc32());
            assert!(sha256.or(crc32).is_some());
            assert_eq!(
                (checksum.checksum_sha256(), checksum.checksum_crc32()),
                (sha256, crc32)
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_aborted_leaves_nothing() {
    for Trial { client, .. } in trials().await {
        let create = client.create_multipart_upload().bucket(BUCKET).key("k");
        let id = create.send().await.unwrap().upload_id.unwrap();
        let part = client.upload_part().bucket(BUCKET).key("k").upload_id(&id);
        let part = part.part_number(1).body(content(100).into());
        part.send().await.unwrap();
        let abort = client.abort_multipart_upload().bucket(BUCKET).key("k");
        abort.upload_id(&id).send().await.unwrap();
        let listed = client.list_parts().bucket(BUCKET).key("k").upload_id(&id);
        assert_eq!(
            listed.send().await.unwrap_err().code(),
            Some("NoSuchUpload")
        );
        let uploads = client.list_multipart_uploads().bucket(BUCKET).send();
        assert!(uploads.await.unwrap().uploads().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn presigned_addresses_serve_whoever_has_them() {
    for Trial { client, .. } in trials().await {
        let hour = || PresigningConfig::expires_in(Duration::from_hours(1)).unwrap();
        let bytes = content(70_000);
        let put = client.put_object().bucket(BUCKET).key("a/b c");
        let put = put.presigned(hour()).await.unwrap();
        assert_eq!(follow(&put, &bytes).await.0, 200);
        let get = client.get_object().bucket(BUCKET).key("a/b c");
        let get = get.presigned(hour()).await.unwrap();
        let (status, body) = follow(&get, b"").await;
        assert!((status, &*body) == (200, &*bytes), "{status}");
        let other = client.get_object().bucket(BUCKET).key("other");
        let other = other.presigned(hour()).await.unwrap();
        let (status, body) = follow(&other, b"").await;
        assert_eq!(status, 404);
        assert!(String::from_utf8(body).unwrap().contains("NoSuchKey"));
    }
}

/// Sends a presigned request as a program without any S3 client would; its status and body.
async fn follow(request: &PresignedRequest, body: &[u8]) -> (u16, Vec<u8>) {
    let address = request.uri().strip_prefix("http://").unwrap();
    let (host, path) = address.split_once('/').unwrap();
    let mut head = format!(
        "{} /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {}\r\n",
        request.method(),
        body.len()
    );
    for (name, value) in request.headers() {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("\r\n");
    let mut stream = TcpStream::connect(host).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let status = String::from_utf8_lossy(&answer[9..12]).parse().unwrap();
    (status, answer.split_off(end + 4))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_is_walked_to_its_end() {
    for Trial { client, .. } in trials().await {
        let mut keys: Vec<String> = (0..11).map(|n| format!("dir/{n:02} ü&<")).collect();
        keys.push("top".to_owned());
        for key in &keys {
            let put = client.put_object().bucket(BUCKET).key(key);
            put.body(content(1).into()).send().await.unwrap();
        }
        let list = client.list_objects_v2().bucket(BUCKET).max_keys(4);
        let mut pages = list.into_paginator().send();
        let (mut found, mut answers) = (Vec::new(), 0);
        while let Some(page) = pages.next().await {
            let page = page.unwrap();
            found.extend(page.contents().iter().map(|o| o.key().unwrap().to_owned()));
            answers += 1;
        }
        assert_eq!(found, keys);
        assert_eq!(answers, 3);
        let list = client.list_objects_v2().bucket(BUCKET).delimiter("/");
        let folded = list.send().await.unwrap();
        assert_eq!(folded.common_prefixes()[0].prefix(), Some("dir/"));
        assert_eq!(folded.contents()[0].key(), Some("top"));

        let named = keys.iter().map(|key| {
            let object = ObjectIdentifier::builder().key(key);
            object.build().unwrap()
        });
        let delete = Delete::builder().set_objects(Some(named.collect()));
        let delete = client
            .delete_objects()
            .bucket(BUCKET)
            .delete(delete.build().unwrap());
        let deleted = delete.send().await.unwrap();
        assert_eq!((deleted.deleted().len(), deleted.errors().len()), (12, 0));
        let list = client.list_objects_v2().bucket(BUCKET).send();
        assert_eq!(list.await.unwrap().key_count(), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conditional_writes_and_reads_are_judged() {
    for Trial { client, .. } in trials().await {
        let put = |bytes: &'static [u8]| {
            let put = client.put_object().bucket(BUCKET).key("k");
            put.body(ByteStream::from_static(bytes))
        };
        let first = put(b"1").if_none_match("*").send().await.unwrap();
        let again = put(b"2").if_none_match("*").send().await;
        assert_eq!(again.unwrap_err().code(), Some("PreconditionFailed"));
        let first = first.e_tag.unwrap();
        put(b"3").if_match(&first).send().await.unwrap();
        let late = put(b"4").if_match(&first).send().await;
        assert_eq!(late.unwrap_err().code(), Some("PreconditionFailed"));
        let read = client.get_object().bucket(BUCKET).key("k").send();
        let read = read.await.unwrap();
        let etag = read.e_tag().unwrap().to_owned();
        assert_eq!(read.body.collect().await.unwrap().to_vec(), b"3");
        let get = client.get_object().bucket(BUCKET).key("k");
        let same = get.if_none_match(&etag).send().await.unwrap_err();
        assert_eq!(same.raw_response().unwrap().status().as_u16(), 304);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_the_same_object_under_another_key() {
    for Trial { client, .. } in trials().await {
        let bytes = content(200_000);
        let put = client.put_object().bucket(BUCKET).key("from here");
        let put = put.metadata("colour", "blue").body(bytes.clone().into());
        let etag = put.send().await.unwrap().e_tag.unwrap();
        let copy = client.copy_object().bucket(BUCKET).key("to");
        let copy = copy.copy_source(format!("{BUCKET}/from%20here")).send();
        let copied = copy.await.unwrap().copy_object_result.unwrap();
        assert_eq!(copied.e_tag(), Some(&*etag));
        let read = client.get_object().bucket(BUCKET).key("to").send();
        let read = read.await.unwrap();
        assert_eq!(read.metadata().unwrap()["colour"], "blue");
        assert!(read.body.collect().await.unwrap().to_vec() == bytes);
    }
}
