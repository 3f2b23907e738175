"""A set larger than the cache: a cache that mostly misses must not be in the way.

Two lines. Behind the line of half a millisecond the loop is closed, so a rate is the inverse of a
latency, and few enough connections ask that no core is ever waited for. The narrow line gives so
many bytes a second, less than the machine could, and enough connections ask to fill it: there what
counts is whether the cache asks for more than its clients did.

Beside the gateway stands a relay that passes bytes on and knows nothing of HTTP: on the first line,
what any hop costs on this machine.
"""

from pathlib import Path

from . import figures, gates, load, peers
from .line import Line, accepts

NAME = "cache-exceeds"
SECONDS = 0.7
# The smallest that the configuration takes.
CACHE_BYTES = 8 << 20
DELAY, FAR_DELAY = "500us", "20ms"
# By the size of an object: more would wait for a core, not for the line.
CONNECTIONS = {4 << 10: 4, 64 << 10: 4, 1 << 20: 1}
FAR_CONNECTIONS = 16
NARROW = {"delay": "500us", "bandwidth_total": "40MB"}
# (Size of an object, the set in sizes of the cache)
SETS = [(4 << 10, 8), (64 << 10, 2), (64 << 10, 8), (64 << 10, 64), (1 << 20, 2), (1 << 20, 64)]
SMOKE_SETS = [(64 << 10, 2)]
NARROW_SET = (64 << 10, 64)
ORDERS = {"uniform": [], "zipf 0.99": ["--zipf", "0.99"]}
RATIO_MIN, P50_ADDED_MS_MAX, DISK_TIMES = 0.97, 0.3, 3
DISK_BYTES = 2 << 30


def _objects(size, times):
    return ["get", "--size", f"{size}B", "--objects", CACHE_BYTES * times // size]


def _words(size, times, order, connections, options):
    timed = ["--duration", f"{options.seconds}s", "--concurrency", connections]
    return [*_objects(size, times), *ORDERS[order], *timed]


def _case(size, times, order):
    return f"{figures.size_name(size)}, {times} × the cache, {order}"


def _turns(ways, words, line, options, first):
    """All ways in turns, after a round that is not counted and fills what can be filled."""
    for way in ways.values():
        load.measure(way, words, line.directory, first)
    turns = {name: [] for name in ways}
    for number in range(options.rounds):
        for name, way in ways.items():
            seed = first + 1 + number
            turns[name].append(load.measure(way, words, line.directory, seed))
    return turns


def _near(line, options, memory):
    relay = line.peer(lambda directory, port: peers.relay("relay", directory, port))
    measured, ways = {}, {"direct": line.direct(), "relay": relay}
    for size, times in SMOKE_SETS if options.smoke else SETS:
        load.prepare(line, _objects(size, times))
        for order in ORDERS:
            words = _words(size, times, order, CONNECTIONS[size], options)
            with line.forebay(memory) as ways["forebay"]:
                measured[_case(size, times, order)] = _turns(ways, words, line, options, 1)
    return measured


def _narrow(line, options, memory):
    measured, ways = {}, {"direct": line.direct()}
    line.set_faults(**NARROW)
    for order in ORDERS:
        words = _words(*NARROW_SET, order, FAR_CONNECTIONS, options)
        with line.forebay(memory) as ways["forebay"]:
            measured[_case(*NARROW_SET, order)] = _turns(ways, words, line, options, 1)
    return measured


def _with_disk(line, options, memory):
    """The set fits on the disk; nothing when this Forebay has no cache on a disk."""
    place = line.directory / "cache-disk"
    cache = f'{memory}, disk = {{ path = "{place}", size = "{DISK_BYTES >> 20}MiB" }}'
    if not accepts(cache, line.directory):
        return None
    line.set_faults(delay=FAR_DELAY)
    size, times = NARROW_SET
    words = _words(size, times, "uniform", FAR_CONNECTIONS, options)
    ways = {"direct": line.direct()}
    with line.forebay(cache) as ways["forebay"]:
        names = load.keys(size, CACHE_BYTES * times // size)
        load.read_all(ways["forebay"], names, size, line.directory)
        return {_case(size, times, "uniform"): _turns(ways, words, line, options, 1)}


def run(directory, options):
    """Measures all sets, with a fresh gateway for each."""
    memory = f'memory = "{CACHE_BYTES >> 20}MiB"'
    with Line(Path(directory), delay=DELAY) as line:
        figure = {"near": _near(line, options, memory)}
        if not options.smoke:
            figure["narrow"] = _narrow(line, options, memory)
            figure["disk"] = _with_disk(line, options, memory)
    return figure | {"rows": _judge(figure)}


def _judge(figure):
    rows = []
    for case, turns in figure["near"].items():
        added = gates.difference(turns, "forebay", "direct", "p50_us")
        added = {name: n if name == "rounds" else n / 1e3 for name, n in added.items()}
        ratio = gates.ratio(turns, "forebay", "direct")
        rows.append(gates.gate(f"{case}: ÷ direct", ("≥", RATIO_MIN), ratio))
        rows.append(gates.gate(f"{case}: p50 later", ("≤", P50_ADDED_MS_MAX), added, " ms"))
        bound = gates.ratio(turns, "relay", "direct")
        rows.append(gates.gate(f"{case}: a bare relay ÷ direct", None, bound))
    for case, turns in figure.get("narrow", {}).items():
        ratio = gates.ratio(turns, "forebay", "direct")
        rows.append(gates.gate(f"{case}, narrow line: ÷ direct", ("≥", RATIO_MIN), ratio))
    for case, turns in (figure.get("disk") or {}).items():
        ratio = gates.ratio(turns, "forebay", "direct")
        rows.append(gates.gate(f"{case}, disk, 20 ms: ÷ direct", ("≥", DISK_TIMES), ratio))
    return rows


def text(figure):
    """The gates, and what was measured on each line."""
    titles = {
        "near": f"Behind {DELAY}, 4 connections (1 MiB: one):",
        "narrow": f"Behind {NARROW['bandwidth_total']}/s in all, {FAR_CONNECTIONS} connections:",
        "disk": f"With a disk, behind {FAR_DELAY}, {FAR_CONNECTIONS} connections:",
    }
    parts = [gates.table(figure["rows"])]
    for part, title in titles.items():
        if figure.get(part):
            parts += [title, gates.rates(figure[part], ["forebay", "relay", "direct"])]
    return "\n\n".join(parts)
