"""Two gateways in a row, each with a cache, before an S3 service: outer, inner, origin."""

import json
import re
import subprocess

import pytest

from harness import servers
from harness.clients import AwsCli, boto3_client
from harness.expect import refused
from harness.logs import RequestCount
from harness.origins import Shelf, content_of
from harness.servers import GATEWAY_ROOT, ORIGIN_ROOT
from harness.stub_origin import StubOrigin
from harness.wire import Wire

pytestmark = pytest.mark.skipif(
    not servers.forebay_binary().exists(), reason="needs the built gateway"
)

MIB = 1 << 20
CONFIG = """
[server]
name = "{name}"
[stores.next]
type = "s3"
endpoint = "{url}"
region = "us-east-1"
protocol = "{protocol}"
credentials = "keys"
access_key = "{credentials.access_key}"
secret_key = "{credentials.secret_key}"
[[routes]]
store = "next"
[[routes.layers]]
type = "cache"
memory = "64MiB"
coherence = {coherence}
{more}
"""
LONG = '{ mode = "bounded", ttl = "10m" }'


class Chain:
    """Both gateways, and clients of the outer one."""

    def __init__(self, gateways, origin, outer_more="", outer=LONG, inner=LONG):
        credentials = getattr(origin, "credentials", ORIGIN_ROOT)
        self.inner = gateways(config=CONFIG.format(
            name="inner", url=origin.url, protocol="http1", credentials=credentials,
            coherence=inner, more="",
        ))
        self.outer = gateways(config=CONFIG.format(
            name="outer", url=self.inner.url, protocol="http2", credentials=GATEWAY_ROOT,
            coherence=outer, more=outer_more,
        ))
        self.wire = Wire(self.outer)


def caches(answer):
    """The members of `Cache-Status`: pairs of a cache's name and what it did."""
    text = answer.header("cache-status") or ""
    return [tuple(member.split("; ")[:2]) for member in text.split(", ") if member]


@pytest.fixture
def service(started):
    """versitygw, shared by the tests of this run."""
    return started("behind")


@pytest.fixture
def chain(gateways, service):
    return Chain(gateways, service)


@pytest.fixture
def bucket(chain, request):
    name = "chain-" + re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[-50:].strip("-")
    boto3_client(chain.outer).create_bucket(Bucket=name)
    return name


def test_a_chain_serves_every_client_operation(chain, service, bucket, tmp_path):
    """Small and large objects, multipart, ranges, HEAD, conditions, listings, copies, deletes."""
    s3, direct = boto3_client(chain.outer), boto3_client(service)
    large = content_of(18 * MIB)
    s3.put_object(Bucket=bucket, Key="dir/small", Body=b"small", Metadata={"colour": "blue"})
    source = tmp_path / "large"
    source.write_bytes(large)
    s3.upload_file(str(source), bucket, "large")
    assert "-" in s3.head_object(Bucket=bucket, Key="large")["ETag"], "meant to be in parts"
    s3.copy_object(Bucket=bucket, Key="dir/copy", CopySource=f"{bucket}/dir/small")
    for _ in range(2):
        small = s3.get_object(Bucket=bucket, Key="dir/small")
        assert (small["Body"].read(), small["Metadata"]) == (b"small", {"colour": "blue"})
        assert s3.get_object(Bucket=bucket, Key="large")["Body"].read() == large
        part = s3.get_object(Bucket=bucket, Key="large", Range="bytes=9437180-9437190")
        assert part["Body"].read() == large[9437180:9437191]
        etag = s3.head_object(Bucket=bucket, Key="large")["ETag"]
        assert etag == direct.head_object(Bucket=bucket, Key="large")["ETag"]
        with refused(304, "304"):
            s3.get_object(Bucket=bucket, Key="large", IfNoneMatch=etag)
        with refused(412, "PreconditionFailed"):
            s3.get_object(Bucket=bucket, Key="large", IfMatch='"other"')
        listed = s3.list_objects_v2(Bucket=bucket, Delimiter="/")
        assert [entry["Key"] for entry in listed["Contents"]] == ["large"]
        assert [entry["Prefix"] for entry in listed["CommonPrefixes"]] == ["dir/"]
    target = tmp_path / "again"
    aws = AwsCli(chain.outer, tmp_path)
    aws("s3", "cp", f"s3://{bucket}/large", target)
    assert target.read_bytes() == large
    assert [entry["Key"] for entry in json.loads(
        aws("s3api", "list-objects-v2", "--bucket", bucket).stdout
    )["Contents"]] == ["dir/copy", "dir/small", "large"]
    s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "large"}, {"Key": "dir/copy"}]})
    with refused(404, "NoSuchKey"):
        s3.get_object(Bucket=bucket, Key="large")


def test_a_write_through_the_outer_gateway_shows_at_once_in_both(chain, bucket):
    outer, inner = Wire(chain.outer), Wire(chain.inner)
    path = f"/{bucket}/k"
    for content in (b"one", b"two", b"three" * 500_000):
        assert outer.signed("PUT", path, body=content).status == 200
        for _ in range(2):
            assert outer.signed("GET", path).body == content
            assert inner.signed("GET", path).body == content
    assert outer.signed("DELETE", path).status == 204
    assert [wire.signed("GET", path).code for wire in (outer, inner)] == ["NoSuchKey"] * 2


