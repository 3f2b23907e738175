"""Blocks of a few KiB, 16 in flight, against an origin 5 ms away: in the dirty budget and beyond.

A budget that was filled drains while the origin has its turn, so before each measurement of a set
that does not fit twice the budget is written. How many writes then went to the origin in place of
the hot store is beside each figure: none says that the budget was not exceeded.
"""

import contextlib
from pathlib import Path

from harness.metrics import metric

from . import figures, gates, hot, load, peers
from .line import Line

NAME = "tier-blocks"
SECONDS = 1
DELAY = "5ms"
MIB = 1 << 20
IN_FLIGHT = 16
BLOCKS = [4 << 10, 64 << 10]
# What fits is a quarter of its budget: from half of it on the mover hurries.
FITTING_SET, FITTING_BUDGET = 8 * MIB, 32 * MIB
BUDGET, TIMES = 4 * MIB, [8, 64]
# A cache can't be smaller; the budget below it is as large.
READ_BUDGET = 8 * MIB
HOT = ("log", "redis")
FITS_TIMES, EXCEEDS_TIMES, READS_TIMES = 50, 1.0, 1.5
# Shares of the seconds: there are many cases.
FITTING_SHARE, EXCEEDING_SHARE, READING_SHARE = 0.3, 0.3, 0.4
# A seed that no measurement has: its keys would be those that were just written.
FILL_SEED = 1000


def _words(access, set_bytes, block, *more):
    return [
        "blocks", "--cache-size", f"{set_bytes}B", "--working-set", "1",
        "--object-size", f"{set_bytes}B", "--block-size", f"{block}B", "--block-access", access,
        "--in-flight", IN_FLIGHT, *more,
    ]


def _degraded(way):
    """Writes that went to the origin as the budget was spent."""
    if way.server is None:
        return 0
    try:
        return metric(way.server, "forebay_tier_degradations_total", cause="budget")
    except AssertionError:  # It is not shown before it has counted anything.
        return 0


def _turns(ways, words, seconds, line, rounds, fill=None):
    """In turns; each way's begins with `fill` requests that are not counted, or a warm-up."""
    warm_up = 0 if fill else seconds / 3
    timed = ["--duration", f"{seconds * 1e3:.0f}ms", "--warm-up", f"{warm_up * 1e3:.0f}ms"]
    turns = {name: [] for name in ways}
    for number in range(rounds):
        for name, way in ways.items():
            if fill and way.server:
                filling = [*words, "--requests", fill]
                load.measure(way, filling, line.directory, FILL_SEED + number)
            before = _degraded(way)
            one = load.measure(way, [*words, *timed], line.directory, number)
            degraded = (_degraded(way) - before) / one["requests"]
            turns[name].append(one | {"degraded_share": degraded})
    return turns


@contextlib.contextmanager
def _gateways(line, disk, server, case, budget):
    """The origin and a tier on each hot store, empty, with such a budget."""
    settings = f'{hot.LATER}, dirty_max = "{budget}B"'
    stores = {"log": hot.log(disk / f"log-{case}"), "redis": hot.redis(server, f"case-{case}")}
    with contextlib.ExitStack() as started:
        ways = {
            name: started.enter_context(line.gateway(hot.tier(line, stores[name], settings)))
            for name in HOT
        }
        yield ways | {"direct": line.direct()}


def _writes(line, disk, server, options):
    fitting, exceeding = {}, {}
    for case, block in enumerate(BLOCKS):
        seconds = options.seconds * FITTING_SHARE
        words = _words("write", FITTING_SET, block)
        with _gateways(line, disk, server, f"fits-{case}", FITTING_BUDGET) as ways:
            fitting[f"{figures.size_name(block)} writes, a quarter of the budget"] = _turns(
                ways, words, seconds, line, options.rounds
            )
        for times in TIMES:
            seconds = options.seconds * EXCEEDING_SHARE
            words = _words("write", BUDGET * times, block)
            with _gateways(line, disk, server, f"{times}-{case}", BUDGET) as ways:
                exceeding[f"{figures.size_name(block)} writes, {times} × the budget"] = _turns(
                    ways, words, seconds, line, options.rounds, fill=2 * BUDGET // block
                )
    return fitting, exceeding


def _reads(line, disk, options):
    measured = {}
    budget = f'{hot.LATER}, dirty_max = "{READ_BUDGET}B"'
    cache = f'{{ type = "cache", memory = "{READ_BUDGET}B", page = "64KiB" }}, '
    for times in TIMES:
        words = _words("read", READ_BUDGET * times, BLOCKS[0], "--zipf", "0.99")
        load.prepare(line, words)
        seconds = options.seconds * READING_SHARE
        config = hot.tier(line, hot.log(disk / f"log-reads-{times}"), budget, cache)
        with line.gateway(config) as gateway:
            ways = {"log": gateway, "direct": line.direct()}
            case = f"{figures.size_name(BLOCKS[0])} reads, zipf 0.99, {times} × the cache"
            measured[case] = _turns(ways, words, seconds, line, options.rounds)
    return measured


def run(directory, options):
    """Writes that fit, writes that do not, and reads."""
    with hot.disk_directory() as disk, Line(Path(directory), delay=DELAY) as line:
        # Makes the bucket.
        load.prepare(line, _words("read", MIB, BLOCKS[0]))
        server = peers.redis(disk, appendfsync="everysec")
        try:
            fitting, exceeding = _writes(line, disk, server, options)
        finally:
            server.stop()
        reading = _reads(line, disk, options)
    rows = _judge(fitting, HOT, FITS_TIMES)
    rows += _judge(exceeding, HOT, EXCEEDS_TIMES, _unspent)
    rows += _judge(reading, ("log",), READS_TIMES)
    rows += _judge_degraded(fitting, ("=", 0)) + _judge_degraded(exceeding, None)
    return {"measured": fitting | exceeding | reading, "rows": rows}


def _judge(measured, names, least, note=lambda rounds: ""):
    rows = []
    for case, turns in measured.items():
        for name in names:
            ratio = gates.ratio(turns, name, "direct")
            what = f"{case}, on {name}: ÷ origin{note(turns[name])}"
            rows.append(gates.gate(what, ("≥", least), ratio))
    return rows


def _unspent(rounds):
    """Says of a set larger than the budget that the mover kept up: the figure proves little."""
    is_spent = any(one["degraded_share"] for one in rounds)
    return "" if is_spent else " (budget never spent)"


def _judge_degraded(measured, asked):
    return [
        gates.gate(
            f"{case}, on {name}: share of writes that the budget sent to the origin", asked,
            figures.spread([one["degraded_share"] for one in turns[name]]),
        )
        for case, turns in measured.items() for name in HOT
    ]


def text(figure):
    """The gates, and what was measured."""
    return gates.table(figure["rows"]) + "\n\n" + gates.rates(
        figure["measured"], (*HOT, "direct"), "gateway's"
    )
