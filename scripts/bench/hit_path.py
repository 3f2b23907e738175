"""Hits: the same bytes from Forebay's memory, from nginx by sendfile, from varnish's memory.

The server has one core and wrk the other. Contenders take turns within each round, so that what
the machine does besides hits all of them alike.
"""

import os
from pathlib import Path

from harness import servers, sigv4
from harness.wire import Wire

from . import figures, machine, peers, wrk

SIZES = [1 << 10, 10 << 10, 100 << 10, 1 << 20]
SERVER_CORE, CLIENT_CORE = 0, 1
CONNECTIONS = 50
NAME = "hit-path"
# What is measured, with the digits to show.
MEASURES = {"per_second": 0, "cpu_us_per_request": 1, "p50_us": 0, "p99_us": 0}

CONFIG = """
[server]
threads = 1
[stores.files]
type = "fs"
path = "{data}"
[[routes]]
store = "files"
layers = [{{ type = "cache", memory = "512MiB", coherence = {{ mode = "immutable" }} }}]
[[bucket_policies]]
bucket = "hits"
policy = "public-read"
"""


def _start_forebay(directory):
    """Forebay with the objects stored, public to read, and in the cache."""
    gateway = servers.start_forebay(
        directory, config=CONFIG.format(data=directory / "objects"), core=SERVER_CORE
    )
    wire = Wire(gateway)
    assert wire.signed("PUT", "/hits").status == 200
    for size in SIZES:
        assert wire.signed("PUT", f"/hits/{size}", body=os.urandom(size)).status == 200
        for _ in range(2):
            assert len(wire.plain("GET", f"/hits/{size}").body) == size
    return gateway


def contenders(directory, with_forebay):
    """Name → (process, url prefix, headers of a request for a path)."""
    root = directory / "www" / "hits"
    root.mkdir(parents=True)
    for size in SIZES:
        (root / str(size)).write_bytes(os.urandom(size))
    directory.chmod(0o755)
    nginx = peers.nginx_static(directory, root.parent, SERVER_CORE)
    open_files = peers.nginx_open_files(directory, root.parent, SERVER_CORE)
    varnish = peers.varnish(directory, nginx.port, SERVER_CORE)
    started = [nginx, open_files, varnish]
    ways = {
        "nginx": (nginx, lambda _: {}),
        "nginx, files open": (open_files, lambda _: {}),
        "varnish": (varnish, lambda _: {}),
    }
    if with_forebay:
        gateway = _start_forebay(directory / "forebay")
        started.append(gateway)
        wire = Wire(gateway)

        def signed(path):
            headers = sigv4.sign_headers(wire.scope(), "GET", wire.host, path)
            return {name: text for name, text in headers.items() if name != "host"}

        ways = {
            "forebay": (gateway, lambda _: {}),
            "forebay signed": (gateway, signed),
        } | ways
    return started, ways


def _measure(server, headers, size, seconds):
    path = f"/hits/{size}"
    family = machine.family(server.process.pid)
    before = machine.cpu_seconds(family)
    result = wrk.run(
        server.url + path, seconds, CONNECTIONS, headers(path), core=CLIENT_CORE
    )
    used = machine.cpu_seconds(family) - before
    result["cpu_us_per_request"] = used / result["requests"] * 1e6
    return result


def run(directory, options):
    """Measures all sizes and publishes the table."""
    started, ways = contenders(Path(directory), options.forebay)
    rounds = {size: [] for size in SIZES}
    try:
        for size in SIZES:
            for server, headers in ways.values():
                _measure(server, headers, size, 1)
            for _ in range(options.rounds):
                rounds[size].append({
                    name: _measure(server, headers, size, options.seconds)
                    for name, (server, headers) in ways.items()
                })
    finally:
        for server in reversed(started):
            server.stop()
    return {
        "seconds": options.seconds,
        "connections": CONNECTIONS,
        "sizes": {
            str(size): {
                name: {
                    measure: figures.spread([one[name][measure] for one in rounds[size]])
                    for measure in MEASURES
                }
                for name in ways
            }
            for size in SIZES
        },
        "ratios": {
            str(size): {
                f"{ours} / {theirs}": figures.ratio(rounds[size], ours, theirs, "per_second")
                for ours in ways if ours.startswith("forebay")
                for theirs in ways if not theirs.startswith("forebay")
            }
            for size in SIZES
        },
        "cpu_ratios": {
            str(size): {
                f"{ours} / {theirs}": figures.ratio(
                    rounds[size], ours, theirs, "cpu_us_per_request"
                )
                for ours in ways if ours.startswith("forebay")
                for theirs in ways if not theirs.startswith("forebay")
            }
            for size in SIZES
        },
    }


def text(figure):
    """The tables of the figure."""
    throughput = [
        [figures.size_name(int(size)), name]
        + [f"{row[name][measure]['median']:,.{digits}f}" for measure, digits in MEASURES.items()]
        for size, row in figure["sizes"].items()
        for name in row
    ]
    header = ["size", "server", "requests/s", "server CPU µs/request", "p50 µs", "p99 µs"]
    parts = [figures.table(header, throughput)]
    for title, key in (("requests/s", "ratios"), ("CPU per request", "cpu_ratios")):
        pairs = list(next(iter(figure[key].values())))
        if pairs:
            rows = [
                [figures.size_name(int(size))] + [figures.shown(row[pair]) for pair in pairs]
                for size, row in figure[key].items()
            ]
            parts.append(
                f"Ratio of {title}: median of the rounds (least–most).\n\n"
                + figures.table(["size", *pairs], rows)
            )
    return "\n\n".join(parts)
