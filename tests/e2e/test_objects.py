"""Objects through boto3: what was put comes back, byte for byte and header for header."""

import datetime
import hashlib

import pytest
from botocore.exceptions import ClientError

from harness.expect import refused
from harness.wire import Wire

MIB = 1 << 20
SIZES = [0, 1, 1023, 1024, 64 * 1024, MIB - 1, MIB, MIB + 1, 3 * MIB + 17]


def content_of(size):
    """Bytes that differ from page to page, so that a page in the wrong place shows."""
    block = hashlib.sha512(str(size).encode()).digest() * 1024
    counted = b"".join(n.to_bytes(4, "big") + block for n in range(size // len(block) + 1))
    return counted[:size]


@pytest.mark.parametrize("size", SIZES)
def test_an_object_comes_back_whole_cold_and_warm(s3, bucket, size):
    content = content_of(size)
    put = s3.put_object(Bucket=bucket, Key="object", Body=content)
    assert put["ETag"] == f'"{hashlib.md5(content).hexdigest()}"'
    for _ in range(3):
        got = s3.get_object(Bucket=bucket, Key="object")
        assert got["Body"].read() == content
        assert got["ContentLength"] == size
        assert got["ETag"] == put["ETag"]


def test_every_system_header_and_metadata_survives(s3, bucket):
    sent = {
        "CacheControl": "max-age=60, must-revalidate",
        "ContentDisposition": "attachment; filename=\"a b.txt\"",
        "ContentEncoding": "identity-x",
        "ContentLanguage": "de, fr",
        "ContentType": "text/x-odd; charset=utf-8",
        "Metadata": {"one": "1", "two-words": "a  b", "empty-like": "-"},
    }
    expires = datetime.datetime(2031, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Expires=expires, **sent)
    for read in (s3.head_object, s3.get_object, s3.head_object, s3.get_object):
        got = read(Bucket=bucket, Key="k")
        assert {name: got.get(name) for name in sent} == sent
        assert got["ExpiresString"] == "Mon, 03 Feb 2031 04:05:06 GMT"
        assert got["AcceptRanges"] == "bytes"


def test_a_default_upload_stores_no_aws_chunked_encoding(s3, bucket):
    s3.put_object(Bucket=bucket, Key="plain", Body=b"p" * 1000)
    s3.put_object(Bucket=bucket, Key="packed", Body=b"z" * 1000, ContentEncoding="gzip")
    assert "ContentEncoding" not in s3.head_object(Bucket=bucket, Key="plain")
    assert s3.head_object(Bucket=bucket, Key="packed")["ContentEncoding"] == "gzip"


def test_an_unseekable_stream_is_stored_as_sent(s3, bucket):
    """boto3 cannot rewind a pipe, so it streams parts with trailers and never a hash ahead."""

    class Pipe:
        def __init__(self, size):
            self.left = size

        def read(self, size=-1):
            size = self.left if size < 0 else min(size, self.left)
            self.left -= size
            return b"s" * size

    s3.upload_fileobj(Pipe(9 * MIB), bucket, "piped")
    assert s3.get_object(Bucket=bucket, Key="piped")["Body"].read() == b"s" * (9 * MIB)


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-", 0, 3_000_000),
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("bytes=1048575-1048576", 1048575, 1048577),
        ("bytes=1048576-2097151", 1048576, 2097152),
        ("bytes=2999999-", 2_999_999, 3_000_000),
        ("bytes=2999990-9999999", 2_999_990, 3_000_000),
        ("bytes=-1", 2_999_999, 3_000_000),
        ("bytes=-9999999", 0, 3_000_000),
    ],
)
def test_a_range_is_exactly_those_bytes(s3, bucket, asked, start, end):
    content = content_of(3_000_000)
    s3.put_object(Bucket=bucket, Key="k", Body=content)
    for _ in range(2):
        got = s3.get_object(Bucket=bucket, Key="k", Range=asked)
        assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
        assert got["ContentRange"] == f"bytes {start}-{end - 1}/3000000"
        assert got["ContentLength"] == end - start
        assert got["Body"].read() == content[start:end]


def test_a_range_past_the_end_is_refused(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"0123456789")
    for _ in range(2):
        with refused(416, "InvalidRange"):
            s3.get_object(Bucket=bucket, Key="k", Range="bytes=10-20")


