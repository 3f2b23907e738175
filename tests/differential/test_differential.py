"""The gateway is transparent: the same request, direct and through it, has the same answer."""

import re
import uuid

import pytest

from harness import sigv4
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
    assert send(wire, case, through) == send(direct, case, plain)
    assert state_of(direct, through) == state_of(direct, plain)
    for key in OBJECTS:  # What the gateway now serves is what the origin has.
        path = sigv4.path_of(through, key)
        served, stored = wire.signed("GET", path), direct.signed("GET", path)
        assert comparable(served, through) == comparable(stored, through)
