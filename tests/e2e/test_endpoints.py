"""Several endpoints that share their data, as one origin: here versitygw twice or more over one
directory."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import servers
from harness.admin import admin, endpoints, run_admin
from harness.clients import boto3_client
from harness.metrics import metric
from harness.servers import ORIGIN_ROOT

pytestmark = pytest.mark.skipif(
    not servers.forebay_binary().exists(), reason="needs the built gateway"
)

BUCKET = "bucket"
THREADS = 16
CONFIG = """
[stores.origin]
type = "s3"
endpoints = [{endpoints}]
region = "us-east-1"
health = {{ ejection = "200ms", ejection_max = "1s", probe_timeout = "500ms" }}
{more}
[[routes]]
store = "origin"
"""


class Site:
    """A gateway without a cache before several servers over one directory."""

    def __init__(self, gateways, directory):
        self.gateways, self.directory = gateways, directory
        self.data = directory / "shared"
        self.servers = []

    def start(self, port=None):
        """Starts one more server, or the one that was on this port again."""
        number = len(self.servers)
        place = self.directory / f"endpoint-{number}"
        place.mkdir()
        server = servers.start_versitygw(place, port=port, data=self.data)
        self.servers.append(server)
        return server

    def open(self, count, more="", others=()):
        for _ in range(count):
            self.start()
        boto3_client(self.servers[0]).create_bucket(Bucket=BUCKET)
        names = [server.url for server in self.servers] + list(others)
        quoted = ", ".join(f'"{name}"' for name in names)
        self.gateway = self.gateways(config=CONFIG.format(endpoints=quoted, more=more))
        # Without retries: no error is hidden from the test.
        return boto3_client(
            self.gateway, max_pool_connections=THREADS, retries={"total_max_attempts": 1}
        )


@pytest.fixture
def site(gateways, tmp_path):
    site = Site(gateways, tmp_path)
    yield site
    for server in site.servers:
        server.kill()


def load(client, count, at=None):
    """Writes and reads back objects with many threads; `at` maps numbers to what happens then."""

    def one(number):
        if at and number in at:
            at[number]()
        key, body = f"load/{number:05}", b"%d" % number
        client.put_object(Bucket=BUCKET, Key=key, Body=body)
        assert client.get_object(Bucket=BUCKET, Key=key)["Body"].read() == body

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(one, range(count)))


def test_all_endpoints_are_used(site):
    client = site.open(3)
    load(client, 300)
    found = endpoints(site.gateway)
    assert set(found) == {server.url for server in site.servers}
    for name, endpoint in found.items():
        assert endpoint["state"] in ("up", "slow-start"), found
        assert endpoint["requests"] > 600 / 3 / 4, (name, found)


def test_writes_under_way_at_an_endpoint_that_is_killed_are_no_error(site):
    """Their outcome is unknown; it is looked up before they are repeated."""
    client = site.open(3)
    load(client, 600, at={200: site.servers[1].kill})


def test_an_endpoint_that_is_killed_under_load_is_no_error_of_any_read_and_is_used_again(site):
    client = site.open(3)
    victim = site.servers[1]
    bodies = {f"{number:03}": b"%d" % number * 1000 for number in range(50)}
    for key, body in bodies.items():
        client.put_object(Bucket=BUCKET, Key=key, Body=body)

    def read(number):
        if number == 500:
            victim.kill()
        key = f"{number % 50:03}"
        assert client.get_object(Bucket=BUCKET, Key=key)["Body"].read() == bodies[key]

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(read, range(1500)))

    def is_out():
        client.head_object(Bucket=BUCKET, Key="001")
        return endpoints(site.gateway)[victim.url]["state"] in ("ejected", "probing")

    servers.wait_until(is_out, "the endpoint to be left out")
    again = site.start(port=victim.port)
    assert again.url == victim.url

    def is_back():
        # A probe lets one request through, and its answer all others.
        client.head_object(Bucket=BUCKET, Key="001")
        return endpoints(site.gateway)[victim.url]["state"] in ("up", "slow-start")

    servers.wait_until(is_back, "the endpoint to be used again")
    before = endpoints(site.gateway)[victim.url]["requests"]

    def is_asked():
        client.head_object(Bucket=BUCKET, Key="001")
        return endpoints(site.gateway)[victim.url]["requests"] > before

    servers.wait_until(is_asked, "requests at the endpoint that is back")


def test_an_operator_ejects_and_restores_an_endpoint(site):
    client = site.open(2)
    load(client, 50)
    one, other = (server.url for server in site.servers)
    [ejected] = admin(site.gateway, "origin", "eject", "origin", one)["origins"]
    states = {found["endpoint"]: found["state"] for found in ejected["endpoints"]}
    assert states[one] == "held-out" and states[other] != "held-out"
    before = endpoints(site.gateway)
    load(client, 100)
    after = endpoints(site.gateway)
    assert after[one]["requests"] == before[one]["requests"]
    assert after[other]["requests"] >= before[other]["requests"] + 200
    admin(site.gateway, "origin", "restore", "origin", one)

    def is_used():
        client.head_object(Bucket=BUCKET, Key="load/00001")
        return endpoints(site.gateway)[one]["requests"] > after[one]["requests"]

    servers.wait_until(is_used, "the endpoint to be used again")


def test_a_drain_lets_what_is_under_way_finish_and_then_ends(site):
    client = site.open(2)
    body = b"x" * (4 << 20)
    client.put_object(Bucket=BUCKET, Key="large", Body=body)
    stop, errors = threading.Event(), []

    def read():
        reader = boto3_client(site.gateway)
        while not stop.is_set():
            try:
                assert reader.get_object(Bucket=BUCKET, Key="large")["Body"].read() == body
            except Exception as error:  # Whatever it is, it is told.
                errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        one = site.servers[0].url
        job = admin(site.gateway, "origin", "drain", "origin", one, "--wait")
        assert (job["kind"], job["state"]) == ("origin drain", "done")
        found = endpoints(site.gateway)[one]
        assert (found["state"], found["in_flight"]) == ("draining", 0)
        # Nobody needs it any more.
        site.servers[0].kill()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors
    load(client, 20)


def test_an_unknown_endpoint_or_store_is_told(site):
    site.open(1)
    for words in (
        ("eject", "origin", "http://nowhere:1"),
        ("eject", "nothing", site.servers[0].url),
        ("drain", "origin", "http://nowhere:1"),
        ("status", "nothing"),
    ):
        done = run_admin(site.gateway, "origin", *words)
        assert done.returncode == 1, done
        assert "nowhere" in done.stderr or "nothing" in done.stderr, done


def test_a_name_that_does_not_resolve_is_not_fatal(site):
    """One of several endpoints, at the start: the others serve, and it is told."""
    client = site.open(1, others=["http://nowhere.invalid:9000"])
    load(client, 50)
    assert metric(site.gateway, "forebay_origin_requests_total", outcome="success") >= 100


def test_a_gateway_whose_only_origin_does_not_resolve_starts_and_says_503(gateways):
    gateway = gateways(
        config=CONFIG.format(endpoints='"http://nowhere.invalid:9000"', more="")
    )
    client = boto3_client(gateway)
    with pytest.raises(client.exceptions.ClientError) as refused:
        client.list_buckets()
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503


def test_origin_flags_make_one_origin_of_several_endpoints(site, tmp_path):
    one, other = site.start(), site.start()
    boto3_client(one).create_bucket(Bucket=BUCKET)
    gateway = servers.start_forebay(tmp_path / "flags", origin=[one.url, other.url])
    try:
        load(boto3_client(gateway, max_pool_connections=THREADS), 50)
        assert set(endpoints(gateway)) == {one.url, other.url}
    finally:
        assert gateway.stop() == 0
    assert ORIGIN_ROOT.access_key not in gateway.log.read_text()
