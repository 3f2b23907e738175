"""The gateway is transparent: the same request, direct and through it, has the same answer."""

import re
import uuid

import pytest

from harness import servers, sigv4
from harness.logs import LogWatch
from harness.wire import Wire

from .cases import OBJECTS, READS, WRITES

# What may differ, and why.
HEADERS_IGNORED = {
    "date",  # each server's own clock
    "server",  # each server's own name
    "x-amz-request-id",  # each request's own
    "x-amz-id-2",
    "via",  # RFC 9110 §7.6.3: added by a gateway
    "connection",  # hop by hop, RFC 9110 §7.6.1
    "keep-alive",
    "transfer-encoding",
    "age",  # added by a cache, RFC 9111 §5.1
    "cache-status",  # added by a cache, RFC 9211
}
# Per request or per upload inside XML.
XML_IGNORED = re.compile(
    rb"<(RequestId|HostId|UploadId)>[^<]*</\1>|<(LastModified|CreationDate)>[^<]*</\2>"
)
# A 304 and a 204 carry no content, so what their length says is nobody's business.
NO_CONTENT = (204, 304)

# Pages so small that an object of some MiB is many, each of which may be here or not.
SMALL_PAGES = """
[stores.origin]
type = "s3"
endpoint = "{origin.url}"
region = "us-east-1"
[[routes]]
store = "origin"
layers = [{{ type = "cache", memory = "256MiB", page = "64KiB" }}]
"""
# What is read of each object before a case, so that it is half here. By ranges: some pages of the
# large one, and of all of them what a range tells, without checksums. By heads: records alone.
HALVES = {
    "ranges": [("GET", "bytes=0-0"), ("GET", "bytes=70000-80000"), ("GET", "bytes=1048000-1050000"),
               ("GET", "bytes=-1")],
    "heads": [("HEAD", None)],
}

pytestmark = pytest.mark.targets("origin", "versitygw")


def verdict(answer):
    """What must be equal of a refusal that the gateway words by itself."""
    return {"status": answer.status, "code": answer.code}


def comparable(answer, bucket):
    """What must be equal of an answer, with the bucket's name made neutral."""
    ignored = set(HEADERS_IGNORED)
    if answer.status in NO_CONTENT:
        ignored |= {"content-length", "content-type"}
    headers = sorted(
        (name.lower(), value.replace(bucket, "BUCKET"))
        for name, value in answer.headers
        if name.lower() not in ignored
    )
    body = XML_IGNORED.sub(b"", answer.body.replace(bucket.encode(), b"BUCKET"))
    return {"status": answer.status, "headers": headers, "body": body}


def send(wire, case, bucket):
    """Sends a case to `bucket`, unless the case names another."""
    bucket = case.bucket or bucket
    headers = {name: value.replace("{bucket}", bucket) for name, value in case.headers.items()}
    path = sigv4.path_of(bucket, case.key)
    answer = wire.signed(case.method, path, case.query, headers, case.body)
    return verdict(answer) if case.is_judged else comparable(answer, bucket)


@pytest.fixture
def direct(request, started, server):
    """The origin itself."""
    return Wire(started("behind") if server.is_gateway else server)


@pytest.fixture(scope="session")
def small_pages(started, tmp_path_factory):
    """A gateway before the origin whose cache has small pages; started at first use."""
    running = []

    def get():
        if not running:
            config = SMALL_PAGES.format(origin=started("behind"))
            directory = tmp_path_factory.mktemp("small-pages")
            running.append(servers.start_forebay(directory, config=config))
        return running[0]

    yield get
    for gateway in running:
        assert gateway.stop() == 0


@pytest.fixture
def halving(server, small_pages):
    """Clients of that gateway, or of the server itself where no gateway is tested."""
    gateway = small_pages() if server.is_gateway else server
    watch = LogWatch(gateway)
    yield Wire(gateway)
    assert watch.loud_lines() == []


def halve(wire, bucket, how):
    """Has the gateway read a part of every object."""
    for key, (content, _) in OBJECTS.items():
        for method, text in HALVES[how]:
            headers = {"range": text} if text else {}
            answer = wire.signed(method, sigv4.path_of(bucket, key), headers=headers)
            may_refuse = text and len(content) < 1_050_000
            assert answer.status in (200, 206) or (may_refuse and answer.status == 416)


