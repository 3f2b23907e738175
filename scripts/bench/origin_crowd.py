"""A thousand clients that read small objects through one endpoint, and through three.

The endpoints are servers of their own on one directory. Direct, all clients connect to one of them.
"""

import contextlib
from pathlib import Path

from harness import servers

from . import charts, endpoints, figures, gates, load
from .line import Way

NAME = "origin-crowd"
SIZE, OBJECTS = 1 << 10, 1000
READS, CLIENTS = 100_000, 1000
SMOKE_READS, SMOKE_CLIENTS = 1000, 100
COUNT = 3
TAIL_TIMES_MAX = 3
SET = "three endpoints"


class _Origins:
    """Several servers on one directory."""

    def __init__(self, directory, started):
        self.directory = directory
        self.origins = []
        for number in range(COUNT):
            home = directory / f"origin-{number}"
            home.mkdir()
            self.origins.append(servers.start_versitygw(home, data=directory / "data"))
            started.callback(self.origins[-1].stop)
        self.origin = self.origins[0]

    def gateway(self, count, started):
        home = self.directory / f"forebay-{count}"
        config = endpoints.config([origin.url for origin in self.origins[:count]])
        server = servers.start_forebay(home, config=config)
        started.callback(server.stop)
        return Way(server.url, server.credentials, {}, server)


def run(directory, options):
    """Each way has its hundred thousand reads, one after another."""
    directory = Path(directory)
    file = directory / f"{NAME}.json"
    reads, clients = (SMOKE_READS, SMOKE_CLIENTS) if options.smoke else (READS, CLIENTS)
    words = ["get", "--size", f"{SIZE}B", "--objects", OBJECTS]
    with contextlib.ExitStack() as started:
        origins = _Origins(directory, started)
        load.prepare(origins, words)
        ways = {
            "direct": Way(origins.origin.url, origins.origin.credentials, {}),
            "one endpoint": origins.gateway(1, started),
            SET: origins.gateway(COUNT, started),
        }
        words += ["--requests", reads, "--concurrency", clients, "--warm-up", "1s"]
        words += ["--timeout", "60s"]
        measured = load.side_by_side(ways, words, file, 1)
    if not options.smoke:
        charts.draw(file)
    found = {name: _sums(rounds[0]) for name, rounds in measured.items()}
    rows = []
    for name, one in found.items():
        asked = ("≤", TAIL_TIMES_MAX) if name == SET else None
        tail = one["p99_ms"] / max(one["p50_ms"], 1e-9)
        rows.append(gates.gate(f"{clients} clients, {name}: p99 ÷ p50", asked, tail))
    failed = sum(one["failed"] for one in found.values())
    rows.append(gates.gate("requests that failed", ("=", 0), failed))
    return {"found": found, "rows": rows}


def _sums(one):
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
    return {name: load.quantile_ms([one], share) for name, share in shares.items()} | {
        "per_second": one["requests"] / one["seconds"],
        "failed": sum(one.get("errors", {}).values()),
    }


def text(figure):
    """The gates, and what was measured."""
    rows = [
        [name, f"{one['per_second']:,.0f}",
         *(f"{one[each]:,.1f}" for each in ("p50_ms", "p99_ms", "p999_ms"))]
        for name, one in figure["found"].items()
    ]
    header = ["way", "requests/s", "p50 ms", "p99 ms", "p99.9 ms"]
    return gates.table(figure["rows"]) + "\n\n" + figures.table(header, rows)
