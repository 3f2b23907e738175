"""How old an answer may be, and what the origin is asked for it."""

import pytest

from harness import servers
from harness.clients import boto3_client
from harness.logs import RequestCount
from harness.origins import Shelf, body_bytes, content_of, ranged
from harness.stub_origin import Reply, StubOrigin
from harness.wire import Wire

pytestmark = pytest.mark.skipif(
    not servers.forebay_binary().exists(), reason="needs the built gateway"
)

CONFIG = """
[stores.origin]
type = "s3"
endpoint = "{origin}"
region = "us-east-1"
[[routes]]
store = "origin"
layers = [{{ type = "cache", memory = "{memory}", coherence = {coherence} }}]
"""


@pytest.fixture
def cached(gateways):
    """Starts a gateway with a cache of the given coherence before an origin."""

    def start(origin, coherence='{ mode = "immutable" }', memory="64MiB"):
        config = CONFIG.format(origin=origin.url, coherence=coherence, memory=memory)
        return Wire(gateways(config=config))

    return start


def test_bounded_asks_again_after_its_time_and_keeps_what_still_holds(cached):
    content = content_of(100_000)

    def script(request):
        if request.headers.get("if-none-match") == '"a"':
            return Reply(304, {"etag": '"a"'})
        return ranged(content, '"a"', request)

    with StubOrigin(script) as origin:
        wire = cached(origin, '{ mode = "bounded", ttl = "1s" }')
        assert wire.signed("GET", "/bucket/k").body == content
        assert wire.signed("GET", "/bucket/k").body == content
        assert len(origin.seen) == 1

        def was_asked_again():
            assert wire.signed("GET", "/bucket/k").body == content
            return len(origin.seen) > 1

        servers.wait_until(was_asked_again, "a validation", timeout_seconds=5)
        assert origin.seen[1].headers["if-none-match"] == '"a"'


def test_bounded_shows_a_change_at_the_origin_after_its_time(cached):
    now = {"content": b"old" * 1000, "etag": '"old"'}

    def script(request):
        if request.headers.get("if-none-match") == now["etag"]:
            return Reply(304, {"etag": now["etag"]})
        return ranged(now["content"], now["etag"], request)

    with StubOrigin(script) as origin:
        wire = cached(origin, '{ mode = "bounded", ttl = "1s" }')
        assert wire.signed("GET", "/bucket/k").body == b"old" * 1000
        now.update(content=b"new" * 1000, etag='"new"')
        servers.wait_until(
            lambda: wire.signed("GET", "/bucket/k").body == b"new" * 1000, "the change",
            timeout_seconds=5,
        )
        assert wire.signed("HEAD", "/bucket/k").header("etag") == '"new"'


def test_a_head_and_a_range_fill_what_a_get_then_uses(cached):
    content = content_of(3 << 20)
    with StubOrigin(lambda request: ranged(content, '"a"', request)) as origin:
        wire = cached(origin)
        first = wire.signed("GET", "/bucket/k", headers={"range": "bytes=1048576-1048585"})
        assert first.body == content[1048576:1048586]
        fetched = sum(len(ranged(content, '"a"', seen).body) for seen in origin.seen)
        assert fetched < len(content), "a small range must not fetch the whole object"
        assert wire.signed("GET", "/bucket/k").body == content
        count = len(origin.seen)
        assert wire.signed("GET", "/bucket/k").body == content
        assert len(origin.seen) == count


def test_more_objects_than_fit_are_served_right_and_memory_is_bounded(cached):
    size, count = 512 << 10, 60

    def script(request):
        number = int(request.target.rpartition("/")[2].partition("?")[0])
        return ranged(content_of(size, seed=number), f'"{number}"', request)

    with StubOrigin(script) as origin:
        wire = cached(origin, memory="8MiB")
        for _ in range(2):
            for number in range(count):
                answer = wire.signed("GET", f"/bucket/{number}")
                assert answer.body == content_of(size, seed=number)
        assert len(origin.seen) > count, "30 MiB cannot all have been kept in 8"


def test_a_client_may_ask_for_no_cache(cached):
    content = content_of(1000)
    with StubOrigin(lambda request: ranged(content, '"a"', request)) as origin:
        wire = cached(origin)
        wire.signed("GET", "/bucket/k")
        wire.signed("GET", "/bucket/k", headers={"cache-control": "no-cache"})
        assert len(origin.seen) == 2


