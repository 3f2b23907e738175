"""Reads through endpoints of which each stalls now and then, hedged and not.

The load is an open loop: the same requests are due at the same times whatever stalls, so that
those who wait leave the others' load as it is.
"""

from pathlib import Path

from . import charts, endpoints, figures, gates, load
from .endpoints import Endpoints

NAME = "origin-tail"
SECONDS = 5
SIZE, OBJECTS = 10 << 10, 1000
RATE, SMOKE_RATE = 1000, 200
# Four times as many as that rate needs at 6 ms, with 1 % of a second more.
CONNECTIONS = 64
# An origin in the same region: nearer ones are lost in the noise of two cores that all share.
FAULTS = {"delay": "5ms", "jitter": "1ms", "slow": "1%", "slow_for": "1s"}
# A tenth of the reads, the usual control arm, with 1 % of them stalled, is the 99.9th percentile
# by itself; so it is made small where that is judged, and the usual one stands beside it.
CONTROL, USUAL_CONTROL = "1%", "10%"
# Extra requests in percent.
TAIL_TIMES, EXTRA_MAX, MEDIAN_TIMES_MAX = 10, 2.5, 1.02


def _hedged(control):
    return f'hedge = {{ enabled = true, control_share = "{control}" }}'


PLAIN = "hedge = { enabled = false }"
# Way → endpoints, settings, and the way that it is judged by.
WAYS = {
    "two": (2, PLAIN, None),
    "two, hedged": (2, _hedged(CONTROL), "two"),
    "two, hedged but for 10 %": (2, _hedged(USUAL_CONTROL), "two"),
    "three": (3, PLAIN, None),
    "three, hedged": (3, _hedged(CONTROL), "three"),
}


def _start(origin):
    """A gateway for each way, before taps of its own."""
    ways, taps = {}, {}
    for name, (count, settings, _) in WAYS.items():
        taps[name] = origin.taps(count, **FAULTS)
        ways[name] = origin.gateway([tap.url for tap in taps[name]], settings)
    return ways, taps


def run(directory, options):
    """Measures all ways in turns; counts what the taps passed meanwhile."""
    directory = Path(directory)
    file = directory / f"{NAME}.json"
    rate = SMOKE_RATE if options.smoke else RATE
    words = ["get", "--size", f"{SIZE}B", "--objects", OBJECTS]
    with Endpoints(directory) as origin:
        load.prepare(origin, words)
        ways, taps = _start(origin)
        words += ["--rate", rate, "--concurrency", CONNECTIONS]
        words += ["--warm-up", "200ms" if options.smoke else "1s"]
        words += ["--duration", f"{options.seconds}s"]
        measured = load.side_by_side(ways, words, file, options.rounds)
        requests = {
            name: {"passed": endpoints.passed(taps[name]), "stalled": _stalled(taps[name])}
            | endpoints.answered(ways[name])
            for name in ways
        }
    if not options.smoke:
        charts.draw(file)
    found = {
        name: _sums(rounds) | requests[name] | {"p50_rounds_ms": _medians(rounds)}
        for name, rounds in measured.items()
    }
    return {"found": found, "rows": _judge(found)}


def _stalled(taps):
    return sum(tap.counts()["faults"]["slow"] for tap in taps)


def _medians(rounds):
    return [load.quantile_ms([one], 0.5) for one in rounds]


def _sums(rounds):
    quantiles = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999}
    return {
        "requests": sum(one["requests"] for one in rounds),
        "failed": sum(sum(one.get("errors", {}).values()) for one in rounds),
        "ms": {name: load.quantile_ms(rounds, share) for name, share in quantiles.items()},
    }


def _judge(found):
    rows = []
    for name, (_, _, beside) in WAYS.items():
        if beside is None:
            continue
        ours, theirs = found[name], found[beside]
        is_usual = name == "two, hedged but for 10 %"
        tail = theirs["ms"]["p99.9"] / max(ours["ms"]["p99.9"], 1e-9)
        asked = None if is_usual else ("≥", TAIL_TIMES)
        rows.append(gates.gate(f"{name}: p99.9 not hedged ÷ hedged", asked, tail))
        extra = (sum(ours["passed"]) / ours["asked"] - 1) * 100
        rows.append(gates.gate(f"{name}: extra requests", ("≤", EXTRA_MAX), extra, " %"))
        pairs = zip(ours["p50_rounds_ms"], theirs["p50_rounds_ms"], strict=True)
        median = figures.spread([one / max(other, 1e-9) for one, other in pairs])
        rows.append(gates.gate(f"{name}: p50 hedged ÷ not", ("≤", MEDIAN_TIMES_MAX), median))
    failed = sum(one["failed"] for one in found.values())
    rows.append(gates.gate("requests that failed or were not sent in time", ("=", 0), failed))
    return rows


def text(figure):
    """The gates, what was measured, and the box plots."""
    rows = [
        [name, f"{one['requests']:,}", *(f"{ms:,.2f}" for ms in one["ms"].values()),
         f"{(sum(one['passed']) / one['asked'] - 1) * 100:.2f} %"]
        for name, one in figure["found"].items()
    ]
    header = ["endpoints", "reads", "p50 ms", "p99 ms", "p99.9 ms", "p99.99 ms", "extra requests"]
    plots = "\n\n".join(
        f"![{chart.stem}](figures/{NAME}/{chart.name})"
        for chart in sorted((figures.FIGURES / NAME).glob("*-latency.svg"))
    )
    return "\n\n".join(filter(None, (
        gates.table(figure["rows"]), figures.table(header, rows), plots,
    )))
