"""What a client sees on the origin's bad days. Each test has its own gateway and its own origin."""

import concurrent.futures
import http.client
import itertools
import threading

import pytest

from harness import servers, sigv4
from harness.origins import content_of, ranged
from harness.stub_origin import Reply, StubOrigin
from harness.wire import head_bytes

MIB = 1 << 20
pytestmark = pytest.mark.skipif(
    not servers.forebay_binary().exists(), reason="needs the built gateway"
)


def test_a_dead_origin_is_503_in_xml(before):
    wire = before(f"http://127.0.0.1:{servers.free_port()}")
    for method, path in (
        ("GET", "/bucket/k"), ("HEAD", "/bucket/k"), ("PUT", "/bucket/k"), ("GET", "/bucket"),
    ):
        answer = wire.signed(method, path)
        assert answer.status == 503, (method, path, answer)
        if method != "HEAD":
            assert answer.code == "ServiceUnavailable", answer.body


@pytest.mark.parametrize("cut", [0, 1000, MIB, 3 * MIB])
def test_a_body_cut_by_the_origin_is_never_a_short_200(before, cut):
    content = content_of(4 * MIB)

    def script(request):
        reply = ranged(content, '"a"', request)
        reply.cut_after_bytes = cut if len(reply.body) > cut else None
        return reply

    with StubOrigin(script) as origin:
        wire = before(origin.url)
        try:
            answer = wire.signed("GET", "/bucket/k")
        except (http.client.IncompleteRead, ConnectionResetError, http.client.BadStatusLine):
            return
        # Resumed from where it broke: all right, if the bytes are.
        assert answer.status >= 500 or answer.body == content


def test_a_cut_body_spoils_nothing_for_the_next_reader(before):
    content = content_of(3 * MIB)
    is_ill = threading.Event()
    is_ill.set()

    def script(request):
        reply = ranged(content, '"a"', request)
        if is_ill.is_set():
            reply.cut_after_bytes = MIB // 2
        return reply

    with StubOrigin(script) as origin:
        wire = before(origin.url)
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError, AssertionError)):
            answer = wire.signed("GET", "/bucket/k")
            assert answer.status < 500
        is_ill.clear()
        for _ in range(2):
            assert wire.signed("GET", "/bucket/k").body == content


@pytest.mark.parametrize("status", [500, 502, 503, 403, 404, 400])
def test_an_error_of_the_origin_passes_byte_for_byte(before, status):
    body = (
        b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>Odd</Code><Message>odd</Message>'
        b"<Extra>of the origin</Extra></Error>"
    )
    with StubOrigin(lambda _: Reply(status, {"content-type": "application/xml"}, body)) as origin:
        answer = before(origin.url).signed("GET", "/bucket/k")
        assert (answer.status, answer.body) == (status, body)


@pytest.mark.parametrize("status", [403, 500, 503])
def test_an_error_is_never_cached(before, status):
    sick = threading.Event()
    sick.set()
    content = content_of(1000)

    def script(request):
        if sick.is_set():
            return Reply(status, {"content-type": "application/xml"}, b"<Error/>")
        return ranged(content, '"a"', request)

    with StubOrigin(script) as origin:
        wire = before(origin.url)
        assert wire.signed("GET", "/bucket/k").status == status
        sick.clear()
        assert wire.signed("GET", "/bucket/k").body == content


def test_a_hit_needs_no_origin(before):
    content = content_of(2 * MIB)
    with StubOrigin(lambda request: ranged(content, '"a"', request)) as origin:
        wire = before(origin.url)
        assert wire.signed("GET", "/bucket/k").body == content
        count = len(origin.seen)
        for _ in range(5):
            assert wire.signed("GET", "/bucket/k").body == content
            part = wire.signed("GET", "/bucket/k", headers={"range": "bytes=5-9"})
            assert part.body == content[5:10]
            assert wire.signed("HEAD", "/bucket/k").status == 200
        assert len(origin.seen) == count


def test_many_waiters_for_one_cold_object_cost_one_fetch(before):
    content = content_of(600_000)
    gate = threading.Event()

    def script(request):
        gate.wait(10)
        return ranged(content, '"a"', request)

    with StubOrigin(script) as origin:
        wire = before(origin.url)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            waiting = [pool.submit(wire.signed, "GET", "/bucket/k") for _ in range(16)]
            servers.wait_until(lambda: len(origin.seen) > 0, "the first fetch")
            gate.set()
            assert all(answer.result().body == content for answer in waiting)
        gets = [seen for seen in origin.seen if seen.method == "GET"]
        assert len(gets) == 1, [seen.headers for seen in gets]


def test_first_bytes_leave_before_the_last_arrive(before):
    content = content_of(4 * MIB)
    gate = threading.Event()

    def script(request):
        reply = ranged(content, '"a"', request)
        reply.hold, reply.hold_after_bytes = gate, 100_000
        return reply

    with StubOrigin(script) as origin:
        wire = before(origin.url)
        headers = sigv4.sign_headers(wire.scope(), "GET", wire.host, "/bucket/k")
        with wire.open(head_bytes("GET", "/bucket/k", headers)) as connection:
            response = http.client.HTTPResponse(connection)
            response.begin()
            assert response.read(50_000) == content[:50_000]
            gate.set()
            assert response.read() == content[50_000:]


