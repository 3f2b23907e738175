"""A whole origin that slows down fivefold under load, and then also fails now and then.

Nothing is retried here, so that whatever the taps see beyond the clients' requests was hedged, or
asked how an endpoint is. All is counted when no request is under way, but at the step itself.
"""

import time
from pathlib import Path

from harness.metrics import metric

from . import endpoints, figures, gates, load
from .endpoints import Endpoints

NAME = "origin-brownout"
SECONDS = 6
SIZE, OBJECTS = 10 << 10, 1000
RATE, SMOKE_RATE = 500, 200
CONNECTIONS = 64
WELL = {"delay": "4ms", "jitter": "1ms", "jitter_shape": "exponential"}
SLOW = {"delay": "20ms", "jitter": "5ms", "jitter_shape": "exponential"}
# The client's look around comes before the first failure.
FAILING = SLOW | {"busy": "10%", "after": "1"}
# The usual share, said here as it is what is judged by.
SHARE = 0.02
SETTINGS = f"""
hedge = {{ enabled = true, share = "{SHARE:.0%}" }}
retries = {{ attempts_max = 1 }}
"""
# Of the failing time: until so many have failed that it is noticed, reads are still hedged.
NOTICE_SHARE = 0.5
PHASES = ("well", "slower from the middle on", "failing, at first", "failing")


class _Counts:
    """What was asked of the gateway, passed the taps and was hedged, at a moment."""

    def __init__(self, way, taps):
        self.asked = endpoints.answered(way)["asked"]
        self.passed = sum(endpoints.passed(taps))
        self.hedges = int(metric(way.server, "forebay_origin_hedges_issued_total"))

    def since(self, before):
        return {
            "asked": self.asked - before.asked, "passed": self.passed - before.passed,
            "hedges": self.hedges - before.hedges,
        }


def _set(taps, faults):
    for tap in taps:
        tap.set_faults(**faults)


def _round(origin, taps, words, options, seed):
    """One gateway through all phases: `{phase: counts, and what the clients saw}`."""

    def reading(seconds):
        timed = [*words, "--warm-up", "0s", "--duration", f"{seconds * 1e3:.0f}ms"]
        return endpoints.loaded(way, timed, origin.directory, seed)

    found = {}
    _set(taps, WELL)
    with origin.passing([tap.url for tap in taps], SETTINGS) as way:
        last = _Counts(way, taps)
        for phase, seconds in zip(
            PHASES,
            (options.seconds, 2 * options.seconds, NOTICE_SHARE * options.seconds, options.seconds),
            strict=True,
        ):
            if phase == "failing, at first":
                _set(taps, FAILING)
            with reading(seconds) as measured:
                if phase == "slower from the middle on":
                    time.sleep(seconds / 2)
                    step = _Counts(way, taps)
                    _set(taps, SLOW)
            counts = _Counts(way, taps)
            found[phase] = counts.since(last) | {
                name: measured[name] for name in ("p50_us", "p99_us", "failed", "requests")
            }
            if phase == "slower from the middle on":
                found["after the step"] = counts.since(step)
            last = counts
    return found


def run(directory, options):
    """A fresh gateway in each round."""
    words = ["get", "--size", f"{SIZE}B", "--objects", OBJECTS, "--concurrency", CONNECTIONS]
    rounds = []
    with Endpoints(Path(directory)) as origin:
        load.prepare(origin, words)
        words += ["--rate", SMOKE_RATE if options.smoke else RATE]
        taps = origin.taps(2, **WELL)
        for seed in range(options.rounds):
            rounds.append(_round(origin, taps, words, options, seed))
    return {"rounds": rounds, "rows": _judge(rounds)}


def _judge(rounds):
    def spread(phase, of):
        return figures.spread([of(one[phase]) for one in rounds])

    def extra(one):
        return (one["passed"] / max(one["asked"], 1) - 1) * 100

    def failed(one):
        return one["failed"] / max(one["failed"] + one["requests"], 1) * 100

    budget = ("≤", SHARE * 100)
    return [
        gates.gate("extra requests while all is well", budget, spread("well", extra), " %"),
        gates.gate(
            "extra requests, with a step to five times the time in the middle", budget,
            spread("slower from the middle on", extra), " %",
        ),
        gates.gate("after the step alone", budget, spread("after the step", extra), " %"),
        gates.gate("requests that fail from then on", None, spread("failing", failed), " %"),
        gates.gate(
            "hedges until that is noticed", None,
            spread("failing, at first", lambda one: one["hedges"]),
        ),
        gates.gate("hedges after", ("=", 0), spread("failing", lambda one: one["hedges"])),
    ]


def text(figure):
    """The gates, and what was measured."""
    rows = []
    for phase in PHASES:
        median = {
            name: figures.spread([one[phase][name] for one in figure["rounds"]])["median"]
            for name in figure["rounds"][0][phase]
        }
        rows.append([
            phase, *(f"{median[name]:,.0f}" for name in ("asked", "passed", "hedges", "failed")),
            f"{median['p50_us'] / 1e3:,.2f}", f"{median['p99_us'] / 1e3:,.2f}",
        ])
    header = ["time", "requests", "at the taps", "hedges", "failed", "p50 ms", "p99 ms"]
    return gates.table(figure["rows"]) + "\n\n" + figures.table(header, rows)
