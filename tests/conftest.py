"""Servers for the black-box tests. `FOREBAY_TARGETS` picks what is tested, by comma:

fs         Forebay on a directory
origin     Forebay in front of versitygw
versitygw  versitygw alone: proves the tests themselves on a server that is not ours
"""

import os
import shutil
import subprocess
import uuid

import pytest

from harness import servers
from harness.clients import boto3_client
from harness.logs import LogWatch, RequestCount
from harness.wire import Wire

TARGETS = os.environ.get("FOREBAY_TARGETS", "fs,origin").split(",")

# Lines every run may log: the gateway says that it listens without TLS only beyond loopback.
LOG_ALLOWED = ()


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes long; run by `make test-all`")
    config.addinivalue_line("markers", "allow_log(pattern): this test makes the server warn so")
    config.addinivalue_line("markers", "targets(names): runs on these targets only")


def pytest_generate_tests(metafunc):
    if "server" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("targets")
        names = [name for name in TARGETS if marker is None or name in marker.args]
        metafunc.parametrize("server", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def started(tmp_path_factory):
    """Starts each named server once, at first use, and stops them all at the end."""
    running = {}

    def get(name):
        if name in running:
            return running[name]
        directory = tmp_path_factory.mktemp(name)
        if name in ("versitygw", "behind"):
            running[name] = servers.start_versitygw(directory)
        elif name == "fs":
            running[name] = servers.start_forebay(directory)
        elif name == "origin":
            running[name] = servers.start_forebay(directory, origin=get("behind"))
        else:
            raise ValueError(f"FOREBAY_TARGETS: no target is called {name}")
        return running[name]

    yield get
    for server in reversed(running.values()):
        code = server.stop()
        assert not server.is_gateway or code == 0, f"{server.name} left with {code}"


@pytest.fixture
def server(request, started):
    """The server under test; its log is checked afterwards."""
    under_test = started(request.param)
    watch = LogWatch(under_test)
    yield under_test
    allowed = list(LOG_ALLOWED)
    allowed += [mark.args[0] for mark in request.node.iter_markers("allow_log")]
    if under_test.is_gateway:
        assert watch.loud_lines(allowed) == [], "the server warned of something unexpected"


@pytest.fixture
def origin(server, started, request):
    """The origin behind the server under test, or None when it stands alone."""
    return started("behind") if request.node.callspec.params["server"] == "origin" else None


@pytest.fixture
def origin_requests(origin):
    """A count of the requests that reach the origin from here on, or None without an origin."""
    return RequestCount(origin) if origin else None


@pytest.fixture
def s3(server):
    return boto3_client(server)


@pytest.fixture
def wire(server):
    return Wire(server)


@pytest.fixture
def bucket(s3):
    """A new, empty bucket of the server under test."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture
def gateways(tmp_path):
    """Starts gateways of a test's own, by the arguments of `start_forebay`, and stops them."""
    running = []

    def start(**options):
        gateway = servers.start_forebay(tmp_path / f"gateway-{len(running)}", **options)
        running.append(gateway)
        return gateway

    yield start
    for gateway in running:
        if gateway.process.poll() is None:
            assert gateway.stop() == 0
        assert "panicked" not in gateway.log.read_text()


@pytest.fixture
def before(gateways):
    """Starts a gateway before the origin that a test names."""
    return lambda origin, **options: Wire(gateways(origin=origin, **options))


@pytest.fixture
def redis(tmp_path):
    """A Redis that keeps a log of its writes."""
    if not shutil.which("redis-server"):
        pytest.skip("needs redis-server")
    port = servers.free_port()
    folder = tmp_path / "redis"
    folder.mkdir()
    command = [
        "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder,
        "--appendonly", "yes", "--appendfsync", "always", "--save", "",
        "--maxmemory-policy", "noeviction",
    ]
    process = subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    servers.wait_until(lambda: servers.is_listening(port), "redis-server to listen")
    yield port
    process.terminate()
    process.wait()
