"""A mirror of three plain S3 servers that share nothing: no error while one is gone, no acknowledged
write lost, no deleted object back, and all three equal in the end."""

import signal
import subprocess
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from harness import servers
from harness.admin import admin, members
from harness.clients import boto3_client

pytestmark = pytest.mark.skipif(
    not servers.forebay_binary().exists(), reason="needs the built gateway"
)

BUCKET = "bucket"
NAMES = ("a", "b", "c")
THREADS = 16
COUNT = 200
REPAIR_SECONDS = 60
CONFIG = """
[stores.journal]
{journal}

[stores.mirror]
type = "mirror"
stores = ["a", "b", "c"]
journal = "journal"
retry_interval = "200ms"
attempt_timeout = "5s"

[[routes]]
store = "mirror"
"""
MEMBER = """
[stores.{name}]
type = "s3"
endpoint = "{url}"
region = "us-east-1"
timeouts = {{ connect = "1s" }}
health = {{ ejection = "100ms", ejection_max = "500ms", probe_timeout = "500ms" }}
"""


class Site:
    """A gateway with a mirror, and three servers that can end and come back."""

    def __init__(self, gateways, directory, journal=None):
        self.gateways, self.directory = gateways, directory
        self.journal = journal or f'type = "log"\npath = "{directory / "journal"}"'
        self.ports = {name: servers.free_port() for name in NAMES}
        self.servers = {}
        for name in NAMES:
            self.start(name)
        self.open()
        self.s3.create_bucket(Bucket=BUCKET)

    def start(self, name):
        """Starts a member, with what it had."""
        place = self.directory / f"member-{name}"
        place.mkdir(exist_ok=True)
        self.servers[name] = servers.start_versitygw(place, port=self.ports[name])

    def open(self):
        """Starts the gateway, again on the same journal."""
        config = CONFIG.format(journal=self.journal)
        config += "".join(
            MEMBER.format(name=name, url=f"http://127.0.0.1:{self.ports[name]}") for name in NAMES
        )
        self.gateway = self.gateways(config=config)
        # Without retries: no error is hidden from the test.
        self.s3 = boto3_client(
            self.gateway, max_pool_connections=THREADS, retries={"total_max_attempts": 1}
        )

    def kill(self, name):
        self.servers[name].kill()

    def content(self, name):
        """What a member has, asked directly: keys and tags."""
        client = boto3_client(self.servers[name])
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return {item["Key"]: item["ETag"] for page in pages for item in page.get("Contents", [])}

    def states(self):
        return {name: found["state"] for name, found in members(self.gateway).items()}

    def wait_until_equal(self):
        servers.wait_until(
            lambda: set(self.states().values()) == {"up"}, "all members to be up", REPAIR_SECONDS
        )
        first = self.content("a")
        assert self.content("b") == first and self.content("c") == first
        return first


@pytest.fixture
def site(gateways, tmp_path):
    site = Site(gateways, tmp_path)
    yield site
    for server in site.servers.values():
        server.kill()


def body_of(number):
    return b"%d" % number * 100


def key_of(number):
    return f"load/{number:05}"


def write_all(site, numbers, at=None):
    """Writes with many threads; `at` maps numbers to what happens then."""

    def write(number):
        if at and number in at:
            at[number]()
        site.s3.put_object(Bucket=BUCKET, Key=key_of(number), Body=body_of(number))

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(write, numbers))


def read_all(site, numbers, client=None):
    client = client or site.s3

    def read(number):
        body = client.get_object(Bucket=BUCKET, Key=key_of(number))["Body"].read()
        assert body == body_of(number), number

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(read, numbers))


def keys_of(client):
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    return [item["Key"] for page in pages for item in page.get("Contents", [])]


def test_a_write_is_in_all_members(site):
    write_all(site, range(20))
    found = site.wait_until_equal()
    assert sorted(found) == [key_of(number) for number in range(20)]
    for name in NAMES:
        client = boto3_client(site.servers[name])
        got = client.get_object(Bucket=BUCKET, Key=key_of(7))["Body"].read()
        assert got == body_of(7)