def test_an_error_inside_a_200_of_a_completed_upload_passes_and_keeps_nothing_stale(cached):
    """S3 may answer 200, then white space to keep the connection, then an error."""
    content = content_of(1000)
    late = b" " * 10 + b"<Error><Code>InternalError</Code></Error>"

    def script(request):
        if request.method == "POST":
            return Reply(200, {"content-type": "application/xml"}, late)
        return ranged(content, '"a"', request)

    with StubOrigin(script) as origin:
        wire = cached(origin)
        wire.signed("GET", "/bucket/k")
        answer = wire.signed("POST", "/bucket/k", [("uploadId", "u")], body=b"<x/>")
        assert (answer.status, answer.body.lstrip()) == (200, late.lstrip())
        wire.signed("GET", "/bucket/k")
        assert len([seen for seen in origin.seen if seen.method == "GET"]) == 2


@pytest.mark.parametrize(
    ("method", "query"),
    [("PUT", []), ("DELETE", []), ("PUT", [("tagging", "")]), ("PUT", [("of-the-future", "")]),
     ("POST", [("restore", "")])],
)
def test_every_write_on_a_key_invalidates_it(cached, method, query):
    content = content_of(1000)

    def script(request):
        if request.method in ("GET", "HEAD"):
            return ranged(content, '"a"', request)
        return Reply(200, {"etag": '"b"'})

    with StubOrigin(script) as origin:
        wire = cached(origin)
        for _ in range(2):
            wire.signed("GET", "/bucket/k")
        wire.signed(method, "/bucket/k", query, body=b"x")
        wire.signed("GET", "/bucket/k")
        assert [seen.method for seen in origin.seen] == ["GET", method, "GET"]


def test_exclusive_lists_from_memory_until_a_write_and_remembers_what_is_missing(cached):
    listing = b"<ListBucketResult><Name>bucket</Name></ListBucketResult>"
    absent = b"<Error><Code>NoSuchKey</Code></Error>"

    def script(request):
        if request.method == "PUT":
            return Reply(200, {"etag": '"a"'})
        if "list-type" in request.target:
            return Reply(200, {"content-type": "application/xml"}, listing)
        return Reply(404, {"content-type": "application/xml"}, absent)

    with StubOrigin(script) as origin:
        wire = cached(origin, '{ mode = "exclusive" }')

        def asks(key, query):
            count = len(origin.seen)
            answer = wire.signed("GET", f"/bucket{key}", query)
            assert answer.body in (listing, absent)
            return len(origin.seen) - count, answer.header("cache-status")

        two, other = [("list-type", "2"), ("prefix", "a/")], [("list-type", "2"), ("prefix", "b")]
        assert asks("", two) == (1, "forebay; fwd=uri-miss; fwd-status=200; stored")
        assert asks("", list(reversed(two))) == (0, "forebay; hit")
        assert asks("", other)[0] == 1
        assert wire.signed("PUT", "/bucket/a/k", body=b"x").status == 200
        assert (asks("", two)[0], asks("", other)[0]) == (1, 0)
        assert asks("/none", []) == (1, "forebay; fwd=uri-miss; fwd-status=404; stored")


@pytest.mark.parametrize("size", [1000, 3 << 20])
def test_strict_asks_once_for_each_hit_without_a_body_and_sees_what_others_write(cached, size):
    shelf = Shelf()
    shelf.put("k", content_of(size))
    with StubOrigin(shelf) as origin:
        s3 = boto3_client(cached(origin, '{ mode = "strict" }').server)

        def read(**more):
            return s3.get_object(Bucket="bucket", Key="k", **more)["Body"].read()

        assert read() == content_of(size)
        for number in range(1, 4):
            count = len(origin.seen)
            assert read() == content_of(size)
            assert read(Range="bytes=100-199") == content_of(size)[100:200]
            assert s3.head_object(Bucket="bucket", Key="k")["ContentLength"] == size
            asked = origin.seen[count:]
            assert [seen.method for seen in asked] == ["GET", "GET", "HEAD"]
            assert all(seen.headers["if-none-match"] == shelf.etag("k") for seen in asked)
            assert body_bytes(origin, count) == 0, "304 has no body"
            # Behind the gateway's back, the last time to another size.
            size += number // 3
            shelf.put("k", b"%d" % number + content_of(size)[1:])
            assert read() == b"%d" % number + content_of(size)[1:]
            shelf.put("k", content_of(size))
            assert read() == content_of(size)


