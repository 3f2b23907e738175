"""The mover against the rate of the origin that it fills, and what reads see of it.

A gateway is filled and stopped; the next one on the same hot store moves all that it finds. The
few objects that are read were written last, and the oldest are moved first.
"""

import time
from pathlib import Path

from harness import servers
from harness.metrics import metric
from harness.wire import Wire

from . import figures, gates, hot, load, peers
from .line import Line

NAME = "tier-mover"
SECONDS = 1
DELAY = "20ms"
SIZE = 1 << 10
MOVES_MAX = 16
READ_OBJECTS, READS_PER_SECOND, READERS = 64, 1000, 4
# More than 16 at once can be in a second with 20 ms each, and time to start and to end.
MOVES_PER_SECOND_MAX, SPARE_SECONDS = 800, 2
# A move under way may send one there.
COLD_READS_SHARE_MAX = 0.01
HOT = ("log", "redis")
RATE_TIMES, P99_TIMES_MAX = 0.9, 1.2
DIRTY_MAX = "1GiB"
WORDS = ["--size", f"{SIZE}B"]


def _config(line, store, demote_after):
    settings = f'demote_after = "{demote_after}", moves_max = {MOVES_MAX}'
    return hot.tier(line, store, f'{settings}, dirty_max = "{DIRTY_MAX}"')


def _read(way, bucket, options, directory, seed):
    words = ["get", *WORDS, "--objects", READ_OBJECTS, "--bucket", bucket]
    words += ["--rate", READS_PER_SECOND, "--concurrency", READERS]
    words += ["--duration", f"{options.seconds}s"]
    return load.measure(way, words, directory, seed)


def _fill(way, bucket, count, directory):
    """Writes what is to be moved, and after it what is read."""
    words = ["put", *WORDS, "--objects", count, "--requests", count, "--bucket", bucket]
    load.measure(way, [*words, "--concurrency", 16, "--warm-up", "0s"], directory)
    words = ["get", *WORDS, "--objects", READ_OBJECTS, "--bucket", bucket]
    load.prepare_at(way, words, directory)


def _put_count(line):
    """PUTs that have passed the tap, and when they were counted."""
    return line.counts()["requests_by_method"].get("PUT", 0), time.monotonic()


def _moving(line, way, bucket, options, seed):
    """The reads beside the mover, and the mover's own rate meanwhile."""
    before, _ = _put_count(line)
    count = _object_count(options)
    servers.wait_until(lambda: _put_count(line)[0] - before > MOVES_MAX, "the mover to begin")
    with line.counted() as passed:
        first, began = _put_count(line)
        read = _read(way, bucket, options, line.directory, seed)
        last, ended = _put_count(line)
    if last - before >= count:
        raise SystemExit("the mover was done before the reads were: it needs more objects")
    asked_of_origin = passed["requests_by_method"].get("GET", 0)
    if asked_of_origin > COLD_READS_SHARE_MAX * read["requests"]:
        raise SystemExit(f"{asked_of_origin} reads of hot objects went to the origin")
    for outcome in ("failed", "conflict"):
        count = metric(way.server, "forebay_tier_moves_total", outcome=outcome)
        if count:
            raise SystemExit(f"{count:.0f} moves: {outcome}")
    return read, {
        "per_second": (last - first) / (ended - began),
        # What is under way at either end is in one number and not in the other.
        "requests_per_move": passed["requests"] / (last - first),
        "requests_by_method": passed["requests_by_method"],
    }


def _object_count(options):
    return int(MOVES_PER_SECOND_MAX * (options.seconds + SPARE_SECONDS))


def _direct(line, bucket, options, seed):
    words = ["put", *WORDS, "--bucket", bucket, "--concurrency", MOVES_MAX]
    words += ["--duration", f"{options.seconds}s"]
    return load.measure(line.direct(), words, line.directory, seed)


def _round(line, store, bucket, options, seed):
    """Reads while nothing moves, reads beside the mover, and the origin's own PUTs."""
    # What the origin is given directly would be somebody else's write of what is to be moved.
    beside = f"{bucket}-direct"
    for name in (bucket, beside):
        assert Wire(line.origin).signed("PUT", f"/{name}").status == 200
    with line.gateway(_config(line, store, "1h")) as way:
        _fill(way, bucket, _object_count(options), line.directory)
        quiet = _read(way, bucket, options, line.directory, seed)
    direct = _direct(line, beside, options, seed)
    with line.gateway(_config(line, store, "0s")) as way:
        read, mover = _moving(line, way, bucket, options, seed)
    return {"reads, nothing moves": quiet, "reads, moving": read, "direct": direct}, mover


def run(directory, options):
    """Each round on both kinds of hot store, always empty ones."""
    turns = {name: {} for name in HOT}
    movers = {name: [] for name in HOT}
    with hot.disk_directory() as disk, Line(Path(directory), delay=DELAY) as line:
        server = peers.redis(disk, appendfsync="everysec")
        try:
            for number in range(options.rounds):
                for name in HOT:
                    key = f"{name}-{number}"
                    is_log = name == "log"
                    store = hot.log(disk / key) if is_log else hot.redis(server, key)
                    one, mover = _round(line, store, key, options, number)
                    movers[name].append(mover)
                    for way, measured in one.items():
                        turns[name].setdefault(way, []).append(measured)
        finally:
            server.stop()
    measured = {f"on {name}": turns[name] for name in HOT}
    return {"measured": measured, "movers": movers, "rows": _judge(turns, movers)}


def _judge(turns, movers):
    rows = []
    for name in HOT:
        ways = turns[name] | {"mover": movers[name]}
        rate = gates.ratio(ways, "mover", "direct")
        what = f"on {name}: moves ÷ the origin's own rate of {MOVES_MAX} PUTs at once"
        rows.append(gates.gate(what, ("≥", RATE_TIMES), rate))
        p99 = gates.ratio(ways, "reads, moving", "reads, nothing moves", "p99_us")
        what = f"on {name}: p99 of reads beside it ÷ while nothing moves"
        rows.append(gates.gate(what, ("≤", P99_TIMES_MAX), p99))
        for measure, what in (
            ("per_second", "moves per second"), ("requests_per_move", "origin requests per move"),
        ):
            spread = figures.spread([one[measure] for one in movers[name]])
            rows.append(gates.gate(f"on {name}: {what}", None, spread))
    return rows


def text(figure):
    """The gates, and what was measured."""
    names = ("reads, nothing moves", "reads, moving", "direct")
    return gates.table(figure["rows"]) + "\n\n" + gates.rates(
        figure["measured"], names, "gateway's"
    )
