"""`strict`: each hit asks the origin whether the object has changed, and brings no body from there.

Set against clients that have a copy of their own and ask the origin that question themselves.
"""

from pathlib import Path

from harness.wire import Wire

from . import gates, load
from .line import Line

NAME = "cache-strict"
SECONDS = 1
# The slower line is that of the gate: there a request's time is the line's.
DELAYS = ["5ms", "500us"]
CONNECTIONS, OBJECTS, SIZE = 16, 100, 10 << 10
RATIO_MIN = 0.95
CACHE = 'memory = "256MiB", coherence = { mode = "strict" }'


def _words(options, *more):
    return [
        "get", "--size", f"{SIZE}B", "--objects", OBJECTS, "--concurrency", CONNECTIONS,
        "--duration", f"{options.seconds}s", *more,
    ]


def run(directory, options):
    """Full reads through the gateway in turns with conditional ones at the origin."""
    measured, passed = {}, {}
    with Line(Path(directory), delay=DELAYS[0]) as line, line.forebay(CACHE) as gateway:
        load.prepare(line, ["get", "--size", f"{SIZE}B", "--objects", OBJECTS])
        load.read_all(gateway, load.keys(SIZE, OBJECTS), SIZE, line.directory)
        for delay in DELAYS:
            line.set_faults(delay=delay)
            turns = measured[f"behind {delay}"] = {"forebay": [], "direct, conditional": []}
            for number in range(options.rounds):
                direct = _words(options, "--if-none-match")
                turns["direct, conditional"].append(
                    load.measure(line.direct(), direct, line.directory, number)
                )
                turns["forebay"].append(
                    load.measure(gateway, _words(options), line.directory, number)
                )
        with line.counted() as passed:
            for key in load.keys(SIZE, OBJECTS):
                answer = Wire(gateway.server).signed("GET", f"/{load.BUCKET}/{key}")
                assert len(answer.body) == SIZE
                assert "fwd-status=304" in answer.header("cache-status"), answer.headers
    return {"measured": measured, "passed": passed, "rows": _judge(measured, passed)}


def _judge(measured, passed):
    rows = [
        gates.gate(
            f"reads through the gateway ÷ conditional reads at the origin, {case}",
            ("≥", RATIO_MIN) if case.endswith(DELAYS[0]) else None,
            gates.ratio(turns, "forebay", "direct, conditional"),
        )
        for case, turns in measured.items()
    ]
    return rows + [
        gates.gate(f"origin requests for {OBJECTS} hits", ("=", OBJECTS), passed["requests"]),
        gates.gate("of them answered by 304", ("=", OBJECTS), passed["responses"].get("304", 0)),
        gates.gate("bytes of bodies from the origin", ("=", 0), passed["body_bytes_to_client"]),
    ]


def text(figure):
    """The gates, and what was measured."""
    rates = gates.rates(figure["measured"], ["forebay", "direct, conditional"])
    return gates.table(figure["rows"]) + "\n\n" + rates