def test_a_member_that_is_killed_under_load_is_no_error_and_is_brought_back(site):
    """Goal: the first half of what the mirror is for.
    Method: 200 writes by 16 threads, one member killed at the 80th, overwrites and deletes while
    it is gone; then it returns, and is compared with the others directly."""
    write_all(site, range(COUNT), at={80: lambda: site.kill("b")})
    read_all(site, range(COUNT))
    assert keys_of(site.s3) == [key_of(number) for number in range(COUNT)]
    gone = range(0, 40)
    for number in gone:
        site.s3.delete_object(Bucket=BUCKET, Key=key_of(number))
    site.s3.put_object(Bucket=BUCKET, Key=key_of(50), Body=b"newer")
    servers.wait_until(lambda: site.states()["b"] == "down", "the member to be known to be gone")
    assert members(site.gateway)["b"]["pending_keys"] > 0

    site.start("b")
    found = site.wait_until_equal()
    assert sorted(found) == [key_of(number) for number in range(40, COUNT)]
    assert keys_of(site.s3) == sorted(found)
    for name in NAMES:
        client = boto3_client(site.servers[name])
        assert client.get_object(Bucket=BUCKET, Key=key_of(50))["Body"].read() == b"newer"
    for number in gone:
        with pytest.raises(ClientError) as raised:
            site.s3.head_object(Bucket=BUCKET, Key=key_of(number))
        assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404
    assert members(site.gateway)["b"]["pending_keys"] == 0


def test_a_member_is_behind_before_it_is_up_again(site):
    """Reads and listings are right in all of that time, whichever member they are asked of."""
    write_all(site, range(50))
    site.wait_until_equal()
    site.kill("c")
    write_all(site, range(50, COUNT))
    seen, stop, errors = set(), threading.Event(), []
    expected = [key_of(number) for number in range(COUNT)]

    def watch():
        client = boto3_client(site.gateway)
        while not stop.is_set():
            try:
                assert keys_of(client) == expected
                seen.add(site.states()["c"])
            except Exception as error:  # Whatever it is, it is told.
                errors.append(error)
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        servers.wait_until(lambda: "down" in seen or errors, "the member to be seen down")
        site.start("c")
        read_all(site, range(COUNT))
        servers.wait_until(lambda: "up" in seen or errors, "the member to be up", REPAIR_SECONDS)
    finally:
        stop.set()
        watcher.join()
    assert not errors, errors
    assert "down" in seen and "up" in seen
    site.wait_until_equal()


def test_acknowledged_writes_survive_a_kill_of_the_gateway(site):
    """Killed in the middle of writes, begun again on the same journal: what was acknowledged is
    there, and the members are equal by themselves."""
    acknowledged, is_gone = [], threading.Event()

    def write(number):
        if number == COUNT // 2:
            site.gateway.process.send_signal(signal.SIGKILL)
        if is_gone.is_set():
            return
        try:
            site.s3.put_object(Bucket=BUCKET, Key=key_of(number), Body=body_of(number))
        except Exception:  # The gateway was killed.
            is_gone.set()
            return
        acknowledged.append(number)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(write, range(COUNT)))
    site.gateway.process.wait()
    assert acknowledged and len(acknowledged) < COUNT
    site.open()
    read_all(site, acknowledged)
    found = site.wait_until_equal()
    assert {key_of(number) for number in acknowledged} <= set(found)