def test_a_client_that_leaves_does_not_fail_the_followers(before):
    content = content_of(700_000)
    gate = threading.Event()

    def script(request):
        reply = ranged(content, '"a"', request)
        reply.hold, reply.hold_after_bytes = gate, 1000
        return reply

    with StubOrigin(script) as origin:
        wire = before(origin.url)
        headers = sigv4.sign_headers(wire.scope(), "GET", wire.host, "/bucket/k")
        leader = wire.open(head_bytes("GET", "/bucket/k", headers))
        servers.wait_until(lambda: len(origin.seen) > 0, "the first fetch")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            followers = [pool.submit(wire.signed, "GET", "/bucket/k") for _ in range(4)]
            leader.close()
            gate.set()
            assert all(follower.result().body == content for follower in followers)


def test_two_versions_never_mix_in_one_body(before):
    """The origin's object changes between two pages of one read."""
    versions = itertools.count()
    old, new = content_of(6 * MIB), content_of(6 * MIB, seed=77)
    changed = threading.Event()

    def script(request):
        next(versions)
        content, etag = (new, '"new"') if changed.is_set() else (old, '"old"')
        return ranged(content, etag, request)

    with StubOrigin(script) as origin:
        wire = before(origin.url)
        first = wire.signed("GET", "/bucket/k", headers={"range": "bytes=0-1048575"})
        assert first.body == old[:MIB]
        changed.set()
        try:
            answer = wire.signed("GET", "/bucket/k")
        except (http.client.IncompleteRead, ConnectionResetError):
            return
        whole = {'"old"': old, '"new"': new}[answer.header("etag")]
        assert answer.body == whole


def test_a_client_gone_in_mid_upload_leaves_no_object_and_no_whole_request(before):
    with StubOrigin(lambda _: Reply(200, {"etag": '"x"'})) as origin:
        wire = before(origin.url)
        headers = sigv4.sign_headers(
            wire.scope(), "PUT", wire.host, "/bucket/k", payload_hash=sigv4.UNSIGNED
        )
        headers["content-length"] = str(8 * MIB)
        wire.open(head_bytes("PUT", "/bucket/k", headers), b"x" * (2 * MIB)).close()
        assert wire.signed("PUT", "/bucket/other", body=b"fine").status == 200
        puts = [seen for seen in origin.seen if seen.method == "PUT" and seen.target == "/bucket/k"]
        assert all(not seen.body_is_whole for seen in puts)


def test_a_put_is_sent_to_the_origin_once(before):
    refusal = Reply(500, {"content-type": "application/xml"}, b"<Error/>")
    with StubOrigin(lambda _: refusal) as origin:
        wire = before(origin.url)
        assert wire.signed("PUT", "/bucket/k", body=b"x").status == 500
        assert len(origin.seen) == 1


def test_one_client_request_is_one_origin_request(before):
    content = content_of(1000)

    def script(request):
        if request.method in ("GET", "HEAD"):
            return ranged(content, '"a"', request)
        return Reply(200, {"etag": '"a"'})

    with StubOrigin(script) as origin:
        wire = before(origin.url)
        for method, path in (
            ("HEAD", "/bucket/a"), ("GET", "/bucket/b"), ("PUT", "/bucket/c"),
            ("DELETE", "/bucket/d"), ("HEAD", "/bucket"),
        ):
            before_count = len(origin.seen)
            wire.signed(method, path)
            assert len(origin.seen) == before_count + 1, (method, path)


def test_the_client_signature_and_hop_headers_do_not_reach_the_origin(before):
    with StubOrigin(lambda _: Reply(200, {"etag": '"x"'})) as origin:
        wire = before(origin.url)
        wire.signed(
            "PUT", "/bucket/k", headers={"x-amz-meta-a": "1", "te": "trailers", "x-custom": "kept"},
            body=b"x",
        )
        headers = origin.seen[0].headers
        assert wire.credentials.access_key not in headers["authorization"]
        assert servers.ORIGIN_ROOT.access_key in headers["authorization"]
        assert (headers["x-amz-meta-a"], headers["x-custom"]) == ("1", "kept")
        assert headers["host"] == origin.url.removeprefix("http://")
        assert "te" not in headers


def test_a_404_is_forgotten_after_a_second(before):
    exists = threading.Event()
    content = content_of(100)

    def script(request):
        if exists.is_set():
            return ranged(content, '"a"', request)
        absent = b"<Error><Code>NoSuchKey</Code></Error>"
        return Reply(404, {"content-type": "application/xml"}, absent)

    with StubOrigin(script) as origin:
        wire = before(origin.url)
        assert wire.signed("GET", "/bucket/k").status == 404
        exists.set()
        servers.wait_until(
            lambda: wire.signed("GET", "/bucket/k").status == 200, "the object", timeout_seconds=2
        )
