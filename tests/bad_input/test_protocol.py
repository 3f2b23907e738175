"""HTTP that is broken, oversized or hostile."""

import socket

import pytest

from harness import sigv4
from harness.wire import head_bytes, read_answer

CLOSED = None


def status_of(answer):
    """The status, or CLOSED for a server that hung up instead."""
    return answer.status if answer else CLOSED


RAW = {
    "nonsense": b"\x00\x01\x02\x03\r\n\r\n",
    "tls hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64 + b"\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "bad version": b"GET / HTTP/9.9\r\nhost: x\r\n\r\n",
    "space in target": b"GET /a b HTTP/1.1\r\nhost: x\r\n\r\n",
    "control in header": b"GET / HTTP/1.1\r\nhost: x\r\nx-a: b\x00c\r\n\r\n",
    "no colon": b"GET / HTTP/1.1\r\nhost x\r\n\r\n",
    "space before colon": b"GET / HTTP/1.1\r\nhost : x\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "length no number": b"PUT /bucket/k HTTP/1.1\r\nhost: x\r\ncontent-length: abc\r\n\r\n",
    "length negative": b"PUT /bucket/k HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
    "two lengths": b"PUT /bucket/k HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n"
    b"content-length: 2\r\n\r\nxx",
    "length and chunked": b"PUT /bucket/k HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n"
    b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "bad chunk size": b"PUT /bucket/k HTTP/1.1\r\nhost: x\r\n"
    b"transfer-encoding: chunked\r\n\r\nzz\r\n",
    "unknown method": b"FOO /bucket/k HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
    "connect": b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nhost: x\r\n\r\n",
    "absolute form elsewhere": b"GET http://example.com/b/k HTTP/1.1\r\nhost: x\r\n\r\n",
    "bad percent": b"GET /bucket/%zz HTTP/1.1\r\nhost: x\r\n\r\n",
    "bad utf-8": b"GET /bucket/%ff%fe HTTP/1.1\r\nhost: x\r\n\r\n",
    "raw utf-8": "GET /bucket/ü HTTP/1.1\r\nhost: x\r\n\r\n".encode(),
}


@pytest.mark.targets("fs", "origin")
@pytest.mark.parametrize("content", RAW.values(), ids=RAW)
def test_broken_requests_are_refused_and_the_server_lives(wire, s3, content):
    with wire.open(content) as connection:
        connection.shutdown(socket.SHUT_WR)
        status = status_of(read_answer(connection))
    assert status is CLOSED or 400 <= status < 500 or status in (501, 505), status
    assert s3.list_buckets()["ResponseMetadata"]["HTTPStatusCode"] == 200


@pytest.mark.targets("fs", "origin")
def test_a_put_without_a_length_is_refused(wire, bucket, s3):
    headers = sigv4.sign_headers(
        wire.scope(), "PUT", wire.host, f"/{bucket}/k", payload_hash=sigv4.UNSIGNED
    )
    answer = wire.raw(head_bytes("PUT", f"/{bucket}/k", headers))
    assert (answer.status, answer.code) == (411, "MissingContentLength")
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


@pytest.mark.targets("fs", "origin")
@pytest.mark.parametrize("size", [100_000, 2_000_000])
def test_a_huge_header_is_refused(wire, s3, size):
    head = f"GET / HTTP/1.1\r\nhost: {wire.host}\r\nx-large: {'x' * size}\r\n\r\n".encode()
    try:
        status = status_of(wire.raw(head))
    except (BrokenPipeError, ConnectionResetError):
        status = CLOSED
    assert status in (400, 431, CLOSED)
    s3.list_buckets()


@pytest.mark.targets("fs", "origin")
def test_a_thousand_headers_are_refused(wire, s3):
    many = "".join(f"x-h{n}: v\r\n" for n in range(1000))
    status = status_of(wire.raw(f"GET / HTTP/1.1\r\nhost: {wire.host}\r\n{many}\r\n".encode()))
    assert status in (400, 431, CLOSED)
    s3.list_buckets()


@pytest.mark.targets("fs", "origin")
def test_too_much_metadata_is_refused(wire, s3, bucket):
    headers = {"x-amz-meta-large": "m" * 3000}
    answer = wire.signed("PUT", f"/{bucket}/k", headers=headers, body=b"x")
    assert (answer.status, answer.code) == (400, "MetadataTooLarge")
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_two_requests_on_one_connection_are_both_answered(wire, s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"content")
    with wire.open(b"") as connection:
        for _ in range(3):
            headers = sigv4.sign_headers(wire.scope(), "GET", wire.host, f"/{bucket}/k")
            connection.sendall(head_bytes("GET", f"/{bucket}/k", headers))
            assert read_answer(connection).body == b"content"


@pytest.mark.targets("fs", "origin")
def test_a_refused_put_does_not_spoil_the_next_request(wire, s3, bucket):
    """A request smuggled in a refused body must never be executed."""
    s3.put_object(Bucket=bucket, Key="k", Body=b"kept")
    headers = sigv4.sign_headers(wire.scope(), "DELETE", wire.host, f"/{bucket}/k")
    smuggled = head_bytes("DELETE", f"/{bucket}/k", headers)
    refused = {"host": wire.host, "content-length": str(len(smuggled))}
    with wire.open(head_bytes("PUT", f"/{bucket}/x", refused), smuggled) as connection:
        assert read_answer(connection).status == 403
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"kept"


def test_expect_100_continue_is_answered_before_the_body(wire, s3, bucket):
    body = b"after continue"
    headers = sigv4.sign_headers(
        wire.scope(), "PUT", wire.host, f"/{bucket}/k", payload_hash=sigv4.UNSIGNED
    )
    headers |= {"content-length": str(len(body)), "expect": "100-continue"}
    with wire.open(head_bytes("PUT", f"/{bucket}/k", headers)) as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        assert read_answer(connection).status == 200
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == body


@pytest.mark.targets("fs", "origin")
def test_expect_100_continue_of_a_refused_request_sends_no_body(wire, never_forwarded):
    headers = {"host": wire.host, "content-length": "1000000", "expect": "100-continue"}
    with wire.open(head_bytes("PUT", f"/{never_forwarded}/k", headers)) as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 403")


# What a server answers in place of 100 Continue, botocore takes for the next answer as well.
@pytest.mark.targets("fs", "origin")
def test_an_answer_without_a_continue_closes_the_connection(wire, bucket):
    path = f"/{bucket}/k"
    headers = sigv4.sign_headers(wire.scope(), "PUT", wire.host, path)
    headers |= {"content-length": "0", "expect": "100-continue"}
    with wire.open(head_bytes("PUT", path, headers)) as connection:
        answer = read_answer(connection)
        assert (answer.status, answer.header("connection")) == (200, "close")
        assert connection.recv(1) == b""


@pytest.mark.targets("fs", "origin")
def test_an_unknown_operation_is_named_so(wire, bucket):
    answer = wire.signed("PATCH", f"/{bucket}/k")
    assert (answer.status, answer.code) in ((405, "MethodNotAllowed"), (501, "NotImplemented"))