def test_a_hit_of_the_outer_gateway_asks_nobody_and_one_of_the_inner_no_origin(gateways):
    """And `Cache-Status` names who was asked, the cache nearest the origin first."""
    shelf = Shelf()
    shelf.put("k", b"content")
    with StubOrigin(shelf) as origin:
        chain = Chain(gateways, origin)
        for expected in ([("inner", "fwd=uri-miss"), ("outer", "fwd=uri-miss")], [("outer", "hit")]):
            answer = chain.wire.signed("GET", "/bucket/k")
            assert (answer.body, caches(answer)) == (b"content", expected)
            assert len(origin.seen) == 1
        inner = Wire(chain.inner)
        assert inner.signed("PUT", "/bucket/k", body=b"other").status == 200
        inner.signed("GET", "/bucket/k")
        count = len(origin.seen)
        answer = chain.wire.signed("GET", "/bucket/k", headers={"range": "bytes=0-3"})
        assert answer.body == b"cont", "the outer cache can't know of writes past it"
        answer = chain.wire.signed("HEAD", "/bucket/k", headers={"cache-control": "no-cache"})
        assert caches(answer) == [("inner", "fwd=request"), ("outer", "fwd=request")]
        assert len(origin.seen) == count + 1


def test_no_cache_from_a_client_gets_past_both_caches(chain, service, bucket):
    direct, path = Wire(service), f"/{bucket}/k"
    for number, method in enumerate(("GET", "HEAD")):
        old, new = b"old" * (number + 1), b"newer" * (number + 1)
        direct.signed("PUT", path, body=old)
        chain.wire.signed("GET", path, headers={"cache-control": "no-cache"})
        direct.signed("PUT", path, body=new)
        assert chain.wire.signed("GET", path).body == old
        requests = RequestCount(service)
        answer = chain.wire.signed(method, path, headers={"cache-control": "no-cache"})
        assert answer.header("content-length") == str(len(new))
        # The service may log late what came before.
        assert requests.since_start() >= 1
        assert chain.wire.signed("GET", path).body == new
    directed = {"cache-control": "no-cache"}
    listing = [("list-type", "2")]
    chain.wire.signed("GET", f"/{bucket}", listing)
    direct.signed("PUT", path + "2", body=b"x")
    answer = chain.wire.signed("GET", f"/{bucket}", listing, headers=directed)
    assert b"<Key>k2</Key>" in answer.body


def test_conditions_and_ranges_are_judged_by_the_outer_cache_alone(gateways):
    path, content, shelf = "/bucket/k", content_of(3 * MIB), Shelf()
    shelf.put("k", content)
    with StubOrigin(shelf) as origin:
        chain = Chain(gateways, origin)
        etag = chain.wire.signed("GET", path).header("etag")
        judge_by_the_outer_cache(chain, path, content, etag)
        assert len(origin.seen) == 1


def judge_by_the_outer_cache(chain, path, content, etag):
    """Answers and refusals that take no more than what the outer cache has."""
    for headers, expected in (
        ({"if-none-match": etag}, (304, b"")),
        ({"if-match": etag, "range": "bytes=5-9"}, (206, content[5:10])),
        ({"range": "bytes=-7"}, (206, content[-7:])),
        ({"if-none-match": '"other"'}, (200, content)),
    ):
        answer = chain.wire.signed("GET", path, headers=headers)
        assert (answer.status, answer.body) == expected
        assert [name for name, _ in caches(answer)] == ["outer"], headers
    for headers, code in (
        ({"if-match": '"other"'}, "PreconditionFailed"), ({"range": "bytes=9999999-"}, "InvalidRange"),
    ):
        assert chain.wire.signed("GET", path, headers=headers).code == code


def test_ages_add_up_and_a_ttl_counts_from_the_origin(gateways):
    """The outer gateway first hears of an object when the inner one has had it for a while."""
    shelf = Shelf()
    shelf.put("k", b"content")
    with StubOrigin(shelf) as origin:
        chain = Chain(gateways, origin, outer=LONG, inner=LONG)
        inner = Wire(chain.inner)
        inner.signed("GET", "/bucket/k")

        def age_of(wire):
            return int(wire.signed("GET", "/bucket/k").header("age") or 0)

        servers.wait_until(lambda: age_of(inner) >= 2, "an age of two seconds")
        first = chain.wire.signed("GET", "/bucket/k")
        assert caches(first) == [("inner", "hit"), ("outer", "fwd=uri-miss")]
        assert int(first.header("age")) >= 2
        hit = chain.wire.signed("GET", "/bucket/k")
        assert caches(hit) == [("outer", "hit")]
        assert int(hit.header("age")) >= 2
        left = int(re.search(r"ttl=(\d+)", hit.header("cache-status"))[1])
        assert left <= 598, "ten minutes less what it was old when it came"
        assert len(origin.seen) == 1


def test_a_stale_copy_is_validated_from_cache_to_cache_without_a_body(gateways):
    shelf = Shelf()
    shelf.put("k", content_of(2 * MIB))
    with StubOrigin(shelf) as origin:
        chain = Chain(gateways, origin, outer='{ mode = "strict" }', inner='{ mode = "strict" }')
        for _ in range(3):
            assert chain.wire.signed("GET", "/bucket/k").body == shelf.objects["/bucket/k"]
        asked = [seen.headers.get("if-none-match") for seen in origin.seen]
        assert asked == [None, shelf.etag("k"), shelf.etag("k")]
        shelf.put("k", content_of(2 * MIB, seed=9))
        assert chain.wire.signed("GET", "/bucket/k").body == shelf.objects["/bucket/k"]


def test_a_name_is_a_token(tmp_path):
    for name, code in (("edge-1", 0), ("my cache", 64), ("", 64), ("x" * 64, 64)):
        file = tmp_path / "named.toml"
        file.write_text(f'[server]\nname = "{name}"\n')
        done = subprocess.run(
            [servers.forebay_binary(), "config", "check", "--config", file],
            env=servers.plain_environment(), capture_output=True, text=True, timeout=20,
        )
        assert done.returncode == code, (name, done.stderr)
        assert code == 0 or "server.name" in done.stderr
