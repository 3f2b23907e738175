"""Many readers of what is cold, readers of ranges in a row, and an origin on a slow line."""

import concurrent.futures
import contextlib
import hashlib
import json
import subprocess
import threading
import urllib.request

import pytest

from harness import servers
from harness.origins import Shelf, content_of, ranged
from harness.servers import ORIGIN_ROOT
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
credentials = "keys"
access_key = "{credentials.access_key}"
secret_key = "{credentials.secret_key}"
[[routes]]
store = "origin"
layers = [{{ type = "cache", memory = "{memory}", coherence = {{ mode = "immutable" }} }}]
"""


@pytest.fixture
def cached(gateways):
    """Starts a gateway with a cache of this size before an origin."""

    def start(origin, memory="128MiB"):
        config = CONFIG.format(origin=origin, memory=memory, credentials=ORIGIN_ROOT)
        return Wire(gateways(config=config))

    return start


def all_at_once(count, call):
    """Calls `call(number)` from so many threads, let go together; returns the results."""
    gate = threading.Barrier(count)

    def run(number):
        gate.wait(60)
        return call(number)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@pytest.mark.parametrize("size", [7 * MIB, 16 * MIB])
def test_two_hundred_readers_of_a_cold_object_are_one_request(cached, size):
    """Beyond 8 MiB an origin that is slow, as with two hundred threads beside it, is asked for the
    rest in pieces side by side: no more of them than one reader would ask for."""
    content = content_of(size)
    digest = hashlib.sha256(content).digest()
    arrived = threading.Event()

    def script(request):
        reply = ranged(content, '"a"', request)
        # Most of the crowd comes while it is under way.
        reply.hold, reply.hold_after_bytes = arrived, 3 * MIB
        return reply

    with StubOrigin(script) as origin:
        wire = cached(origin.url)
        threading.Timer(1, arrived.set).start()

        def read(_):
            answer = wire.signed("GET", "/bucket/k")
            return answer.status, hashlib.sha256(answer.body).digest()

        assert set(all_at_once(200, read)) == {(200, digest)}
        whole, *pieces = [seen.headers.get("range") for seen in origin.seen]
        assert whole is None
        assert len(pieces) == len(set(pieces)) <= (4 if size > 8 * MIB else 0), pieces
        count = len(origin.seen)
        for headers in ({}, {"range": "bytes=5000000-5999999"}):
            answer = wire.signed("GET", "/bucket/k", headers=headers)
            assert "forebay; hit" in answer.header("cache-status")
        assert len(origin.seen) == count


def test_readers_of_cold_keys_leave_every_key_in_the_cache(cached):
    """Fifty at once, 2500 keys each of which two of them read."""
    shelf = Shelf()
    for number in range(2500):
        shelf.put(f"{number:04}", content_of(1024, seed=number))
    with StubOrigin(shelf) as origin:
        wire = cached(origin.url)

        def read(reader):
            for step in range(100):
                number = (reader * 50 + step) % 2500
                answer = wire.signed("GET", f"/bucket/{number:04}")
                if (answer.status, answer.body) != (200, content_of(1024, seed=number)):
                    return number, answer.status
            return None

        assert set(all_at_once(50, read)) == {None}
        count = len(origin.seen)
        assert count == 2500, "those who come together are one request"
        for number in range(2500):
            answer = wire.signed("GET", f"/bucket/{number:04}")
            assert answer.header("cache-status") == "forebay; hit", number
        assert len(origin.seen) == count


def test_a_crowd_on_one_cold_key_of_many_is_one_request_for_it(cached):
    shelf = Shelf()
    for number in range(50):
        shelf.put(f"{number}", content_of(100_000, seed=number))
    with StubOrigin(shelf) as origin:
        wire = cached(origin.url)
        for number in range(0, 50, 10):
            expected = (200, content_of(100_000, seed=number))
            answers = all_at_once(50, lambda _, key=number: wire.signed("GET", f"/bucket/{key}"))
            assert {(answer.status, answer.body) for answer in answers} == {expected}
        assert len(origin.seen) == 5


def test_a_reader_of_ranges_in_a_row_finds_them_here(cached):
    """64 MiB in ranges of 256 KiB: 256 reads become a few requests of up to 8 MiB."""
    content = content_of(64 * MIB)
    with StubOrigin(lambda request: ranged(content, '"a"', request)) as origin:
        wire = cached(origin.url)
        step = 256 << 10
        for start in range(0, len(content), step):
            answer = wire.signed(
                "GET", "/bucket/k", headers={"range": f"bytes={start}-{start + step - 1}"}
            )
            assert (answer.status, answer.body) == (206, content[start : start + step])
        asked = [seen.headers["range"] for seen in origin.seen]
        assert len(asked) < 30, asked
        spans = sorted(tuple(map(int, text.removeprefix("bytes=").split("-"))) for text in asked)
        total = sum(min(last + 1, len(content)) - first for first, last in spans)
        assert total == len(content), "no byte is fetched twice"


def test_a_reader_here_and_there_fetches_its_own_pages(cached):
    content = content_of(64 * MIB)
    with StubOrigin(lambda request: ranged(content, '"a"', request)) as origin:
        wire = cached(origin.url)
        places = [number * 7 % 64 for number in range(20)]
        for place in places:
            start = place * MIB + 5000
            answer = wire.signed("GET", "/bucket/k", headers={"range": f"bytes={start}-{start + 99}"})
            assert answer.body == content[start : start + 100]
        asked = [seen.headers["range"] for seen in origin.seen]
        assert asked == [f"bytes={p * MIB}-{(p + 1) * MIB - 1}" for p in places]


@contextlib.contextmanager
def tapped(server, directory, *options):
    """A relay before `server` that counts and slows; yields its URL and a reader of its counts."""
    port, stats_port = servers.free_port(), servers.free_port()
    command = [servers.forebay_binary(), "tap", "--listen", f"127.0.0.1:{port}", "--to",
               f"{server.host}:{server.port}", "--stats", f"127.0.0.1:{stats_port}", *options]
    with (directory / "tap.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)

    def counts():
        with urllib.request.urlopen(f"http://127.0.0.1:{stats_port}/", timeout=10) as response:
            return json.loads(response.read())

    try:
        for each in (port, stats_port):
            servers.wait_until(lambda each=each: servers.is_listening(each), "the tap")
        yield f"http://127.0.0.1:{port}", counts
    finally:
        process.terminate()
        process.wait(20)


def test_a_large_object_behind_a_slow_line_comes_over_several_connections(
    cached, started, tmp_path
):
    service = started("behind")
    direct, content = Wire(service), content_of(40 * MIB)
    direct.signed("PUT", "/slow-line")
    assert direct.signed("PUT", "/slow-line/k", body=content).status == 200
    with tapped(service, tmp_path, "--bandwidth", "16MB") as (url, counts):
        wire = cached(url)
        answer = wire.signed("GET", "/slow-line/k")
        assert (answer.status, answer.body == content) == (200, True)
        cold = counts()
        assert cold["requests"] > 3 and cold["connections"] > 3, cold
        fetched = cold["body_bytes_to_client"]
        assert fetched < len(content) * 1.25, "what the first connection still had on its way"
        assert "hit" in wire.signed("GET", "/slow-line/k").header("cache-status")
        assert counts()["requests"] == cold["requests"]
