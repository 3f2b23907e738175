"""Small objects one after another through a tier, beside Redis, the disk and the origin.

Every way has a bucket of its own, so that no hot store holds what is another's.
"""

import contextlib
from pathlib import Path

from . import figures, gates, hot, load, peers
from .line import Line, Way

NAME = "tier-small"
SECONDS = 1
DELAY = "20ms"
SIZES = [1 << 10, 10 << 10, 100 << 10, 1 << 20]
# Beyond it the hot stores are compared with the origin alone.
SMALL_MAX = 100 << 10
OBJECTS = 64
# At most so much is written in a turn: what the disk has not written yet is in the next one's way.
TURN_BYTES_MAX = 64 << 20
HOT = ("redis", "log")
WRITERS = ("redis", "Redis' client", "log", "fdatasync", "direct")
READERS = ("redis", "Redis' client", "log", "cache hit", "direct")
CLIENT_TIMES_MAX, SYNC_ADDED_MS_MAX, HIT_ADDED_MS_MAX, ORIGIN_TIMES = 1.5, 0.3, 0.1, 20
CACHE = 'memory = "256MiB", coherence = { mode = "immutable" }'


def _words(name, size, workload, *more):
    bucket = ["--bucket", f"way-{HOT.index(name)}"] if name in HOT else []
    return [workload, "--size", f"{size}B", "--objects", OBJECTS, *bucket, *more]


@contextlib.contextmanager
def _ways(line, disk):
    server = peers.redis(disk, appendfsync="everysec")
    with contextlib.ExitStack() as started:
        started.callback(server.stop)
        stores = {"redis": hot.redis(server), "log": hot.log(disk / "log")}
        ways = {
            name: started.enter_context(line.gateway(hot.tier(line, store)))
            for name, store in stores.items()
        }
        ways["Redis' client"] = Way(f"redis://{server.host}", None, {"redis": server.pid})
        ways["redis"].processes["redis"] = server.pid
        ways["cache hit"] = started.enter_context(line.forebay(CACHE))
        ways["direct"] = line.direct()
        yield ways


def _fill(line, ways, size):
    """Has every way hold what is read."""
    load.prepare(line, _words("direct", size, "get"))
    names = load.keys(size, OBJECTS)
    for _ in range(2):
        load.read_all(ways["cache hit"], names, size, line.directory)
    for name in (*HOT, "Redis' client"):
        load.prepare_at(ways[name], _words(name, size, "get"), line.directory)


def _turn(line, disk, way, words, size, seconds, seed):
    if way is None:
        return hot.fdatasync(disk, size, seconds)
    requests = max(TURN_BYTES_MAX // size, 1)
    timed = ["--concurrency", 1, "--duration", f"{seconds * 1e3:.0f}ms", "--requests", requests]
    return load.measure(way, [*words, *timed], line.directory, seed)


def run(directory, options):
    """Measures all sizes; the seconds are shared by them."""
    seconds = options.seconds / len(SIZES)
    measured = {}
    with hot.disk_directory() as disk, Line(Path(directory), delay=DELAY) as line:
        with _ways(line, disk) as ways:
            for size in SIZES:
                _fill(line, ways, size)
                for workload, names in (("put", WRITERS), ("get", READERS)):
                    turns = {name: [] for name in names}
                    for number in range(options.rounds):
                        for name in names:
                            words = _words(name, size, workload)
                            way = ways.get(name)
                            one = _turn(line, disk, way, words, size, seconds, number)
                            turns[name].append(one)
                    measured[f"{workload} {figures.size_name(size)}"] = turns
    return {"measured": measured, "rows": _judge(measured)}


def _later(turns, theirs):
    """Milliseconds by which the log's median is later."""
    added = gates.difference(turns, "log", theirs, "p50_us")
    return {name: n if name == "rounds" else n / 1e3 for name, n in added.items()}


def _judge(measured):
    rows = []
    for size in SIZES:
        is_small = size <= SMALL_MAX
        for workload, theirs, most in (
            ("put", "fdatasync", SYNC_ADDED_MS_MAX), ("get", "cache hit", HIT_ADDED_MS_MAX),
        ):
            case = f"{workload} {figures.size_name(size)}"
            turns = measured[case]
            ratio = gates.ratio(turns, "redis", "Redis' client", "p50_us")
            asked = ("≤", CLIENT_TIMES_MAX) if is_small else None
            rows.append(gates.gate(f"{case}, on redis: p50 ÷ Redis' client", asked, ratio))
            asked = ("≤", most) if is_small else None
            what = f"{case}, on log: p50 later than {'a' if workload == 'get' else 'an'} {theirs}"
            rows.append(gates.gate(what, asked, _later(turns, theirs), " ms"))
            for name in HOT:
                times = gates.ratio(turns, "direct", name, "p50_us")
                what = f"{case}: the origin's p50 ÷ on {name}"
                rows.append(gates.gate(what, ("≥", ORIGIN_TIMES), times))
    return rows


def text(figure):
    """The gates, and what was measured."""
    names = dict.fromkeys((*WRITERS, *READERS))
    return gates.table(figure["rows"]) + "\n\n" + gates.rates(
        figure["measured"], names, "gateway's"
    )
