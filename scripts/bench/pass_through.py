"""Pass-through, cache off: direct, through Forebay, nginx and versitygw as a gateway; all signed.

Two relays that know nothing of HTTP say what a gateway costs at least on this machine: one copies
the bytes, one has the kernel splice them.

Origin, gateway and client share the machine and are not pinned: the gateway's work comes on top
of the origin's, as on a host that runs both.
"""

import json
import subprocess
from pathlib import Path

from harness import servers, sigv4
from harness.wire import Wire, head_bytes

from . import figures, machine, peers, wrk
from .peers import S3LOAD

CONNECTIONS = 16
NAME = "pass-through"
MIB = 1 << 20
CASES = {
    "HEAD 1 KiB": ("HEAD", 1024, 0),
    "GET 1 KiB": ("GET", 1024, 0),
    "GET 1 MiB": ("GET", MIB, 0),
    "PUT 1 MiB": ("PUT", MIB, MIB),
}
CONFIG = """
[stores.origin]
type = "s3"
endpoint = "{origin}"
region = "us-east-1"
[[routes]]
store = "origin"
"""


class Contender:
    """A way to the origin: where requests go, who signs them, whose CPU counts."""

    def __init__(self, host, port, credentials, process):
        self.host, self.port, self.credentials, self.process = host, port, credentials, process
        self.url = f"http://{host}:{port}"


def _measure(contender, method, size, body_bytes, seconds):
    path = f"/bench/{'written' if body_bytes else size}"
    wire = Wire(contender)
    payload_hash = sigv4.UNSIGNED if body_bytes else sigv4.EMPTY_SHA256
    headers = sigv4.sign_headers(
        wire.scope(), method, wire.host, path, payload_hash=payload_hash
    )
    if method != "HEAD":
        del headers["host"]  # wrk sends its own, the same.
    family = machine.family(contender.process.pid)
    before = machine.cpu_seconds(family)
    if method == "HEAD":
        result = _heads(contender, path, headers, seconds)
    else:
        result = wrk.run(contender.url + path, seconds, CONNECTIONS, headers, method, body_bytes)
    used = machine.cpu_seconds(family) - before
    result["cpu_us_per_request"] = used / result["requests"] * 1e6
    return result


def _heads(contender, path, headers, seconds):
    """wrk waits for the body that the length in an answer to HEAD announces; s3load does not."""
    command = [
        S3LOAD, "head", "-address", f"{contender.host}:{contender.port}",
        "-connections", str(CONNECTIONS), "-period", f"{seconds}s",
    ]
    done = subprocess.run(
        command, input=head_bytes("HEAD", path, headers), capture_output=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"s3load head: {done.stderr.decode()}")
    return json.loads(done.stdout)


def run(directory, options):
    """Measures all cases and publishes the table."""
    directory = Path(directory)
    origin = servers.start_versitygw(directory)
    proxy = peers.nginx_proxy(directory, origin.port)
    gateway = peers.versitygw_proxy(directory, origin)
    copying = peers.relay("relay", directory, origin.port)
    splicing = peers.relay("splice", directory, origin.port, "-splice")
    started = [origin, proxy, gateway, copying, splicing]
    contenders = {
        "direct": Contender("127.0.0.1", origin.port, origin.credentials, origin.process),
        "nginx": Contender("127.0.0.1", proxy.port, origin.credentials, proxy.process),
        "versitygw": Contender("127.0.0.1", gateway.port, origin.credentials, gateway.process),
        "relay": Contender("127.0.0.1", copying.port, origin.credentials, copying.process),
        "splice": Contender("127.0.0.1", splicing.port, origin.credentials, splicing.process),
    }
    try:
        if options.forebay:
            gateway = servers.start_forebay(
                directory / "forebay", config=CONFIG.format(origin=origin.url)
            )
            started.append(gateway)
            contenders["forebay"] = Contender(
                "127.0.0.1", gateway.port, gateway.credentials, gateway.process
            )
        wire = Wire(origin)
        assert wire.signed("PUT", "/bench").status == 200
        for size in (1024, MIB):
            assert wire.signed("PUT", f"/bench/{size}", body=b"x" * size).status == 200
        rounds = {case: [] for case in CASES}
        for case, parts in CASES.items():
            for contender in contenders.values():
                _measure(contender, *parts, 1)
            for _ in range(options.rounds):
                rounds[case].append({
                    name: _measure(contender, *parts, options.seconds)
                    for name, contender in contenders.items()
                })
    finally:
        for server in reversed(started):
            server.stop()
    return {
        "seconds": options.seconds,
        "connections": CONNECTIONS,
        "cases": {
            case: {
                name: {
                    measure: figures.spread([one[name][measure] for one in rounds[case]])
                    for measure in ("per_second", "cpu_us_per_request", "p50_us", "p99_us")
                }
                | {"ratio": figures.ratio(rounds[case], name, "direct", "per_second")}
                for name in contenders
            }
            for case in CASES
        },
    }


def text(figure):
    """The table of the figure."""
    names = list(next(iter(figure["cases"].values())))
    ways = [name for name in names if name != "direct"]
    rows = [
        [case]
        + [f"{row[name]['per_second']['median']:,.0f}" for name in names]
        + [figures.shown(row[name]["ratio"]) for name in ways]
        + [f"{row[name]['cpu_us_per_request']['median']:.0f}" for name in ways]
        for case, row in figure["cases"].items()
    ]
    header = ["request"] + [f"{name}, /s" for name in names]
    header += [f"{name} ÷ direct" for name in ways]
    header += [f"{name}, own CPU µs/request" for name in ways]
    return figures.table(header, rows)
