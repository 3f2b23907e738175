"""A thousand clients that ask at once for one cold object of 256 MiB."""

from pathlib import Path

from . import figures, gates, load, machine
from .line import Line

NAME = "cache-crowd"
DELAY = "500us"
SIZE, SMOKE_SIZE = 256 << 20, 8 << 20
# Cache → clients. The gate is for the first, which holds the object. In the other one clients that
# fall behind find their pages evicted; few show it, and a thousand would take minutes.
CACHES = {"1GiB": 1000, "64MiB": 50}
SMOKE_CACHES = {"1GiB": 20}
RESIDENT_MB_MAX = 200


def _one(line, cache, clients, size):
    """What a fresh gateway fetches and how large it gets, while every byte is checked."""
    words = [
        "hot", "--size", f"{size}B", "--concurrency", clients, "--requests", clients, "--verify",
        "--timeout", "60s",
    ]
    with line.forebay(f'memory = "{cache}"') as way, line.counted() as passed:
        pid = way.server.process.pid
        machine.reset_peak(pid)
        measured = load.measure(way, words, line.directory, is_failure_a_figure=True)
        _, measured["peak_bytes"] = machine.memory_bytes(pid)
    return {"requests_right": measured.pop("requests")} | measured | passed


def _objects(one, size):
    """How many times the object was fetched; the bodies of small answers besides don't show."""
    return round(one["body_bytes_to_client"] / size, 3)


def run(directory, options):
    """Once for a cache that holds the object, once for one that does not."""
    caches, size = (SMOKE_CACHES, SMOKE_SIZE) if options.smoke else (CACHES, SIZE)
    found = {}
    with Line(Path(directory), delay=DELAY) as line:
        load.prepare(line, ["hot", "--size", f"{size}B"])
        for cache, clients in caches.items():
            found[cache] = _one(line, cache, clients, size)
    rows = []
    for cache, one in found.items():
        clients = caches[cache]
        what = f"{clients} clients, cold {figures.size_name(size)}, cache of {cache}: "
        fetches_max = ("≤", 1) if cache == "1GiB" else None
        rows += [
            gates.gate(what + "objects fetched", fetches_max, _objects(one, size)),
            gates.gate(what + "origin requests", None, one["requests"]),
            gates.gate(what + "whole and right", ("=", clients), one["requests_right"]),
            gates.gate(
                what + "peak resident", ("≤", RESIDENT_MB_MAX), one["peak_bytes"] / 1e6, " MB"
            ),
            gates.gate(what + "MiB/s", None, one["bytes_per_second"] / (1 << 20)),
        ]
    return {"found": found, "rows": rows}


def text(figure):
    """The gates."""
    return gates.table(figure["rows"])