def test_many_small_ranges_make_up_the_object(s3, bucket):
    content = content_of(2_500_000)
    s3.put_object(Bucket=bucket, Key="k", Body=content)
    step = 99_991
    pieces = [
        s3.get_object(Bucket=bucket, Key="k", Range=f"bytes={at}-{at + step - 1}")["Body"].read()
        for at in range(0, len(content), step)
    ]
    assert b"".join(pieces) == content
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == content


def test_an_overwrite_is_seen_at_once(s3, bucket):
    for version in range(5):
        content = f"version {version}".encode() * 1000
        s3.put_object(Bucket=bucket, Key="k", Body=content)
        assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == content
        assert s3.head_object(Bucket=bucket, Key="k")["ContentLength"] == len(content)


def test_a_deleted_object_is_gone_at_once(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"here")
    s3.get_object(Bucket=bucket, Key="k")["Body"].read()
    s3.delete_object(Bucket=bucket, Key="k")
    with refused(404, "NoSuchKey"):
        s3.get_object(Bucket=bucket, Key="k")
    with refused(404, "404"):
        s3.head_object(Bucket=bucket, Key="k")


def test_an_object_put_after_a_404_is_seen_at_once(s3, bucket):
    with refused(404, "NoSuchKey"):
        s3.get_object(Bucket=bucket, Key="late")
    s3.put_object(Bucket=bucket, Key="late", Body=b"now")
    assert s3.get_object(Bucket=bucket, Key="late")["Body"].read() == b"now"


def test_deleting_what_is_not_there_succeeds(s3, bucket):
    answer = s3.delete_object(Bucket=bucket, Key="never")
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 204


def test_delete_objects_deletes_all_of_them(s3, bucket):
    keys = [f"d/{n}" for n in range(25)] + ["d/with space", "d/ü&<>'\""]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
        s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    wanted = [{"Key": key} for key in keys] + [{"Key": "d/never-was"}]
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": wanted})
    assert sorted(gone["Key"] for gone in answer["Deleted"]) == sorted(keys + ["d/never-was"])
    assert "Errors" not in answer
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
    with refused(404, "NoSuchKey"):
        s3.get_object(Bucket=bucket, Key=keys[0])


# versitygw is never quiet.
@pytest.mark.targets("fs")
def test_delete_objects_quietly_names_none(s3, bucket):
    s3.put_object(Bucket=bucket, Key="q", Body=b"x")
    answer = s3.delete_objects(
        Bucket=bucket, Delete={"Objects": [{"Key": "q"}], "Quiet": True}
    )
    assert "Deleted" not in answer
    assert "Errors" not in answer


def test_a_copy_keeps_content_and_metadata(s3, bucket):
    content = content_of(1_500_000)
    s3.put_object(
        Bucket=bucket, Key="from me+ü", Body=content, ContentType="a/b", Metadata={"m": "1"}
    )
    answer = s3.copy_object(
        Bucket=bucket, Key="to", CopySource={"Bucket": bucket, "Key": "from me+ü"}
    )
    assert answer["CopyObjectResult"]["ETag"] == f'"{hashlib.md5(content).hexdigest()}"'
    got = s3.get_object(Bucket=bucket, Key="to")
    assert (got["Body"].read(), got["ContentType"], got["Metadata"]) == (content, "a/b", {"m": "1"})


def test_a_copy_may_replace_the_metadata(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"same", ContentType="a/b", Metadata={"m": "1"})
    s3.head_object(Bucket=bucket, Key="k")
    s3.copy_object(
        Bucket=bucket,
        Key="k",
        CopySource={"Bucket": bucket, "Key": "k"},
        MetadataDirective="REPLACE",
        ContentType="c/d",
        Metadata={"n": "2"},
    )
    for _ in range(2):
        got = s3.head_object(Bucket=bucket, Key="k")
        assert (got["ContentType"], got["Metadata"]) == ("c/d", {"n": "2"})


def test_a_copy_onto_a_cached_object_replaces_it(s3, bucket):
    s3.put_object(Bucket=bucket, Key="new", Body=b"new content")
    s3.put_object(Bucket=bucket, Key="k", Body=b"old")
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"old"
    s3.copy_object(Bucket=bucket, Key="k", CopySource={"Bucket": bucket, "Key": "new"})
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"new content"