def prepared_bucket(direct):
    """A bucket at the origin with OBJECTS in it, of which the gateway knows nothing."""
    bucket = f"diff-{uuid.uuid4().hex[:12]}"
    assert direct.signed("PUT", f"/{bucket}").status == 200
    for key, (content, headers) in OBJECTS.items():
        path = sigv4.path_of(bucket, key)
        assert direct.signed("PUT", path, headers=headers, body=content).status == 200
    return bucket


@pytest.mark.parametrize("case", READS, ids=lambda case: case.name)
def test_a_read_is_the_same_direct_cold_and_warm(direct, wire, case):
    bucket = prepared_bucket(direct)
    expected = send(direct, case, bucket)
    assert send(wire, case, bucket) == expected, "cold"
    assert send(wire, case, bucket) == expected, "again"
    # Warm whatever the case itself may have left out: all whole objects are in the cache now.
    for key in OBJECTS:
        assert wire.signed("GET", sigv4.path_of(bucket, key)).body == OBJECTS[key][0]
    assert send(wire, case, bucket) == expected, "warm"


@pytest.mark.parametrize("how", HALVES)
@pytest.mark.parametrize("case", READS, ids=lambda case: case.name)
def test_a_read_is_the_same_when_objects_are_half_here(direct, halving, case, how):
    bucket = prepared_bucket(direct)
    expected = send(direct, case, bucket)
    halve(halving, bucket, how)
    assert send(halving, case, bucket) == expected, "half"
    assert send(halving, case, bucket) == expected, "again"


@pytest.mark.targets("origin")
def test_objects_that_are_half_here_are(direct, halving):
    """What the cases above stand on: some of the large object is here, and some is fetched."""
    bucket = prepared_bucket(direct)
    halve(halving, bucket, "ranges")
    answers = {
        text: halving.signed("GET", f"/{bucket}/large", headers={"range": text})
        for text in ("bytes=70000-80000", "bytes=200000-200009", "bytes=0-")
    }
    statuses = [answer.header("cache-status") for answer in answers.values()]
    assert ["hit" in statuses[0], *("fwd=partial" in status for status in statuses[1:])] == [True] * 3


def state_of(direct, bucket):
    """All keys of a bucket with their answers, read at the origin."""
    listing = direct.signed("GET", f"/{bucket}", [("list-type", "2")])
    keys = sorted(set(OBJECTS) | {"new", "new/ü +%2F", "none", "k"})
    state = {"listing": comparable(listing, bucket)["body"]}
    for key in keys:
        answer = direct.signed("GET", sigv4.path_of(bucket, key))
        answer.headers = [pair for pair in answer.headers if pair[0].lower() != "last-modified"]
        tags = direct.signed("GET", sigv4.path_of(bucket, key), [("tagging", "")])
        state[key] = (comparable(answer, bucket), comparable(tags, bucket)["body"])
    return state


@pytest.mark.parametrize("case", WRITES, ids=lambda case: case.name)
def test_a_write_leaves_the_same_behind_direct_and_through(direct, wire, case):
    plain, through = prepared_bucket(direct), prepared_bucket(direct)
    compare_write(direct, wire, case, plain, through)


@pytest.mark.parametrize("how", HALVES)
@pytest.mark.parametrize("case", WRITES, ids=lambda case: case.name)
def test_a_write_leaves_the_same_behind_when_objects_are_half_here(direct, halving, case, how):
    plain, through = prepared_bucket(direct), prepared_bucket(direct)
    halve(halving, through, how)
    compare_write(direct, halving, case, plain, through)


def compare_write(direct, wire, case, plain, through):
    """Sends a write to both buckets, and holds against each other what it left behind."""
    assert send(wire, case, through) == send(direct, case, plain)
    assert state_of(direct, through) == state_of(direct, plain)
    for key in OBJECTS:  # What the gateway now serves is what the origin has.
        path = sigv4.path_of(through, key)
        served, stored = wire.signed("GET", path), direct.signed("GET", path)
        assert comparable(served, through) == comparable(stored, through)
