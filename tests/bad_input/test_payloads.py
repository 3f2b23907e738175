"""Bodies that are not what they are said to be are refused, and nothing of them is stored."""

import base64
import hashlib
import socket

import pytest

from harness import sigv4
from harness.servers import wait_until
from harness.wire import head_bytes, read_answer

BODY = b"the body " * 20_000


def result(answer):
    return answer.status, answer.code


def test_another_hash_than_the_bytes_have(wire, untouched):
    wrong = hashlib.sha256(b"other").hexdigest()
    answer = wire.signed("PUT", f"/{untouched}/k", body=BODY, payload_hash=wrong)
    assert result(answer) == (400, "XAmzContentSHA256Mismatch")


@pytest.mark.targets("fs", "origin")
@pytest.mark.parametrize("value", ["abc", "Z" * 64, "STREAMING-UNKNOWN"])
def test_a_hash_that_is_none(wire, never_forwarded, value):
    answer = wire.signed("PUT", f"/{never_forwarded}/k", body=BODY, payload_hash=value)
    assert answer.status == 400, answer.body


def test_another_md5_than_the_bytes_have(wire, untouched):
    wrong = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    answer = wire.signed("PUT", f"/{untouched}/k", headers={"content-md5": wrong}, body=BODY)
    assert result(answer) == (400, "BadDigest")


@pytest.mark.parametrize("value", ["", "short", "A" * 24, "not base64 at all!!!!!!!"])
def test_an_md5_that_is_none(wire, untouched, value):
    answer = wire.signed("PUT", f"/{untouched}/k", headers={"content-md5": value}, body=BODY)
    assert answer.status == 400, answer.body
    assert answer.code in ("InvalidDigest", "BadDigest")


@pytest.mark.targets("fs", "origin")
def test_two_checksums_at_once(wire, never_forwarded):
    headers = {
        "x-amz-checksum-crc32": sigv4.crc32_base64(BODY),
        "x-amz-checksum-sha1": base64.b64encode(hashlib.sha1(BODY).digest()).decode(),
    }
    answer = wire.signed("PUT", f"/{never_forwarded}/k", headers=headers, body=BODY)
    assert result(answer) == (400, "InvalidRequest")


class Chunked:
    """An aws-chunked upload in parts, each of which a test may replace."""

    def __init__(self, wire, bucket, kind=sigv4.STREAMING, decoded_length=None, trailer=None):
        self.wire = wire
        self.scope = wire.scope()
        self.path = f"/{bucket}/k"
        self.chunks = [BODY[:65536], BODY[65536:131072], BODY[131072:]]
        headers = {
            "content-encoding": "aws-chunked",
            "x-amz-decoded-content-length": str(decoded_length or len(BODY)),
        }
        if trailer:
            headers["x-amz-trailer"] = trailer
        self.headers = sigv4.sign_headers(
            self.scope, "PUT", wire.host, self.path, (), headers, kind
        )
        self.seed = sigv4.signature_of(self.headers)

    def send(self, body):
        return self.wire.plain("PUT", self.path, self.headers, body)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_chunk_with_a_wrong_signature(wire, untouched, number):
    upload = Chunked(wire, untouched)
    body = sigv4.signed_chunks(upload.scope, upload.seed, upload.chunks, chunk_damaged=number)
    assert result(upload.send(body)) == (403, "SignatureDoesNotMatch")


@pytest.mark.parametrize("at", [100, 70_000, 140_000])
def test_a_chunk_with_a_flipped_byte(wire, untouched, at):
    upload = Chunked(wire, untouched)
    body = bytearray(sigv4.signed_chunks(upload.scope, upload.seed, upload.chunks))
    body[at + 300] ^= 1
    assert upload.send(bytes(body)).status in (400, 403)


def test_chunks_in_another_order(wire, untouched):
    upload = Chunked(wire, untouched)
    pieces = [sigv4.signed_chunks(upload.scope, upload.seed, upload.chunks)]
    first = pieces[0][: 65536 + 200].index(b"\r\n") + 2 + 65536 + 2
    second = len(pieces[0][first:].split(b"\r\n")[0]) + 2 + 65536 + 2
    body = (
        pieces[0][first : first + second] + pieces[0][:first] + pieces[0][first + second :]
    )
    assert result(upload.send(body)) == (403, "SignatureDoesNotMatch")


