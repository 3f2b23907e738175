"""Checksums as the SDKs send and ask for them."""

import base64
import hashlib
import zlib

import pytest

from harness import sigv4
from harness.expect import refused

CONTENT = b"The quick brown fox jumps over the lazy dog. " * 1000
ALGORITHMS = ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"]
# Of newer SDKs, with the bytes of a value.
NEWER = {"SHA512": 64, "MD5": 16, "XXHASH64": 8, "XXHASH3": 8, "XXHASH128": 16}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_checksum_is_verified_kept_and_returned_when_asked(s3, bucket, algorithm):
    put = s3.put_object(Bucket=bucket, Key="k", Body=CONTENT, ChecksumAlgorithm=algorithm)
    value = put[f"Checksum{algorithm}"]
    for _ in range(2):
        head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
        assert head[f"Checksum{algorithm}"] == value
        got = s3.get_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
        assert got[f"Checksum{algorithm}"] == value
        assert got["Body"].read() == CONTENT


def test_checksums_are_those_of_the_bytes(s3, bucket):
    known = {
        "CRC32": base64.b64encode(zlib.crc32(CONTENT).to_bytes(4, "big")).decode(),
        "SHA1": base64.b64encode(hashlib.sha1(CONTENT).digest()).decode(),
        "SHA256": base64.b64encode(hashlib.sha256(CONTENT).digest()).decode(),
    }
    for algorithm, value in known.items():
        put = s3.put_object(Bucket=bucket, Key="k", Body=CONTENT, ChecksumAlgorithm=algorithm)
        assert put[f"Checksum{algorithm}"] == value


@pytest.mark.parametrize("algorithm", ["CRC32", "SHA256", "CRC64NVME"])
def test_a_wrong_checksum_header_stores_nothing(s3, bucket, wire, algorithm):
    wrong = {"CRC32": 4, "SHA256": 32, "CRC64NVME": 8}[algorithm] * b"\0"
    header = {f"x-amz-checksum-{algorithm.lower()}": base64.b64encode(wrong).decode()}
    answer = wire.signed("PUT", f"/{bucket}/k", headers=header, body=CONTENT)
    assert (answer.status, answer.code) == (400, "BadDigest")
    with refused(404, "NoSuchKey"):
        s3.get_object(Bucket=bucket, Key="k")


def test_the_checksum_mode_is_compared_without_case(s3, bucket, wire):
    put = s3.put_object(Bucket=bucket, Key="k", Body=CONTENT, ChecksumAlgorithm="CRC32")
    for mode in ("ENABLED", "enabled", "ENABLED"):
        answer = wire.signed("HEAD", f"/{bucket}/k", headers={"x-amz-checksum-mode": mode})
        assert answer.header("x-amz-checksum-crc32") == put["ChecksumCRC32"], mode
    assert wire.signed("HEAD", f"/{bucket}/k").header("x-amz-checksum-crc32") is None


# versitygw keeps `aws-chunked` as the object's encoding; the gateway before it must not.
@pytest.mark.targets("fs", "origin")
@pytest.mark.parametrize("form", ["signed", "signed-trailer", "unsigned-trailer"])
def test_chunked_uploads_store_the_bytes_and_not_the_framing(s3, bucket, wire, form):
    chunks = [CONTENT[:65536 // 2], CONTENT[65536 // 2 :]]
    crc = sigv4.crc32_base64(CONTENT)
    answer = put_chunked(wire, bucket, form, chunks, crc)
    assert answer.status == 200, answer.body
    got = s3.get_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert got["Body"].read() == CONTENT
    assert "ContentEncoding" not in got
    if form != "signed":
        assert got["ChecksumCRC32"] == crc


def newer(algorithm):
    """The header of a newer algorithm, and a value of its length."""
    value = base64.b64encode(b"\1" * NEWER[algorithm]).decode()
    return f"x-amz-checksum-{algorithm.lower()}", value


@pytest.mark.targets("fs")
@pytest.mark.parametrize("algorithm", NEWER)
def test_a_checksum_newer_than_the_five_is_refused(s3, bucket, wire, algorithm):
    name, value = newer(algorithm)
    headers = {name: value, "x-amz-sdk-checksum-algorithm": algorithm}
    answer = wire.signed("PUT", f"/{bucket}/k", headers=headers, body=CONTENT)
    assert (answer.status, answer.code) == (400, "InvalidRequest"), answer
    with refused(404, "NoSuchKey"):
        s3.get_object(Bucket=bucket, Key="k")


@pytest.mark.targets("fs", "origin")
@pytest.mark.parametrize("algorithm", NEWER)
def test_a_trailer_newer_than_the_five_is_refused(s3, bucket, wire, algorithm):
    name, value = newer(algorithm)
    answer = put_chunked(wire, bucket, "unsigned-trailer", [CONTENT], value, trailer=name)
    assert (answer.status, answer.code) == (400, "InvalidRequest"), answer
    with refused(404, "NoSuchKey"):
        s3.get_object(Bucket=bucket, Key="k")


def put_chunked(wire, bucket, form, chunks, crc, trailer="x-amz-checksum-crc32", **damage):
    """Uploads `chunks` to key `k` in one of the three aws-chunked forms."""
    scope = wire.scope()
    headers = {
        "content-encoding": "aws-chunked",
        "x-amz-decoded-content-length": str(sum(map(len, chunks))),
    }
    kind = sigv4.STREAMING
    if form != "signed":
        headers["x-amz-trailer"] = trailer
        kind = sigv4.STREAMING_TRAILER
        if form == "unsigned-trailer":
            kind = sigv4.STREAMING_UNSIGNED_TRAILER
    path = f"/{bucket}/k"
    headers = sigv4.sign_headers(scope, "PUT", wire.host, path, (), headers, kind)
    trailers = {trailer: crc} if form != "signed" else None
    if form == "unsigned-trailer":
        body = sigv4.unsigned_chunks(chunks, trailers)
    else:
        seed = sigv4.signature_of(headers)
        body = sigv4.signed_chunks(scope, seed, chunks, trailers, **damage)
    return wire.plain("PUT", path, headers, body)
