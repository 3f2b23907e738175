"""Rules of a cache layer, seen by the requests that reach the origin."""

import pytest

from harness import servers
from harness.metrics import metric
from harness.clients import boto3_client
from harness.origins import Shelf, content_of
from harness.stub_origin import StubOrigin
from harness.wire import Wire

pytestmark = pytest.mark.skipif(
    not servers.forebay_binary().exists(), reason="needs the built gateway"
)

MIB = 1 << 20
CONFIG = """
[stores.origin]
type = "s3"
endpoint = "{origin}"
region = "us-east-1"
[[routes]]
store = "origin"
[[routes.layers]]
type = "cache"
memory = "64MiB"
coherence = {{ mode = "immutable" }}
{rules}
"""


@pytest.fixture
def shelf():
    return Shelf()


@pytest.fixture
def ruled(gateways, shelf):
    """Starts a gateway with these rules before `shelf`; stops the origin at the end."""
    with StubOrigin(shelf) as origin:

        def start(rules):
            gateway = gateways(config=CONFIG.format(origin=origin.url, rules=rules))
            gateway.origin = origin
            return gateway

        yield start


def asks(gateway, key, times=3, **headers):
    """Reads an object so many times; returns the requests that each read made of the origin."""
    wire, counts = Wire(gateway), []
    for _ in range(times):
        # A read that meets the end of the one before it joins it, and asks nobody.
        servers.wait_until(
            lambda: metric(gateway, "forebay_origin_in_flight") == 0, "the last read to end"
        )
        before = len(gateway.origin.seen)
        answer = wire.signed("GET", f"/bucket/{key}", headers=headers)
        assert answer.status in (200, 206)
        if "range" not in headers:
            assert answer.body == gateway.origin.script.objects[f"/bucket/{key}"]
        counts.append(len(gateway.origin.seen) - before)
    return counts


def test_a_prefix_a_size_and_a_type_keep_objects_out_and_all_others_in(ruled, shelf):
    gateway = ruled("""
[[routes.layers.rules]]
prefix = "tmp/"
keep = "no"
[[routes.layers.rules]]
size_min = "1MiB"
keep = "no"
[[routes.layers.rules]]
content_types = ["video/*"]
keep = "no"
""")
    shelf.put("tmp/k", b"x" * 1000)
    shelf.put("large", content_of(3 * MIB))
    shelf.put("film", b"x" * 1000, "video/mp4")
    shelf.put("kept", b"x" * 1000, "text/plain")
    shelf.put("nearly-large", content_of(MIB - 1))
    for key, expected in (
        ("tmp/k", [1, 1, 1]), ("large", [1, 1, 1]), ("film", [1, 1, 1]), ("kept", [1, 0, 0]),
        ("nearly-large", [1, 0, 0]),
    ):
        assert asks(gateway, key) == expected, key
        if 0 in expected:
            assert asks(gateway, key, range="bytes=10-19") == [0, 0, 0]
    heads = len(gateway.origin.seen)
    for _ in range(2):
        assert Wire(gateway).signed("HEAD", "/bucket/tmp/k").status == 200
    assert len(gateway.origin.seen) == heads + 2


def test_a_pattern_is_strict_where_the_layer_is_not(ruled, shelf):
    gateway = ruled("""
[[routes.layers.rules]]
keys = ["*.html"]
coherence = { mode = "strict" }
""")
    s3 = boto3_client(gateway)
    for key in ("site/page.html", "site/picture.png"):
        shelf.put(key, b"old" * 1000)
        assert asks(gateway, key, times=1) == [1]
        shelf.put(key, b"new" * 1000)
    read = {
        key: s3.get_object(Bucket="bucket", Key=key)["Body"].read()[:3]
        for key in ("site/page.html", "site/picture.png")
    }
    assert read == {"site/page.html": b"new", "site/picture.png": b"old"}
    assert asks(gateway, "site/page.html") == [1, 1, 1]
    assert asks(gateway, "site/picture.png", range="bytes=0-2") == [0, 0, 0]


def test_the_first_rule_that_matches_decides(ruled, shelf):
    gateway = ruled("""
[[routes.layers.rules]]
prefix = "a/keep/"
[[routes.layers.rules]]
prefix = "a/"
keep = "no"
""")
    for key, expected in (("a/keep/k", [1, 0, 0]), ("a/k", [1, 1, 1]), ("b", [1, 0, 0])):
        shelf.put(key, b"x")
        assert asks(gateway, key) == expected, key


def test_what_is_pinned_stays_when_all_others_make_room(ruled, shelf):
    gateway = ruled("""
[[routes.layers.rules]]
prefix = "pinned/"
keep = "pinned"
""")
    shelf.put("pinned/k", content_of(MIB))
    shelf.put("other", content_of(MIB, seed=7))
    assert asks(gateway, "pinned/k", times=1) == asks(gateway, "other", times=1) == [1]
    for number in range(100):
        shelf.put(f"flood/{number}", content_of(MIB, seed=number))
        assert asks(gateway, f"flood/{number}", times=1) == [1]
    assert asks(gateway, "pinned/k", times=1) == [0]
    assert asks(gateway, "other", times=1) == [1], "100 MiB do not fit into 64"


def test_pages_of_a_rules_size_are_what_a_range_fetches(ruled, shelf):
    gateway = ruled("""
[[routes.layers.rules]]
keys = ["*.idx"]
page = "64KiB"
""")
    for key, page_bytes in (("k.idx", 64 << 10), ("k.bin", MIB)):
        shelf.put(key, content_of(4 * MIB))
        assert asks(gateway, key, times=2, range="bytes=2500000-2500009") == [1, 0]
        start = 2_500_000 // page_bytes * page_bytes
        asked = gateway.origin.seen[-1].headers["range"]
        assert asked == f"bytes={start}-{start + page_bytes - 1}"