def test_gateways_that_share_a_journal_are_one_mirror(gateways, redis, tmp_path):
    """Two gateways write the same keys by turns, while a member is gone and after it is back; what one
    has acknowledged the other reads, and the last write of each key is what all members have."""
    journal = f'type = "redis"\nurls = ["redis://127.0.0.1:{redis}"]'
    site = Site(gateways, tmp_path, journal)
    clients = [site.s3]
    site.open()
    clients.append(site.s3)
    try:

        def write(number):
            if number == 20:
                site.kill("b")
            if number == 60:
                site.start("b")
            key = key_of(number % 7)
            clients[number % 2].put_object(Bucket=BUCKET, Key=key, Body=body_of(number))
            seen = clients[1 - number % 2].get_object(Bucket=BUCKET, Key=key)["Body"].read()
            assert seen == body_of(number), number

        for number in range(100):
            write(number)
        found = site.wait_until_equal()
        assert sorted(found) == [key_of(number) for number in range(7)]
        for number in range(93, 100):
            for name in NAMES:
                client = boto3_client(site.servers[name])
                got = client.get_object(Bucket=BUCKET, Key=key_of(number % 7))["Body"].read()
                assert got == body_of(number)
    finally:
        for server in site.servers.values():
            server.kill()


def test_a_verification_finds_what_was_changed_behind_the_back_and_a_repair_mends_it(site):
    write_all(site, range(20))
    site.wait_until_equal()
    assert admin(site.gateway, "mirror", "verify")["state"] == "done"
    direct = boto3_client(site.servers["b"])
    direct.delete_object(Bucket=BUCKET, Key=key_of(3))
    direct.put_object(Bucket=BUCKET, Key=key_of(4), Body=b"somebody else's")
    found = admin(site.gateway, "mirror", "verify", code=1)
    assert found["state"] == "failed" and len(found["compared"]["differences"]) == 2, found
    admin(site.gateway, "mirror", "repair")
    found = site.wait_until_equal()
    assert sorted(found) == [key_of(number) for number in range(20)]
    assert admin(site.gateway, "mirror", "verify")["state"] == "done"


def test_without_a_quorum_the_gateway_is_not_ready_and_writes_are_refused(site):
    write_all(site, range(5))
    site.wait_until_equal()
    for name in ("a", "b"):
        site.kill(name)

    def status_of_ready():
        try:
            with urllib.request.urlopen(site.gateway.admin_url + "/health/ready") as answer:
                return answer.status
        except urllib.error.HTTPError as answer:
            return answer.code

    def status_of_write():
        with pytest.raises(ClientError) as raised:
            site.s3.put_object(Bucket=BUCKET, Key="k", Body=b"x")
        return raised.value.response["ResponseMetadata"]["HTTPStatusCode"]

    def is_out():
        # Of a write that one member has, and two did not answer, nobody knows the outcome.
        assert status_of_write() in (500, 503)
        return status_of_ready() == 503

    servers.wait_until(is_out, "the gateway to be not ready")
    assert status_of_write() == 503
    # What one member alone has is still read.
    read_all(site, range(5))
    site.start("a")
    servers.wait_until(lambda: status_of_ready() == 200, "the gateway to be ready", REPAIR_SECONDS)
    site.start("b")
    site.s3.put_object(Bucket=BUCKET, Key="k", Body=b"x")
    assert "k" in site.wait_until_equal()


def test_a_journal_whose_mirror_is_gone_is_not_opened(site):
    """Nobody would repair what it says a member lacks; the members might be used alone."""
    write_all(site, range(5))
    site.wait_until_equal()
    site.kill("c")
    write_all(site, range(5, 10))
    assert site.gateway.stop() == 0
    file = site.directory / "without.toml"
    file.write_text(
        f"[stores.journal]\n{site.journal}\n"
        + MEMBER.format(name="a", url=site.servers["a"].url)
        + '[[routes]]\nstore = "a"\n'
    )
    done = subprocess.run(
        [servers.forebay_binary(), "serve", "--config", file, "--listen", "127.0.0.1:0",
         "--admin-listen", "127.0.0.1:0"],
        env=servers.plain_environment(
            FOREBAY_ROOT_ACCESS_KEY="ROOTROOTROOTROOTROOT", FOREBAY_ROOT_SECRET_KEY="r" * 40,
            AWS_ACCESS_KEY_ID="a" * 20, AWS_SECRET_ACCESS_KEY="s" * 40,
        ),
        capture_output=True, text=True, timeout=60,
    )
    assert done.returncode == 1, done.stderr
    assert "mirror-mirror" in done.stderr and "bring the store" in done.stderr, done.stderr
