"""The whole origin is gone: what still works, how fast the rest is told, and that it passes."""

import contextlib
import socket
import threading
import time
import urllib.request

import pytest
from botocore.exceptions import ClientError

from harness import servers
from harness.admin import endpoints
from harness.clients import boto3_client
from harness.expect import refused
from harness.metrics import metric

pytestmark = pytest.mark.skipif(
    not servers.forebay_binary().exists(), reason="needs the built gateway"
)

BUCKET = "bucket"
# Far more than an answer of a breaker takes, far less than the time to wait for a dead origin.
AT_ONCE_SECONDS = 1.0
REFUSED_COUNT = 50
# In the time of these, at 300 ms each.
PROBES_MAX = 10
CONFIG = """
[stores.origin]
type = "s3"
endpoint = "{origin}"
region = "us-east-1"
timeouts = {{ connect = "2s", first_byte = "5s", attempt = "6s" }}
health = {{ failures_max = 3, ejection = "300ms", ejection_max = "1s", probe_timeout = "300ms" }}

[stores.hot]
type = "log"
path = "{hot}"

[[routes]]
store = "origin"

[[routes.layers]]
type = "cache"
memory = "64MiB"
coherence = {{ mode = "bounded", ttl = "1s", stale_if_error = "1h" }}

[[routes.layers.rules]]
prefix = "forever/"
coherence = {{ mode = "immutable" }}

[[routes.layers.rules]]
prefix = "brief/"
coherence = {{ mode = "bounded", ttl = "1s" }}

[[routes.layers]]
type = "tier"
hot = "hot"
max_object_size = "64KiB"
demote_after = "0s"
"""


class Site:
    """A gateway with a cache and a tier, before an origin that can end and come back."""

    def __init__(self, gateways, directory):
        self.directory = directory
        self.port = servers.free_port()
        self.start_origin()
        boto3_client(self.origin).create_bucket(Bucket=BUCKET)
        config = CONFIG.format(origin=self.origin.url, hot=directory / "hot")
        self.gateway = gateways(config=config)
        # Without retries, whose pauses would be taken for the gateway's.
        self.s3 = boto3_client(self.gateway, retries={"total_max_attempts": 1})
        # The tier takes small objects in buckets that it knows.
        self.s3.put_object(Bucket=BUCKET, Key="first", Body=b"x")

    def start_origin(self):
        self.origin = servers.start_versitygw(self.directory, port=self.port)

    def read(self, key):
        answer = self.s3.get_object(Bucket=BUCKET, Key=key)
        status = answer["ResponseMetadata"]["HTTPHeaders"]["cache-status"]
        return answer["Body"].read(), status

    def has_moved_all(self):
        return metric(self.gateway, "forebay_tier_dirty_objects") == 0

    def attempts(self):
        """How often the gateway has tried to reach its origin."""
        return metric(self.gateway, "forebay_origin_endpoint_attempts_total")


@pytest.fixture
def site(gateways, tmp_path):
    site = Site(gateways, tmp_path)
    yield site
    site.origin.kill()


def is_refused(site, key):
    """Whether a read is answered 503; any other failure is one of the test."""
    try:
        site.read(key)
    except ClientError as error:
        response = error.response
        got = (response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"])
        assert got == (503, "ServiceUnavailable"), response
        return True
    return False


def eventually_refused(site, key):
    """Reads until the gateway has learned that its origin is gone."""

    def is_known():
        assert is_refused(site, key)
        return all(found["state"] == "ejected" for found in endpoints(site.gateway).values())

    servers.wait_until(is_known, "the origin to be known to be gone")


def test_what_is_cached_is_served_and_small_writes_go_on_while_the_origin_is_gone(site):
    large = b"x" * (1 << 20)
    for key in ("kept", "forever/kept", "brief/kept", "cold"):
        # Beyond the tier's size, so that they are in the origin alone.
        site.s3.put_object(Bucket=BUCKET, Key=key, Body=large)
    for key in ("kept", "forever/kept", "brief/kept"):
        servers.wait_until(lambda key=key: "; hit" in site.read(key)[1], f"{key} to be kept")
    site.origin.kill()
    eventually_refused(site, "cold")

    assert site.read("forever/kept")[0] == large
    servers.wait_until(
        lambda: metric(site.gateway, "forebay_cache_stale_if_error_total") > 0
        or site.read("kept") is None,
        "the kept object to be stale",
    )
    body, _ = site.read("kept")
    assert body == large
    # Once it is stale, and not before.
    servers.wait_until(lambda: is_refused(site, "brief/kept"), "what is not to be given stale")

    for number in range(20):
        answer = site.s3.put_object(Bucket=BUCKET, Key=f"small/{number}", Body=b"%d" % number)
        assert answer["ResponseMetadata"]["HTTPHeaders"]["x-forebay-durability"] == "hot-local"
        assert site.read(f"small/{number}")[0] == b"%d" % number
    with refused(503, "ServiceUnavailable"):
        site.s3.put_object(Bucket=BUCKET, Key="large", Body=large)

    # Cached content is served, so a load balancer has no reason to go elsewhere.
    with urllib.request.urlopen(site.gateway.admin_url + "/health/ready") as answer:
        assert answer.status == 200

    site.start_origin()
    servers.wait_until(lambda: site.has_moved_all(), "small objects to reach the origin")
    assert site.read("cold")[0] == large and site.read("brief/kept")[0] == large
    site.s3.put_object(Bucket=BUCKET, Key="large", Body=large)
    direct = boto3_client(site.origin)
    got = direct.get_object(Bucket=BUCKET, Key="small/7")["Body"].read()
    assert got == b"7"
    for found in endpoints(site.gateway).values():
        assert found["state"] in ("up", "slow-start")


def test_while_the_origin_is_gone_requests_are_refused_without_asking_it(site):
    """Refused by the breaker: fifty reads cost the origin a few probes, not an attempt each."""
    site.origin.kill()
    eventually_refused(site, "cold")
    before, begun = site.attempts(), time.monotonic()
    for number in range(REFUSED_COUNT):
        with refused(503, "ServiceUnavailable"):
            site.read(f"cold/{number}")
    took = time.monotonic() - begun
    assert site.attempts() - before <= PROBES_MAX
    assert took < AT_ONCE_SECONDS * REFUSED_COUNT / 5


def test_an_origin_that_is_silent_is_left_out_and_comes_back_by_itself(gateways, tmp_path):
    """An address that takes connections and never answers, and then an origin there."""
    port = servers.free_port()
    held = []
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(64)

        def take():
            with contextlib.suppress(OSError):
                while True:
                    held.append(listener.accept()[0])

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        config = f"""
[stores.origin]
type = "s3"
endpoint = "http://127.0.0.1:{port}"
region = "us-east-1"
timeouts = {{ connect = "200ms", first_byte = "200ms", attempt = "300ms" }}
health = {{ failures_max = 2, ejection = "100ms", ejection_max = "500ms", probe_timeout = "100ms" }}
[[routes]]
store = "origin"
"""
        gateway = gateways(config=config)
        s3 = boto3_client(gateway)

        def is_out():
            with contextlib.suppress(ClientError):
                s3.list_buckets()
            return all(found["state"] != "up" for found in endpoints(gateway).values())

        servers.wait_until(is_out, "the silent origin to be left out")
        listener.shutdown(socket.SHUT_RDWR)
    for connection in held:
        connection.close()
    origin = servers.start_versitygw(tmp_path, port=port)

    def is_back():
        try:
            s3.list_buckets()
        except ClientError:
            return False
        return True

    servers.wait_until(is_back, "the origin to be used again")
    origin.stop()
