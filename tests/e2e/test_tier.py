"""The tier: small objects durable in a hot store at once, and at home in the cold one later."""

import json
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from harness import servers, sigv4
from harness.clients import boto3_client
from harness.metrics import metric
from harness.wire import Wire

pytestmark = pytest.mark.skipif(
    not servers.forebay_binary().exists(), reason="needs the built gateway"
)

BUCKET = "tasks"
CONFIG = """
[stores.origin]
type = "s3"
endpoint = "{origin}"
region = "us-east-1"

[stores.hot]
{hot}

[[routes]]
store = "origin"
layers = [{{ type = "tier", hot = "hot", {tier} }}]
"""
# Within so many seconds the tier takes its own write for the later one.
CLOCK_TIE_SECONDS = 3
LATER = 'demote_after = "1h"'


def admin(gateway, *words, code=0):
    """Runs `forebay admin --json` and gives its answer."""
    done = subprocess.run(
        [servers.forebay_binary(), "admin", "--json", *map(str, words)],
        env=servers.plain_environment(FOREBAY_ADMIN=gateway.admin_url),
        capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def status(gateway):
    [tier] = admin(gateway, "tier", "status")["tiers"]
    return tier


@pytest.fixture
def origin(tmp_path):
    started = servers.start_versitygw(tmp_path)
    boto3_client(started).create_bucket(Bucket=BUCKET)
    yield started
    started.stop()


@pytest.fixture
def on_log(gateways, origin, tmp_path):
    """Starts a gateway with a log as its hot store; again on the same folder."""

    def start(tier=LATER, **options):
        hot = f'type = "log"\npath = "{tmp_path / "hot"}"'
        config = CONFIG.format(origin=origin.url, hot=hot, tier=tier)
        return gateways(config=config, **options)

    return start


def start_to_fail(config, tmp_path):
    """Starts a gateway that refuses to, and gives what it said."""
    file = tmp_path / "refused.toml"
    file.write_text(config)
    return subprocess.run(
        [servers.forebay_binary(), "serve", "--config", file, "--listen", "127.0.0.1:0",
         "--admin-listen", "127.0.0.1:0"],
        env=servers.plain_environment(
            FOREBAY_ROOT_ACCESS_KEY="ROOTROOTROOTROOTROOT", FOREBAY_ROOT_SECRET_KEY="r" * 40,
            AWS_ACCESS_KEY_ID="a" * 20, AWS_SECRET_ACCESS_KEY="s" * 40,
        ),
        capture_output=True, text=True, timeout=60,
    )


def keys_of(client):
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    return [item["Key"] for page in pages for item in page.get("Contents", [])]


def body_of(client, key):
    return client.get_object(Bucket=BUCKET, Key=key)["Body"].read()


def write_later(cold, key):
    """Writes until the origin calls it so late that no rounding of its clock makes it a tie."""
    first = None

    def is_late():
        nonlocal first
        cold.put_object(Bucket=BUCKET, Key=key, Body=b"theirs")
        at = cold.head_object(Bucket=BUCKET, Key=key)["LastModified"]
        first = first or at
        return (at - first).total_seconds() > CLOCK_TIE_SECONDS

    servers.wait_until(is_late, "the origin's clock to go on")


def test_a_small_object_is_hot_until_it_is_moved_and_reads_alike_on_both_sides(on_log, origin):
    gateway = on_log()
    client, cold = boto3_client(gateway), boto3_client(origin)
    put = client.put_object(
        Bucket=BUCKET, Key="a/1", Body=b"one", ContentType="text/x-one", Metadata={"by": "me"},
        Tagging="colour=blue",
    )
    headers = put["ResponseMetadata"]["HTTPHeaders"]
    assert headers["x-forebay-tier"] == "hot"
    assert headers["x-forebay-durability"] == "hot-local"
    client.put_object(Bucket=BUCKET, Key="large", Body=b"x" * (2 << 20))
    assert keys_of(cold) == ["large"] and keys_of(client) == ["a/1", "large"]

    def seen():
        got = client.get_object(Bucket=BUCKET, Key="a/1")
        tags = client.get_object_tagging(Bucket=BUCKET, Key="a/1")["TagSet"]
        return (
            got["Body"].read(), got["ContentType"], got["Metadata"], got["ETag"], tags,
            client.get_object(Bucket=BUCKET, Key="a/1", Range="bytes=1-1")["Body"].read(),
        )

    hot = seen()
    assert hot[0] == b"one" and hot[4] == [{"Key": "colour", "Value": "blue"}]
    assert admin(gateway, "tier", "flush", "--wait")["state"] == "done"
    assert status(gateway)["dirty_objects"] == 0
    assert keys_of(cold) == ["a/1", "large"]
    answer = client.head_object(Bucket=BUCKET, Key="a/1")["ResponseMetadata"]["HTTPHeaders"]
    assert answer["x-forebay-tier"] == "cold"
    assert answer["x-forebay-durability"] == "origin"
    assert seen() == hot


def test_a_delete_of_a_hot_object_is_seen_at_once_and_reaches_the_origin(on_log, origin):
    gateway = on_log()
    client, cold = boto3_client(gateway), boto3_client(origin)
    client.put_object(Bucket=BUCKET, Key="k", Body=b"old")
    admin(gateway, "tier", "flush", "--wait")
    client.put_object(Bucket=BUCKET, Key="k", Body=b"new")
    client.delete_object(Bucket=BUCKET, Key="k")
    with pytest.raises(ClientError) as gone:
        client.get_object(Bucket=BUCKET, Key="k")
    assert gone.value.response["Error"]["Code"] == "NoSuchKey"
    assert keys_of(client) == []
    admin(gateway, "tier", "flush", "--wait")
    assert keys_of(cold) == []


def test_what_was_acknowledged_is_there_after_a_kill(on_log, origin):
    gateway = on_log()
    client = boto3_client(gateway)
    acknowledged, is_gone = [], threading.Event()

    def write(number):
        if is_gone.is_set():
            return
        try:
            client.put_object(Bucket=BUCKET, Key=f"{number:05}", Body=b"%d" % number)
        except Exception:  # The gateway was killed.
            is_gone.set()
            return
        acknowledged.append(number)

    with ThreadPoolExecutor(8) as pool:
        killing = threading.Timer(0.7, lambda: gateway.process.send_signal(signal.SIGKILL))
        killing.start()
        list(pool.map(write, range(2000)))
        killing.join()
    gateway.process.wait()
    assert acknowledged and len(acknowledged) < 2000
    client = boto3_client(on_log())
    for number in acknowledged:
        assert body_of(client, f"{number:05}") == b"%d" % number
    assert keys_of(boto3_client(origin)) == []


def test_a_stop_that_drains_leaves_everything_in_the_origin(on_log, origin):
    gateway = on_log(tier=f'{LATER}, on_stop = "drain"')
    client = boto3_client(gateway)
    for number in range(20):
        client.put_object(Bucket=BUCKET, Key=f"{number}", Body=b"x")
    assert gateway.stop() == 0
    assert len(keys_of(boto3_client(origin))) == 20


def test_a_log_with_objects_that_no_tier_moves_is_not_opened(on_log, gateways, origin, tmp_path):
    gateway = on_log()
    boto3_client(gateway).put_object(Bucket=BUCKET, Key="k", Body=b"x")
    gateway.stop()
    config = CONFIG.replace('layers = [{{ type = "tier", hot = "hot", {tier} }}]', "")
    config = config.format(origin=origin.url, hot=f'type = "log"\npath = "{tmp_path / "hot"}"')
    done = start_to_fail(config, tmp_path)
    assert done.returncode == 1
    assert "holds 1 objects" in done.stderr and "tier drain" in done.stderr


def test_a_hot_space_is_not_shared_by_two_origins_that_are_called_alike(
    gateways, redis, origin, tmp_path
):
    hot = f'type = "redis"\nurls = ["redis://127.0.0.1:{redis}"]'
    gateway = gateways(config=CONFIG.format(origin=origin.url, hot=hot, tier=LATER))
    boto3_client(gateway).put_object(Bucket=BUCKET, Key="k", Body=b"x")
    elsewhere = f"http://127.0.0.1:{servers.free_port()}"
    other = CONFIG.format(origin=elsewhere, hot=hot, tier=LATER)
    done = start_to_fail(other, tmp_path)
    assert done.returncode == 1
    assert origin.url in done.stderr and elsewhere in done.stderr
    # What gave it up may be another's.
    admin(gateway, "tier", "drain")
    gateway.stop()
    gateways(config=other).stop()


def test_somebody_elses_write_is_a_conflict_that_an_operator_settles(on_log, origin):
    gateway = on_log()
    client, cold = boto3_client(gateway), boto3_client(origin)
    for key in ("ours", "theirs"):
        client.put_object(Bucket=BUCKET, Key=key, Body=b"ours")
        write_later(cold, key)
    admin(gateway, "tier", "flush", "--wait")
    found = admin(gateway, "tier", "conflicts")["objects"]
    assert sorted(one["key"] for one in found) == ["ours", "theirs"]
    assert body_of(cold, "ours") == b"theirs" and body_of(client, "ours") == b"ours"
    admin(gateway, "tier", "retry", f"{BUCKET}/ours")
    admin(gateway, "tier", "discard", "--yes", f"{BUCKET}/theirs")
    admin(gateway, "tier", "flush", "--wait")
    assert body_of(cold, "ours") == b"ours" and body_of(client, "theirs") == b"theirs"
    assert status(gateway)["conflicts"] == 0


def test_an_old_dirty_object_takes_the_gateway_out_of_its_load_balancer(on_log, origin):
    gateway = on_log(tier='demote_after = "0s", oldest_dirty_max = "1s"')
    client = boto3_client(gateway)
    client.put_object(Bucket=BUCKET, Key="warm", Body=b"x")
    origin.process.send_signal(signal.SIGSTOP)
    try:
        client.put_object(Bucket=BUCKET, Key="k", Body=b"x")

        def is_out():
            try:
                urllib.request.urlopen(gateway.admin_url + "/health/ready")
            except urllib.error.HTTPError as answer:
                return answer.code == 503 and b"old" in answer.read()
            return False

        servers.wait_until(is_out, "the gateway to be not ready")
    finally:
        origin.process.send_signal(signal.SIGCONT)
    admin(gateway, "tier", "flush", "--wait")
    urllib.request.urlopen(gateway.admin_url + "/health/ready").close()


def test_logs_are_verified_and_compacted_by_operators(on_log):
    gateway = on_log()
    client = boto3_client(gateway)
    for number in range(50):
        client.put_object(Bucket=BUCKET, Key=f"{number % 5}", Body=b"x" * 10_000)
    assert admin(gateway, "log", "verify")["state"] == "done"
    [log] = admin(gateway, "log", "stats")["logs"]
    assert log["store"] == "hot" and log["entries"] > 5 and not log["damaged"]
    assert admin(gateway, "log", "compact")["state"] == "done"
    assert body_of(client, "3") == b"x" * 10_000


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_task_queue_over_two_gateways_loses_nothing_when_one_is_killed(
    gateways, redis, origin, tmp_path, count
):
    """Results go through two gateways to one Redis, with the origin 20 ms away; one is killed in
    the middle. Consumers on the other read all that was acknowledged, and after `demote_after` all
    is in the origin, and all lists agree."""
    far, stats = servers.free_port(), servers.free_port()
    tap = subprocess.Popen(
        [servers.forebay_binary(), "tap", "--listen", f"127.0.0.1:{far}", "--to",
         f"127.0.0.1:{origin.port}", "--delay", "20ms", "--stats", f"127.0.0.1:{stats}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        servers.wait_until(lambda: servers.is_listening(far), "the tap to listen")
        hot = f'type = "redis"\nurls = ["redis://127.0.0.1:{redis}"]'
        config = CONFIG.format(
            origin=f"http://127.0.0.1:{far}", hot=hot, tier='demote_after = "3s"'
        )
        pair = [gateways(config=config) for _ in range(2)]
        clients = [boto3_client(gateway, max_pool_connections=16) for gateway in pair]
        acknowledged = []

        def produce(number):
            if number == count // 2:
                pair[0].process.send_signal(signal.SIGKILL)
            try:
                clients[number % 2].put_object(
                    Bucket=BUCKET, Key=f"result/{number:05}", Body=b"%d" % number
                )
            except Exception:  # The gateway that was killed.
                assert number % 2 == 0
                return
            acknowledged.append(number)

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(produce, range(count)))
        assert len(acknowledged) >= count // 2
        # At once, so that it is hot still, however long the others take.
        clients[1].put_object(Bucket=BUCKET, Key="result/last", Body=b"last")
        assert body_of(clients[1], "result/last") == b"last"
        with ThreadPoolExecutor(16) as pool:
            bodies = pool.map(lambda n: body_of(clients[1], f"result/{n:05}"), acknowledged)
            for number, body in zip(acknowledged, bodies):
                assert body == b"%d" % number
        listed = keys_of(clients[1])
        assert {f"result/{number:05}" for number in acknowledged} <= set(listed)
        servers.wait_until(
            lambda: status(pair[1])["dirty_objects"] == 0, "all to be moved", 30 + count / 100
        )
        assert keys_of(boto3_client(origin)) == keys_of(clients[1]) == listed
        assert metric(pair[1], "forebay_tier_saved_requests_total") > 0
    finally:
        tap.terminate()
        tap.wait()
    pair[0].process.wait()


def test_exclusive_holds_over_two_gateways_that_share_a_redis(gateways, redis, origin):
    """What one gateway keeps, a write through the other replaces before its writer is answered."""
    config = f"""
[stores.origin]
type = "s3"
endpoint = "{origin.url}"
region = "us-east-1"
[stores.shared]
type = "redis"
urls = ["redis://127.0.0.1:{redis}"]
[[routes]]
store = "origin"
changes = "shared"
layers = [{{ type = "cache", memory = "64MiB", coherence = {{ mode = "exclusive" }} }}]
"""
    one, other = (boto3_client(gateways(config=config)) for _ in range(2))
    one.put_object(Bucket=BUCKET, Key="k", Body=b"0")

    def is_kept():
        answer = other.get_object(Bucket=BUCKET, Key="k")
        return "hit" in answer["ResponseMetadata"]["HTTPHeaders"]["cache-status"].split(";")[1]

    servers.wait_until(is_kept, "the object to be kept")
    for number in range(1, 20):
        one.put_object(Bucket=BUCKET, Key="k", Body=b"%d" % number)

        def is_new(number=number):
            return body_of(other, "k") == b"%d" % number

        servers.wait_until(is_new, "the other gateway to have heard", timeout_seconds=2)


def test_a_large_cold_object_is_read_from_the_origin_itself_by_who_can(on_log, origin):
    gateway = on_log(tier=f'{LATER}, redirect_min = "1MiB"')
    client, content = boto3_client(gateway), b"x" * (2 << 20)
    client.put_object(Bucket=BUCKET, Key="a b/é", Body=content)
    client.put_object(Bucket=BUCKET, Key="small", Body=b"x")
    admin(gateway, "tier", "flush", "--wait")
    wire = Wire(gateway)
    allow = {"x-forebay-redirect": "allow"}
    answer = wire.signed("GET", sigv4.path_of(BUCKET, "a b/é"), headers=allow)
    assert answer.status == 307
    address = answer.header("location")
    assert address.startswith(origin.url)
    with urllib.request.urlopen(address) as there:
        assert there.read() == content
    assert wire.signed("GET", sigv4.path_of(BUCKET, "a b/é")).body == content
    assert wire.signed("GET", sigv4.path_of(BUCKET, "small"), headers=allow).status == 200