def test_strict_says_that_an_object_is_gone_at_once(cached):
    shelf = Shelf()
    shelf.put("k", content_of(1000))
    with StubOrigin(shelf) as origin:
        wire = cached(origin, '{ mode = "strict" }')
        wire.signed("GET", "/bucket/k")
        del shelf.objects["/bucket/k"]
        for method in ("GET", "HEAD", "GET"):
            assert wire.signed(method, "/bucket/k").status == 404
        assert len(origin.seen) == 4, "and a 404 is never remembered"
        shelf.put("k", b"back")
        assert wire.signed("GET", "/bucket/k").body == b"back"


def test_a_missing_object_is_asked_for_once_a_second_and_there_after_a_write(cached):
    shelf = Shelf()
    with StubOrigin(shelf) as origin:
        s3 = boto3_client(cached(origin, '{ mode = "bounded", ttl = "60s" }').server)

        def status():
            try:
                return s3.get_object(Bucket="bucket", Key="k")["Body"].read()
            except s3.exceptions.NoSuchKey:
                return None

        # A second may end between the reads, once.
        assert [status() for _ in range(20)] == [None] * 20
        assert len(origin.seen) < 10
        s3.put_object(Bucket="bucket", Key="k", Body=b"there")
        assert status() == b"there"
        s3.delete_object(Bucket="bucket", Key="k")
        assert status() is None
        assert "k" not in shelf.objects
        # What others put is there after the second.
        shelf.put("k", b"by others")
        servers.wait_until(lambda: status() == b"by others", "the object", timeout_seconds=5)


def test_listings_with_a_ttl_are_asked_for_once_and_dropped_by_a_write_below_them(
    gateways, started
):
    service = started("behind")
    name = "kept-listings"
    direct = boto3_client(service)
    direct.create_bucket(Bucket=name)
    keys = [f"a/{number:03}" for number in range(7)] + ["b/1"]
    for key in keys:
        direct.put_object(Bucket=name, Key=key, Body=b"x")
    config = CONFIG.format(
        origin=service.url, memory="64MiB", coherence='{ mode = "bounded", ttl = "1m" }'
    ).replace('type = "cache",', 'type = "cache", list_objects_v2 = { ttl = "1m" }, '
              'head_bucket = { ttl = "1m" },')
    s3 = boto3_client(gateways(config=config))

    def listed(prefix):
        pages = s3.get_paginator("list_objects_v2").paginate(
            Bucket=name, Prefix=prefix, PaginationConfig={"PageSize": 3}
        )
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    requests = RequestCount(service)
    for _ in range(3):
        assert (listed("a/"), listed("b/")) == (keys[:7], keys[7:])
        s3.head_bucket(Bucket=name)
    assert requests.since_start() == 5, "three pages, one page, one HEAD"
    s3.put_object(Bucket=name, Key="a/new", Body=b"x")
    count = requests.since_start()
    assert listed("b/") == keys[7:]
    assert requests.since_start() == count
    assert listed("a/") == [*keys[:7], "a/new"]
    s3.delete_objects(Bucket=name, Delete={"Objects": [{"Key": "a/new"}, {"Key": "b/1"}]})
    assert (listed("a/"), listed("b/")) == (keys[:7], [])
    # What others write shows when the time is over, or to whom it is worth a request.
    direct.put_object(Bucket=name, Key="b/2", Body=b"x")
    assert listed("b/") == []
    wire = Wire(gateways(config=config))
    wire.signed("GET", f"/{name}", [("list-type", "2"), ("prefix", "b/")])
    direct.put_object(Bucket=name, Key="b/3", Body=b"x")
    answer = wire.signed("GET", f"/{name}", [("list-type", "2"), ("prefix", "b/")],
                         {"cache-control": "no-cache"})
    assert b"<Key>b/3</Key>" in answer.body
