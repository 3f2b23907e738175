"""Multipart uploads: assembled right, invisible until complete, gone when aborted."""

import hashlib
import io

import pytest
from boto3.s3.transfer import TransferConfig

from harness.expect import refused

MIB = 1 << 20


def content_of(size):
    return b"".join(n.to_bytes(8, "big") * 128 for n in range(size // 1024 + 1))[:size]


def multipart_etag(parts):
    digests = b"".join(hashlib.md5(part).digest() for part in parts)
    return f'"{hashlib.md5(digests).hexdigest()}-{len(parts)}"'


def test_a_managed_upload_in_parallel_parts_comes_back_whole(s3, bucket):
    content = content_of(23 * MIB + 5)
    config = TransferConfig(
        multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB, max_concurrency=4
    )
    s3.upload_fileobj(io.BytesIO(content), bucket, "large", Config=config)
    head = s3.head_object(Bucket=bucket, Key="large")
    parts = [content[at : at + 5 * MIB] for at in range(0, len(content), 5 * MIB)]
    assert head["ETag"] == multipart_etag(parts)
    for _ in range(2):
        target = io.BytesIO()
        s3.download_fileobj(bucket, "large", target, Config=config)
        assert target.getvalue() == content


@pytest.fixture
def upload(s3, bucket):
    answer = s3.create_multipart_upload(Bucket=bucket, Key="m", Metadata={"kept": "yes"})
    return {"Bucket": bucket, "Key": "m", "UploadId": answer["UploadId"]}


def complete(s3, upload, parts):
    listed = [{"PartNumber": number, "ETag": etag} for number, etag in parts]
    return s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": listed})


def test_parts_may_come_in_any_order_and_be_replaced(s3, upload):
    first, last = content_of(5 * MIB), b"the end"
    etags = {}
    for number, content in ((7, last), (3, b"wrong" * MIB), (3, first)):
        etags[number] = s3.upload_part(**upload, PartNumber=number, Body=content)["ETag"]
    with refused(404, "NoSuchKey"):
        s3.get_object(Bucket=upload["Bucket"], Key="m")
    answer = complete(s3, upload, [(3, etags[3]), (7, etags[7])])
    assert answer["ETag"] == multipart_etag([first, last])
    got = s3.get_object(Bucket=upload["Bucket"], Key="m")
    assert got["Body"].read() == first + last
    assert got["Metadata"] == {"kept": "yes"}


def test_parts_and_uploads_are_listed(s3, upload):
    for number in (1, 2):
        s3.upload_part(**upload, PartNumber=number, Body=b"p" * (number * 1000))
    parts = s3.list_parts(**upload)["Parts"]
    assert [(part["PartNumber"], part["Size"]) for part in parts] == [(1, 1000), (2, 2000)]
    uploads = s3.list_multipart_uploads(Bucket=upload["Bucket"])["Uploads"]
    assert [(one["Key"], one["UploadId"]) for one in uploads] == [("m", upload["UploadId"])]


def test_an_aborted_upload_is_gone(s3, upload):
    s3.upload_part(**upload, PartNumber=1, Body=b"x")
    s3.abort_multipart_upload(**upload)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=upload["Bucket"])
    with refused(404, "NoSuchUpload"):
        s3.upload_part(**upload, PartNumber=2, Body=b"x")
    with refused(404, "NoSuchKey"):
        s3.get_object(Bucket=upload["Bucket"], Key="m")


def test_wrong_parts_are_refused(s3, upload):
    first = s3.upload_part(**upload, PartNumber=1, Body=b"1" * (5 * MIB))["ETag"]
    second = s3.upload_part(**upload, PartNumber=2, Body=b"2" * (5 * MIB))["ETag"]
    with refused(400, "InvalidPart"):
        complete(s3, upload, [(1, '"' + "0" * 32 + '"')])
    with refused(400, "InvalidPartOrder"):
        complete(s3, upload, [(2, second), (1, first)])
    with refused(400, "InvalidPart"):
        complete(s3, upload, [(1, first), (9, second)])
    with refused(404, "NoSuchKey"):
        s3.get_object(Bucket=upload["Bucket"], Key="m")


def test_a_small_part_that_is_not_the_last_is_refused(s3, upload):
    small = s3.upload_part(**upload, PartNumber=1, Body=b"small")["ETag"]
    last = s3.upload_part(**upload, PartNumber=2, Body=b"last")["ETag"]
    with refused(400, "EntityTooSmall"):
        complete(s3, upload, [(1, small), (2, last)])


def test_an_unknown_upload_is_refused(s3, bucket):
    with refused(404, "NoSuchUpload"):
        s3.upload_part(Bucket=bucket, Key="m", UploadId="no-such", PartNumber=1, Body=b"x")


def test_a_part_can_be_copied_from_a_range(s3, upload):
    bucket = upload["Bucket"]
    content = content_of(6 * MIB)
    s3.put_object(Bucket=bucket, Key="source", Body=content)
    copied = s3.upload_part_copy(
        **upload,
        PartNumber=1,
        CopySource={"Bucket": bucket, "Key": "source"},
        CopySourceRange=f"bytes=100-{100 + 5 * MIB - 1}",
    )["CopyPartResult"]["ETag"]
    complete(s3, upload, [(1, copied)])
    assert s3.get_object(Bucket=bucket, Key="m")["Body"].read() == content[100 : 100 + 5 * MIB]


def test_an_overwrite_by_multipart_is_seen_at_once(s3, upload):
    bucket = upload["Bucket"]
    s3.put_object(Bucket=bucket, Key="m", Body=b"before")
    assert s3.get_object(Bucket=bucket, Key="m")["Body"].read() == b"before"
    etag = s3.upload_part(**upload, PartNumber=1, Body=b"after")["ETag"]
    assert s3.get_object(Bucket=bucket, Key="m")["Body"].read() == b"before"
    complete(s3, upload, [(1, etag)])
    assert s3.get_object(Bucket=bucket, Key="m")["Body"].read() == b"after"


def test_a_part_is_read_by_its_number_without_spoiling_the_object(s3, upload):
    bucket = upload["Bucket"]
    first, last = content_of(5 * MIB), b"the end"
    etags = [
        (number, s3.upload_part(**upload, PartNumber=number, Body=content)["ETag"])
        for number, content in ((1, first), (2, last))
    ]
    complete(s3, upload, etags)
    for _ in range(2):
        head = s3.head_object(Bucket=bucket, Key="m", PartNumber=2)
        assert (head["ContentLength"], head["PartsCount"]) == (len(last), 2)
        whole = s3.head_object(Bucket=bucket, Key="m")
        assert whole["ContentLength"] == len(first) + len(last)
        part = s3.get_object(Bucket=bucket, Key="m", PartNumber=1)
        assert part["Body"].read() == first
        assert s3.get_object(Bucket=bucket, Key="m")["Body"].read() == first + last


@pytest.mark.slow
def test_a_two_gigabyte_upload_comes_back_whole(s3, bucket, tmp_path):
    path = tmp_path / "large"
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for n in range(2048):
            block = hashlib.sha256(str(n).encode()).digest() * (MIB // 32)
            digest.update(block)
            file.write(block)
    s3.upload_file(str(path), bucket, "large", Config=TransferConfig(multipart_chunksize=64 * MIB))
    path.unlink()
    got = hashlib.sha256()
    for block in s3.get_object(Bucket=bucket, Key="large")["Body"].iter_chunks(MIB):
        got.update(block)
    assert got.digest() == digest.digest()
