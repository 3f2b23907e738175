"""Starts and stops the servers under test, each on a free loopback port, each by its own pid."""

import dataclasses
import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REGION = "us-east-1"
# As a port: the config says where to listen.
AS_CONFIGURED = 0
START_TIMEOUT_SECONDS = 20
STOP_TIMEOUT_SECONDS = 30
# Ports that this run has used already.
_given = set()


@dataclasses.dataclass(frozen=True)
class Credentials:
    """One access key and its secret."""

    access_key: str
    secret_key: str


# Different on purpose: a gateway that forwarded a client's signature would be refused.
GATEWAY_ROOT = Credentials("FOREBAYROOTKEY000001", "forebay/root+secret/for+tests/000000001")
ORIGIN_ROOT = Credentials("VERSITYROOTKEY000001", "versity/root+secret/for+tests/000000001")


@dataclasses.dataclass
class Server:
    """One running server, and how to reach it."""

    name: str
    host: str
    port: int
    credentials: Credentials
    process: subprocess.Popen
    log: Path
    admin_port: int | None = None
    data: Path | None = None
    requests_log: Path | None = None

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"

    @property
    def admin_url(self):
        return f"http://{self.host}:{self.admin_port}"

    @property
    def is_gateway(self):
        return self.admin_port is not None

    def kill(self):
        """Ends it at once, as a crash would."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Asks it to drain; returns the exit code, and fails if it does not leave in time."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.name} did not stop on SIGTERM") from None


def free_port():
    """A loopback port that was free a moment ago.

    Below the ports that the kernel gives to outgoing connections (32768 and up, by default), so
    that none of those takes it before the server does.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            return port


def wait_until(is_ready, what, timeout_seconds=START_TIMEOUT_SECONDS):
    """Polls until `is_ready()` is true."""
    deadline = time.monotonic() + timeout_seconds
    while not is_ready():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_seconds} s for {what}")
        time.sleep(0.02)


def is_listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_ready(url):
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return response.status == 200
    except (urllib.error.URLError, OSError):
        return False


def _spawn(name, command, environment, log, is_ready):
    """Starts `command`; a server that dies before it is ready fails with its log."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )

    def ready_or_dead():
        if process.poll() is not None:
            raise AssertionError(f"{name} left with {process.returncode}:\n{log.read_text()}")
        return is_ready()

    try:
        wait_until(ready_or_dead, f"{name} to listen")
    except AssertionError:
        process.kill()
        raise
    return process


def plain_environment(**more):
    """The environment without any AWS or Forebay settings of the machine."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "FOREBAY_", "VGW_", "ROOT_"))
    }
    return kept | {"AWS_EC2_METADATA_DISABLED": "true"} | more


def versitygw_binary():
    return Path(os.environ.get("VERSITYGW_BIN", ROOT / ".tools/bin/versitygw"))


def forebay_binary():
    """The gateway under test: FOREBAY_BIN, else the debug build."""
    return Path(os.environ.get("FOREBAY_BIN", ROOT / "target/debug/forebay"))


def start_versitygw(directory, port=None, data=None, more_ports=()):
    """Starts the independent S3 server on a directory; the origin and the reference.

    It may listen on more ports than the one that is told.
    """
    port = port or free_port()
    data = data or directory / "versitygw-data"
    data.mkdir(parents=True, exist_ok=True)
    requests_log = directory / "versitygw-requests.log"
    command = [versitygw_binary(), "--region", REGION]
    for each in (port, *more_ports):
        command += ["--port", f"127.0.0.1:{each}"]
    command += ["--keep-alive", "--quiet", "--access-log", requests_log, "posix", data]
    environment = plain_environment(
        ROOT_ACCESS_KEY=ORIGIN_ROOT.access_key, ROOT_SECRET_KEY=ORIGIN_ROOT.secret_key
    )
    log = directory / "versitygw.log"
    process = _spawn("versitygw", command, environment, log, lambda: is_listening(port))
    return Server(
        "versitygw", "127.0.0.1", port, ORIGIN_ROOT, process, log,
        data=data, requests_log=requests_log,
    )


def start_forebay(
    directory, origin=None, config=None, data=None, port=None, core=None, wrapper=(),
    **environment,
):
    """Starts the gateway: on a directory, before `origin` (a URL or several, or a server), or by a
    config.

    With `core` it runs on that core of the machine alone; `wrapper` is a command that runs it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    port, admin_port = free_port() if port is None else port, free_port()
    data = data or directory / "forebay-data"
    command = [forebay_binary(), "serve", "--admin-listen", f"127.0.0.1:{admin_port}"]
    if port != AS_CONFIGURED:
        command += ["--listen", f"127.0.0.1:{port}"]
    variables = {
        "FOREBAY_ROOT_ACCESS_KEY": GATEWAY_ROOT.access_key,
        "FOREBAY_ROOT_SECRET_KEY": GATEWAY_ROOT.secret_key,
        "AWS_REGION": REGION,
    }
    if config is not None:
        file = directory / "forebay.toml"
        file.write_text(config)
        command += ["--config", file]
    else:
        command += ["--data", data]
    if origin is not None:
        # A URL, several of them, or a server.
        urls = [origin] if isinstance(origin, str) else origin
        urls = urls if isinstance(urls, list) else [origin.url]
        credentials = getattr(origin, "credentials", ORIGIN_ROOT)
        for url in urls:
            command += ["--origin", url]
        variables["AWS_ACCESS_KEY_ID"] = credentials.access_key
        variables["AWS_SECRET_ACCESS_KEY"] = credentials.secret_key
    elif config is not None:
        variables["AWS_ACCESS_KEY_ID"] = ORIGIN_ROOT.access_key
        variables["AWS_SECRET_ACCESS_KEY"] = ORIGIN_ROOT.secret_key
    if core is not None:
        command = ["taskset", "-c", str(core), *command]
    command = [*wrapper, *command]
    log = directory / "forebay.log"
    ready = f"http://127.0.0.1:{admin_port}/health/ready"
    process = _spawn(
        "forebay", command, plain_environment(**variables, **environment), log,
        lambda: _is_ready(ready),
    )
    return Server(
        "forebay", "127.0.0.1", port, GATEWAY_ROOT, process, log,
        admin_port=admin_port, data=data,
    )