def test_a_copy_of_nothing_is_refused(s3, bucket):
    with refused(404, "NoSuchKey"):
        s3.copy_object(Bucket=bucket, Key="k", CopySource={"Bucket": bucket, "Key": "none"})


def test_tags_are_kept_replaced_and_removed(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Tagging="colour=blue&empty=")
    tags = s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"]
    wanted = [("colour", "blue"), ("empty", "")]
    assert sorted((tag["Key"], tag["Value"]) for tag in tags) == wanted
    s3.put_object_tagging(
        Bucket=bucket, Key="k", Tagging={"TagSet": [{"Key": "shape", "Value": "round"}]}
    )
    tags = s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"]
    assert tags == [{"Key": "shape", "Value": "round"}]
    assert s3.get_object(Bucket=bucket, Key="k")["TagCount"] == 1
    s3.delete_object_tagging(Bucket=bucket, Key="k")
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == []


def test_object_attributes_tell_size_and_etag(s3, bucket):
    put = s3.put_object(Bucket=bucket, Key="k", Body=b"0123456789", ChecksumAlgorithm="SHA256")
    wanted = ["ETag", "ObjectSize", "StorageClass", "Checksum"]
    got = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=wanted)
    assert got["ObjectSize"] == 10
    assert got["ETag"] == put["ETag"].strip('"')
    assert got["Checksum"]["ChecksumSHA256"] == put["ChecksumSHA256"]


def test_response_headers_can_be_overridden_by_the_query(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", ContentType="a/b")
    got = s3.get_object(
        Bucket=bucket,
        Key="k",
        ResponseContentType="x/y",
        ResponseContentDisposition="attachment",
        ResponseCacheControl="no-store",
    )
    shown = (got["ContentType"], got["ContentDisposition"], got["CacheControl"])
    assert shown == ("x/y", "attachment", "no-store")
    assert s3.get_object(Bucket=bucket, Key="k")["ContentType"] == "a/b"


def test_buckets_are_made_listed_found_and_removed(s3, bucket):
    assert bucket in [found["Name"] for found in s3.list_buckets()["Buckets"]]
    assert s3.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPStatusCode"] == 200
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    with refused(409, "BucketNotEmpty"):
        s3.delete_bucket(Bucket=bucket)
    s3.delete_object(Bucket=bucket, Key="k")
    s3.delete_bucket(Bucket=bucket)
    with refused(404, "404"):
        s3.head_bucket(Bucket=bucket)
    with refused(404, "NoSuchBucket"):
        s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    with refused(404, "NoSuchBucket"):
        s3.list_objects_v2(Bucket=bucket)


def test_bucket_location_is_told(s3, bucket):
    assert s3.get_bucket_location(Bucket=bucket)["LocationConstraint"] is None


# versitygw makes the bucket `a..b`; the gateway before it must not pass it on.
@pytest.mark.targets("fs", "origin")
@pytest.mark.parametrize("name", ["UPPER", "ab", "a..b", "-ab", "192.168.0.1", "a" * 64])
def test_a_bad_bucket_name_is_refused(wire, name):
    answer = wire.signed("PUT", f"/{name}")
    assert (answer.status, answer.code) == (400, "InvalidBucketName")


def test_errors_are_xml_with_code_resource_and_request_id(server, bucket):
    answer = Wire(server).signed("GET", f"/{bucket}/none")
    assert answer.status == 404
    assert answer.header("content-type") == "application/xml"
    for element in (b"<Code>NoSuchKey</Code>", b"<Message>", b"<RequestId>"):
        assert element in answer.body


def test_head_of_nothing_has_no_body(server, bucket):
    answer = Wire(server).signed("HEAD", f"/{bucket}/none")
    assert (answer.status, answer.body) == (404, b"")


def test_no_client_error_hides_behind_a_retry(s3):
    with pytest.raises(ClientError) as raised:
        s3.get_object(Bucket="no-such-bucket-anywhere", Key="k")
    assert raised.value.response["ResponseMetadata"]["RetryAttempts"] == 0
