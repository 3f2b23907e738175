"""`forebay admin cache …` against a running gateway."""

import json
import signal
import subprocess
import threading
import urllib.error
import urllib.request

import pytest

from harness import servers
from harness.clients import boto3_client
from harness.stub_origin import Reply, StubOrigin, object_reply

pytestmark = pytest.mark.skipif(
    not servers.forebay_binary().exists(), reason="needs the built gateway"
)

USAGE = 64
CONFIG = """
[stores.{name}]
{store}
[[routes]]
store = "{name}"
layers = [{{ type = "cache", memory = "64MiB", coherence = {{ mode = "bounded", ttl = "1h" }} }}]
"""


class Admin:
    """`forebay admin`, pointed at one gateway."""

    def __init__(self, gateway):
        self.url = gateway.admin_url

    def run(self, *arguments, stdin=None, **environment):
        return subprocess.run(
            [servers.forebay_binary(), "admin", *map(str, arguments)],
            env=servers.plain_environment(FOREBAY_ADMIN=self.url, **environment),
            input=stdin, capture_output=True, text=True, timeout=60,
        )

    def start(self, *arguments):
        return subprocess.Popen(
            [servers.forebay_binary(), "admin", *arguments],
            env=servers.plain_environment(FOREBAY_ADMIN=self.url),
            stdout=subprocess.PIPE, text=True,
        )

    def json(self, *arguments, **options):
        done = self.run("--json", *arguments, **options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


class Site:
    """A gateway with a cache on a directory, and a bucket of objects in it."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.admin = Admin(gateway)
        self.s3 = boto3_client(gateway)
        self.s3.create_bucket(Bucket="photos")

    def put(self, *keys, size=10_000):
        for key in keys:
            self.s3.put_object(Bucket="photos", Key=key, Body=b"x" * size)

    def is_hit(self, key):
        answer = self.s3.get_object(Bucket="photos", Key=key)
        answer["Body"].read()
        return "; hit" in answer["ResponseMetadata"]["HTTPHeaders"]["cache-status"]


@pytest.fixture
def site(gateways, tmp_path):
    store = f'type = "fs"\npath = "{tmp_path}/objects"'
    return Site(gateways(config=CONFIG.format(name="local", store=store)))


def test_stats_top_and_lookup_tell_what_is_cached(site):
    site.put("a/1", "a/2")
    site.put("large", size=3 << 20)
    for key in ("a/1", "large"):
        site.is_hit(key)
    servers.wait_until(lambda: site.is_hit("a/1") and site.is_hit("large"), "hits")
    (cache,) = site.admin.json("cache", "stats")["caches"]
    assert (cache["cache"], cache["store"], cache["ttl_seconds"]) == ("0", "local", 3600)
    assert cache["used_bytes"] > 3 << 20
    top = site.admin.json("cache", "top", "--by", "bytes", "-n", "1")["objects"]
    assert [(entry["bucket"], entry["key"]) for entry in top] == [("photos", "large")]
    found = site.admin.json("cache", "lookup", "s3://photos/large")["stored"]
    assert (found["is_fresh"], found["pages"], found["pages_total"]) == (True, 3, 3)
    assert found["policy"]["coherence"] == "bounded"
    shown = site.admin.run("cache", "lookup", "photos/large")
    assert "3 of 3 pages" in shown.stdout
    missing = site.admin.run("cache", "lookup", "photos/a/2")
    assert (missing.returncode, "not stored" in missing.stdout) == (1, True)


def test_a_get_after_a_purge_is_a_miss(site):
    keys = ["a/1", "a/2", "b"]
    site.put(*keys)
    for arguments, gone in (
        (["photos/b"], {"b"}),
        (["--prefix", "photos/a/"], {"a/1", "a/2"}),
        (["--bucket", "photos"], set(keys)),
        (["--all"], set(keys)),
    ):
        site.admin.json("cache", "warm", "--bucket", "photos")
        assert all(map(site.is_hit, keys))
        purged = site.admin.json("cache", "purge", *arguments)
        assert (purged["state"], purged["done"]) == ("done", len(gone)), arguments
        assert {key for key in keys if not site.is_hit(key)} == gone, arguments


def test_gets_after_a_warm_of_a_list_are_hits(site, tmp_path):
    keys = [f"models/{n}" for n in range(30)] + ["with blank", "ü/é"]
    site.put(*keys)
    names = tmp_path / "names"
    names.write_text("".join(f"photos/{key}\n" for key in keys) + "photos/nothing\n")
    warmed = site.admin.json("cache", "warm", "--list", names, "--concurrency", "4")
    assert (warmed["done"], warmed["missing"], warmed["total"]) == (33, 1, 33)
    assert all(map(site.is_hit, keys))
    again = site.admin.json("cache", "warm", "--list", "-", stdin=names.read_text())
    assert again["fresh"] == 32
    with urllib.request.urlopen(f"{site.gateway.admin_url}/metrics") as answer:
        metrics = answer.read().decode()
    assert 'forebay_cache_warmed_total{route="0",outcome="fresh"} 32' in metrics


def test_pins_and_a_flush(site):
    site.put("a")
    site.is_hit("a")
    assert site.admin.run("cache", "pin", "photos/a").returncode == 0
    assert site.admin.json("cache", "stats")["caches"][0]["pinned"] == 1
    assert site.admin.run("cache", "unpin", "photos/a").returncode == 0
    assert site.admin.json("cache", "stats")["caches"][0]["pinned"] == 0
    assert site.admin.run("cache", "flush").returncode == USAGE
    assert site.admin.run("cache", "flush", "--yes").returncode == 0
    assert site.admin.json("cache", "stats")["caches"][0]["used_bytes"] == 0
    jobs = [job["kind"] for job in site.admin.json("jobs")["jobs"]]
    assert jobs == ["flush", "unpin", "pin"]


def test_a_warm_is_cancelled_and_the_gateway_goes_on(gateways):
    go_on = threading.Event()

    def script(request):
        if "list-type=2" in request.target:
            contents = "".join(
                f"<Contents><Key>{n}</Key><Size>5</Size></Contents>" for n in range(1000)
            )
            listing = f"<ListBucketResult>{contents}</ListBucketResult>"
            return Reply(200, {"content-type": "application/xml"}, listing.encode())
        return object_reply(b"bytes", hold=go_on)

    with StubOrigin(script) as origin:
        store = f'type = "s3"\nendpoint = "{origin.url}"\nregion = "us-east-1"'
        gateway = gateways(config=CONFIG.format(name="origin", store=store))
        admin = Admin(gateway)
        job = admin.json("cache", "warm", "--bucket", "photos", "--detach")
        assert (job["state"], job["total"]) == ("running", 1000)
        assert admin.json("jobs", job["id"])["state"] == "running"
        cancelled = admin.json("jobs", job["id"], "--cancel")
        assert (cancelled["state"], cancelled["done"]) == ("cancelled", 0)
        assert admin.json("jobs")["jobs"][0]["state"] == "cancelled"
        waiting = admin.start("cache", "warm", "--bucket", "photos")
        servers.wait_until(
            lambda: admin.json("jobs")["jobs"][0]["state"] == "running", "the second warm"
        )
        waiting.send_signal(signal.SIGINT)
        printed, _ = waiting.communicate(timeout=60)
        assert (waiting.returncode, ": cancelled, 0 objects" in printed) == (1, True), printed
        # One that is under way does not hold up a drain.
        admin.json("cache", "warm", "--bucket", "photos", "--detach")
        assert gateway.stop() == 0
        go_on.set()


def test_a_web_page_is_refused(site):
    def status(headers):
        request = urllib.request.Request(
            f"{site.gateway.admin_url}/admin/v1/cache/flush", b'{"all":true}', headers
        )
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    kind = {"content-type": "application/json"}
    assert status({"content-type": "text/plain"}) == 415
    assert status(kind | {"origin": "https://evil.example"}) == 403
    assert status(kind | {"sec-fetch-site": "cross-site"}) == 403
    assert status(kind | {"host": "evil.example"}) == 403
    assert status(kind) == 200


def test_a_token_is_asked_for(gateways, tmp_path):
    token = tmp_path / "token"
    token.write_text("a long random text\n")
    store = f'type = "fs"\npath = "{tmp_path}/objects"'
    config = f'[admin]\ntoken_file = "{token}"\n' + CONFIG.format(name="local", store=store)
    gateway = gateways(config=config)
    admin = Admin(gateway)
    refused = admin.run("cache", "stats")
    assert refused.returncode == 1 and "--token-file" in refused.stderr
    assert admin.run("cache", "stats", "--token-file", token).returncode == 0
    by_variable = admin.run("cache", "stats", FOREBAY_ADMIN_TOKEN="a long random text")
    assert by_variable.returncode == 0
    with urllib.request.urlopen(f"{gateway.admin_url}/health/ready") as answer:
        assert answer.status == 200


def test_what_is_wrong_is_told(site):
    for arguments, code, told in (
        (["cache", "purge"], USAGE, "required"),
        (["cache", "lookup", "photos"], USAGE, "bucket, a slash and the key"),
        (["cache", "warm", "--all"], USAGE, "--all"),
        (["cache", "top", "-n", "0"], USAGE, "0"),
        (["cache", "warm", "--bucket", "nowhere"], 1, ""),
        (["cache", "stats", "--admin", "https://a"], USAGE, "http://ADDRESS:PORT"),
        (["cache", "stats", "--admin", "http://127.0.0.1:1"], 1, "is the gateway running"),
        (["jobs", "99"], 1, "no job 99"),
    ):
        done = site.admin.run(*arguments)
        assert (done.returncode, told in done.stderr) == (code, True), (arguments, done)
