"""Ranges of a large object, in pages of 64 KiB, against an origin 5 ms away."""

import math
from pathlib import Path

from . import figures, gates, load
from .line import Line

NAME = "cache-blocks"
SECONDS = 1
DELAY = "5ms"
MIB = 1 << 20
PAGE_BYTES = 64 << 10
BLOCKS = [4 << 10, 16 << 10, 64 << 10]
# Requests in flight; the gate is for the last.
IN_FLIGHT = [4, 16]
FITTING_SET, FITTING_CACHE = 64 * MIB, 256 * MIB
# A cache of an eighth of the set.
LARGE_SET, SMALL_CACHE = 256 * MIB, 32 * MIB
FITS_TIMES, EIGHTH_TIMES, FETCHED_TIMES_MAX = 50, 1.5, 1.3
# Share of a set's blocks that are asked for, each at random, before bytes are compared.
SHARES = [0.25, 4]


def _cache(size):
    return f'memory = "{size // MIB}MiB", page = "{PAGE_BYTES >> 10}KiB"'


def _words(set_bytes, block, in_flight, *more):
    return [
        "blocks", "--cache-size", f"{set_bytes}B", "--working-set", "1",
        "--object-size", f"{set_bytes}B", "--block-size", f"{block}B", "--block-access", "read",
        "--in-flight", in_flight, *more,
    ]


def _turns(line, cache, cases, options, is_warm):
    """`{case: {way: [rounds]}}`, each case on a gateway that has read the set, or the case."""
    measured = {}
    for case, words in cases.items():
        ways = {"direct": line.direct()}
        words = [*words, "--duration", f"{options.seconds}s"]
        with line.forebay(cache) as ways["forebay"]:
            if is_warm:
                names = load.keys(FITTING_SET, 1, "blocks")
                load.read_all(ways["forebay"], names, FITTING_SET, line.directory)
            else:
                for _ in range(2):
                    load.measure(ways["forebay"], words, line.directory)
            measured[case] = {name: [] for name in ways}
            for number in range(options.rounds):
                for name, way in ways.items():
                    one = load.measure(way, words, line.directory, number)
                    measured[case][name].append(one)
    return measured


def _distinct(requests, blocks):
    """How many of the blocks so many random requests meet, in the mean."""
    return blocks * -math.expm1(requests * math.log1p(-1 / blocks))


def _fetched(line, options):
    """Bytes fetched over distinct bytes asked for, on a cold gateway each time."""
    found = {}
    for block in BLOCKS:
        blocks = FITTING_SET // block
        for share in SHARES[:1] if options.smoke else SHARES:
            requests = int(blocks * share)
            words = [*_words(FITTING_SET, block, IN_FLIGHT[-1]), "--requests", requests]
            with line.forebay(_cache(FITTING_CACHE)) as way, line.counted() as passed:
                load.measure(way, words, line.directory)
            distinct = _distinct(requests, blocks) * block
            per_page = PAGE_BYTES // block
            # What must be fetched of pages: those that hold what was asked for.
            pages = _distinct(requests, blocks // per_page) * PAGE_BYTES
            fetched = passed["body_bytes_to_client"]
            found[f"{figures.size_name(block)}, {share:g} × the blocks"] = {
                "ratio": fetched / distinct, "pages_ratio": pages / distinct,
                "requests": passed["requests"], "fetched_bytes": fetched,
                "is_gated": share >= 1 or block == PAGE_BYTES,
            }
        if options.smoke:
            break
    return found


def run(directory, options):
    """Measures a set that fits, one that does not, and what is fetched."""
    blocks = BLOCKS[:1] if options.smoke else BLOCKS
    fitting = {
        f"{figures.size_name(block)}, {clients} in flight, fits":
            _words(FITTING_SET, block, clients)
        for block in blocks for clients in IN_FLIGHT
    }
    eighth = {
        f"{figures.size_name(block)}, {IN_FLIGHT[-1]} in flight, zipf 0.99, cache of an eighth":
            _words(LARGE_SET, block, IN_FLIGHT[-1], "--zipf", "0.99")
        for block in blocks
    }
    with Line(Path(directory), delay=DELAY) as line:
        load.prepare(line, _words(FITTING_SET, PAGE_BYTES, 1))
        measured = _turns(line, _cache(FITTING_CACHE), fitting, options, is_warm=True)
        if not options.smoke:
            load.prepare(line, _words(LARGE_SET, PAGE_BYTES, 1))
            measured |= _turns(line, _cache(SMALL_CACHE), eighth, options, is_warm=False)
        fetched = _fetched(line, options)
    return {
        "measured": measured, "fetched": fetched,
        "rows": _judge(measured, (fitting, eighth), fetched),
    }


def _judge(measured, groups, fetched):
    rows = []
    for cases, times in zip(groups, (FITS_TIMES, EIGHTH_TIMES), strict=True):
        for case in cases:
            if case in measured:
                asked = ("≥", times) if f" {IN_FLIGHT[-1]} in" in case else None
                ratio = gates.ratio(measured[case], "forebay", "direct")
                rows.append(gates.gate(f"{case}: ÷ origin", asked, ratio))
    for case, one in fetched.items():
        asked = ("≤", FETCHED_TIMES_MAX) if one["is_gated"] else None
        what = f"{case} asked for: fetched ÷ distinct bytes asked for"
        if one["pages_ratio"] > FETCHED_TIMES_MAX:
            what += f" (whole pages: {one['pages_ratio']:.1f})"
        rows.append(gates.gate(what, asked, one["ratio"]))
    return rows


def text(figure):
    """The gates, and what was measured."""
    rates = gates.rates(figure["measured"], ["forebay", "direct"])
    return gates.table(figure["rows"]) + "\n\n" + rates
