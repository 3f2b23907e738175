"""A set that fits in the cache's memory, against its origin behind a line of half a millisecond.

Everything is signed; nginx and varnish keep answers by their URL and verify nothing.
"""

import contextlib
import threading
from pathlib import Path

from harness import sigv4
from harness.wire import Wire

from . import figures, gates, load, peers
from .line import Line

NAME = "cache-fits"
SECONDS = 0.7
DELAY = "500us"
CONNECTIONS = 50
# Size → how many times the origin's rate is asked of reads of all objects.
SIZES = {1 << 10: 8, 10 << 10: 8, 100 << 10: 5}
HOT_SIZE, HOT_TIMES = 1 << 10, 10
# What reading all objects may be less than reading one of them.
SPREAD_RATIO_MIN = 0.85
COLD_KEYS, SMOKE_COLD_KEYS, COLD_CLIENTS, COLD_DELAY = 20, 3, 50, "100ms"


def _timed(options):
    return ["--duration", f"{options.seconds}s", "--concurrency", CONNECTIONS]


def _rounds(line, ways, options, objects):
    measured = {}
    for size in SIZES:
        words = ["--size", f"{size}B", "--objects", objects]
        load.prepare(line, ["get", *words])
        for name, way in ways.items():
            if name != "direct":
                load.read_all(way, load.keys(size, objects), size, line.directory)
        for workload in ("get", "hot"):
            measured[f"{workload} {figures.size_name(size)}"] = {name: [] for name in ways}
        for number in range(options.rounds):
            for workload in ("get", "hot"):
                for name, way in ways.items():
                    case = measured[f"{workload} {figures.size_name(size)}"]
                    command = [workload, *words, *_timed(options)]
                    case[name].append(load.measure(way, command, line.directory, number))
    return measured


def _at_once(way, path):
    """One request from each client, sent as nearly together as threads are; their answers."""
    wire = Wire(way.server)
    headers = sigv4.sign_headers(wire.scope(), "GET", wire.host, path)
    barrier, answers = threading.Barrier(COLD_CLIENTS), []

    def ask():
        barrier.wait()
        answers.append(wire.plain("GET", path, headers))

    threads = [threading.Thread(target=ask) for _ in range(COLD_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def _cold_crowd(line, way, count):
    """Origin requests for cold keys that many ask for at once, and how many keys hit afterwards.

    The line is long meanwhile, so that all have asked before the first answer is there.
    """
    wire, body = Wire(line.origin), b"x" * (100 << 10)
    paths = [f"/{load.BUCKET}/cold/{number}" for number in range(count)]
    for path in paths:
        assert wire.signed("PUT", path, body=body).status == 200
    line.set_faults(delay=COLD_DELAY)
    with line.counted() as passed:
        for path in paths:
            answers = _at_once(way, path)
            assert [one.body for one in answers] == [body] * COLD_CLIENTS
    line.set_faults(delay=DELAY)
    with line.counted() as afterwards:
        statuses = [Wire(way.server).signed("GET", path).header("cache-status") for path in paths]
    hits = sum("; hit" in (status or "") for status in statuses)
    return {
        "requests": passed["requests"], "by_method": passed["requests_by_method"],
        "keys": count, "hits": hits, "afterwards": afterwards["requests"],
    }


def run(directory, options):
    """Measures all sizes, each way warm, and then the crowd before cold keys."""
    objects = 20 if options.smoke else 2500
    with Line(Path(directory), delay=DELAY) as line, contextlib.ExitStack() as started:
        ways = {}
        if options.forebay:
            ways["forebay"] = started.enter_context(line.forebay('memory = "1GiB"'))
        if not options.smoke:
            ways["nginx"] = line.peer(peers.nginx_cache)
            ways["varnish"] = line.peer(peers.varnish_signed)
        ways["direct"] = line.direct()
        measured = _rounds(line, ways, options, objects)
        crowd = None
        if options.forebay:
            cold_keys = SMOKE_COLD_KEYS if options.smoke else COLD_KEYS
            crowd = _cold_crowd(line, ways["forebay"], cold_keys)
    return {"measured": measured, "crowd": crowd, "rows": _judge(measured, crowd)}


def _judge(measured, crowd):
    rows = []
    caches = [name for name in measured["get 1 KiB"] if name != "direct"]
    for name in caches:
        def asked(word, limit, name=name):
            return (word, limit) if name == "forebay" else None

        for size, times in SIZES.items():
            case = f"get {figures.size_name(size)}"
            found = gates.ratio(measured[case], name, "direct")
            rows.append(gates.gate(f"{name}, {case} ÷ origin", asked("≥", times), found))
        case = f"hot {figures.size_name(HOT_SIZE)}"
        found = gates.ratio(measured[case], name, "direct")
        rows.append(gates.gate(f"{name}, {case} ÷ origin", asked("≥", HOT_TIMES), found))
        for size in SIZES:
            shown = figures.size_name(size)
            both = {way: measured[f"{way} {shown}"][name] for way in ("get", "hot")}
            found = gates.ratio(both, "get", "hot")
            what = f"{name}, all objects ÷ one object, {shown}"
            rows.append(gates.gate(what, asked("≥", SPREAD_RATIO_MIN), found))
    if crowd:
        count = crowd["keys"]
        what = f"{COLD_CLIENTS} clients at once on each of {count} cold keys: "
        rows += [
            gates.gate(what + "origin requests", ("=", count), crowd["requests"]),
            gates.gate(what + "keys that hit afterwards", ("=", count), crowd["hits"]),
        ]
    return rows


def text(figure):
    """The gates, and what was measured."""
    names = ["forebay", "nginx", "varnish", "direct"]
    return gates.table(figure["rows"]) + "\n\n" + gates.rates(figure["measured"], names)