def test_a_missing_last_chunk(wire, untouched):
    upload = Chunked(wire, untouched)
    body = sigv4.signed_chunks(upload.scope, upload.seed, upload.chunks)
    cut = body.rindex(b"0;chunk-signature")
    answer = upload.send(body[:cut])
    assert answer.status in (400, 403), answer.body


# versitygw answers 500 to some of them; the gateway must know better before it.
@pytest.mark.targets("fs", "origin")
@pytest.mark.parametrize("said", [1, len(BODY) - 1, len(BODY) + 1])
def test_another_decoded_length_than_said(wire, untouched, said):
    upload = Chunked(wire, untouched, decoded_length=said)
    body = sigv4.signed_chunks(upload.scope, upload.seed, upload.chunks)
    assert upload.send(body).status == 400


@pytest.mark.targets("fs", "origin")
@pytest.mark.parametrize(
    "framing",
    [
        b"zz;chunk-signature=" + b"0" * 64 + b"\r\n",
        b"5\r\nabcde\r\n0\r\n\r\n",
        b"ffffffffffffffff;chunk-signature=" + b"0" * 64 + b"\r\n",
        b"-5;chunk-signature=" + b"0" * 64 + b"\r\nabcde\r\n",
        b";;;;;;\r\n",
        b"5;" + b"x" * 100_000 + b"\r\n",
        b"\r\n\r\n\r\n",
        b"",
    ],
    ids=["no hex", "unsigned", "overflow", "negative", "semicolons", "long", "empty", "nothing"],
)
def test_framing_that_is_none(wire, untouched, framing):
    answer = Chunked(wire, untouched, decoded_length=5).send(framing)
    assert answer.status in (400, 403), answer.body
    assert answer.code is not None


TRAILER = "x-amz-checksum-crc32"


@pytest.mark.parametrize("kind", [sigv4.STREAMING_TRAILER, sigv4.STREAMING_UNSIGNED_TRAILER])
def test_a_trailer_with_a_wrong_checksum(wire, untouched, kind):
    upload = Chunked(wire, untouched, kind, trailer=TRAILER)
    trailers = {TRAILER: sigv4.crc32_base64(b"other")}
    if kind == sigv4.STREAMING_TRAILER:
        body = sigv4.signed_chunks(upload.scope, upload.seed, upload.chunks, trailers)
    else:
        body = sigv4.unsigned_chunks(upload.chunks, trailers)
    assert result(upload.send(body)) == (400, "BadDigest")


def test_a_trailer_with_a_wrong_signature(wire, untouched):
    upload = Chunked(wire, untouched, sigv4.STREAMING_TRAILER, trailer=TRAILER)
    trailers = {TRAILER: sigv4.crc32_base64(BODY)}
    body = sigv4.signed_chunks(
        upload.scope, upload.seed, upload.chunks, trailers, trailer_damaged=True
    )
    assert result(upload.send(body)) == (403, "SignatureDoesNotMatch")


def test_a_trailer_that_was_announced_and_never_came(wire, untouched):
    upload = Chunked(wire, untouched, sigv4.STREAMING_UNSIGNED_TRAILER, trailer=TRAILER)
    answer = upload.send(sigv4.unsigned_chunks(upload.chunks))
    assert answer.status == 400, answer.body


def test_a_trailer_that_nobody_announced(wire, untouched):
    upload = Chunked(wire, untouched, sigv4.STREAMING_UNSIGNED_TRAILER, trailer=TRAILER)
    trailers = {"x-amz-checksum-sha1": base64.b64encode(hashlib.sha1(BODY).digest()).decode()}
    answer = upload.send(sigv4.unsigned_chunks(upload.chunks, trailers))
    assert answer.status == 400, answer.body


class TestCutShort:
    """A client that stops in mid-body.

    The payload hash is sent, because versitygw stores the half of an unsigned payload that it got.
    """

    def half_sent(self, wire, bucket):
        path = f"/{bucket}/k"
        whole = hashlib.sha256(BODY).hexdigest()
        headers = sigv4.sign_headers(wire.scope(), "PUT", wire.host, path, payload_hash=whole)
        headers["content-length"] = str(len(BODY))
        return wire.open(head_bytes("PUT", path, headers), BODY[: len(BODY) // 2])

    def test_a_client_that_hangs_up_leaves_nothing(self, wire, s3, untouched):
        self.half_sent(wire, untouched).close()
        assert s3.list_objects_v2(Bucket=untouched)["KeyCount"] == 0

    def test_a_client_that_closes_its_half_is_refused_or_cut(self, wire, untouched):
        with self.half_sent(wire, untouched) as connection:
            connection.shutdown(socket.SHUT_WR)
            answer = read_answer(connection)
        assert answer is None or answer.status in (400, 408), answer

    @pytest.mark.targets("fs")
    def test_an_unsigned_payload_that_is_cut_leaves_nothing(self, wire, s3, untouched):
        path = f"/{untouched}/k"
        headers = sigv4.sign_headers(
            wire.scope(), "PUT", wire.host, path, payload_hash=sigv4.UNSIGNED
        )
        headers["content-length"] = str(len(BODY))
        wire.open(head_bytes("PUT", path, headers), BODY[:1000]).close()
        assert s3.list_objects_v2(Bucket=untouched)["KeyCount"] == 0

    def test_an_overwrite_that_is_cut_leaves_the_old_object(self, wire, s3, bucket):
        s3.put_object(Bucket=bucket, Key="k", Body=b"old")
        for _ in range(3):
            self.half_sent(wire, bucket).close()
        for _ in range(2):
            assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"old"

    def test_a_cut_part_is_not_listed(self, wire, s3, bucket):
        upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
        query = [("partNumber", "1"), ("uploadId", upload)]
        headers = sigv4.sign_headers(
            wire.scope(), "PUT", wire.host, f"/{bucket}/k", query, payload_hash=sigv4.UNSIGNED
        )
        headers["content-length"] = str(len(BODY))
        target = f"/{bucket}/k?partNumber=1&uploadId={sigv4.encode(upload)}"
        wire.open(head_bytes("PUT", target, headers), BODY[:100]).close()

        def parts():
            answer = s3.list_parts(Bucket=bucket, Key="k", UploadId=upload)
            return answer.get("Parts", [])

        wait_until(lambda: parts() == [], "no part to be listed", timeout_seconds=5)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no xml",
        b"<Delete>",
        b"<Delete></Delete>",
        b"<Other><Object><Key>k</Key></Object></Other>",
        b"<Delete><Object></Object></Delete>",
        b'<!DOCTYPE x [<!ENTITY a "k">]><Delete><Object><Key>&a;</Key></Object></Delete>',
        b"<Delete>" + b"<Object><Key>k</Key></Object>" * 1001 + b"</Delete>",
        b"<a>" * 100_000,
    ],
    ids=["empty", "text", "open", "no objects", "other root", "no key", "entity", "1001", "deep"],
)
@pytest.mark.targets("fs")
def test_a_delete_list_that_is_none(wire, s3, bucket, body):
    s3.put_object(Bucket=bucket, Key="k", Body=b"kept")
    digest = base64.b64encode(hashlib.md5(body).digest()).decode()
    answer = wire.signed(
        "POST", f"/{bucket}", [("delete", "")], {"content-md5": digest}, body
    )
    assert (answer.status, answer.code) in (
        (400, "MalformedXML"), (400, "MissingRequestBodyError"),
    ), answer.body
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"kept"


@pytest.mark.targets("fs")
def test_a_complete_list_that_is_none(wire, s3, bucket):
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    for body in (b"", b"<x", b"<CompleteMultipartUpload></CompleteMultipartUpload>"):
        answer = wire.signed("POST", f"/{bucket}/k", [("uploadId", upload)], body=body)
        assert answer.status == 400, (body, answer.body)
        assert answer.code in ("MalformedXML", "InvalidRequest")
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
