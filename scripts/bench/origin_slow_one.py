"""One of three endpoints gets ten times slower under load, and well again.

Each endpoint answers so many requests at a time (`--workers` of the tap), so that what all of them
give is the sum of what each can, and a request that waits for the slow one is missing elsewhere.
"""

from pathlib import Path

from . import endpoints, figures, gates, load
from .endpoints import TICK_SECONDS, Endpoints, Watch

NAME = "origin-slow-one"
SECONDS = 5
SIZE, OBJECTS = 10 << 10, 1000
# 600 requests a second of each at best; 16 clients for each.
WELL = {"delay": "5ms", "workers": "3"}
SLOW = {"delay": "50ms", "workers": "3"}
CLIENTS = 48
COUNT = 3
SETTINGS = "hedge = { enabled = true }"
# Of two good ones; within so many seconds; and the third's share of requests once it is back.
RATE_TIMES, SLOW_SECONDS_MAX, BACK_SECONDS_MAX, BACK_SHARE = 0.95, 2, 5, 0.25


def _phase(watch, seconds):
    began = watch.look()["at"]
    watch.look_for(seconds)
    return began


def _round(origin, taps, words, options, seed):
    """What the gateway gives before, during and after, in windows of half a second."""
    good, slow, back = options.seconds, SLOW_SECONDS_MAX + options.seconds, (
        BACK_SECONDS_MAX + options.seconds / 2
    )
    if options.smoke:
        good = slow = back = 2 * TICK_SECONDS
    with origin.passing([tap.url for tap in taps], SETTINGS) as way:
        watch = Watch(way, taps)
        timed = [*words, "--warm-up", "0s", "--duration", f"{good + slow + back + 1:.0f}s"]
        with endpoints.loaded(way, timed, origin.directory, seed) as measured:
            began = _phase(watch, good)
            taps[-1].set_faults(**SLOW)
            slowed = _phase(watch, slow)
            taps[-1].set_faults(**WELL)
            recovered = _phase(watch, back)
    end = watch.ticks[-1]["at"]
    return {
        # The first second is the gateway's and the clients' start.
        "well": watch.windows(began + min(1, good / 2), slowed),
        "slow": watch.windows(slowed, recovered),
        "back": watch.windows(recovered, end),
        "slowed": slowed, "recovered": recovered, "failed": measured["failed"],
    }


def _two(origin, taps, words, options, seed):
    """What the two good ones give by themselves."""
    with origin.passing([tap.url for tap in taps[:-1]], SETTINGS) as way:
        timed = [*words, "--warm-up", "500ms", "--duration", f"{options.seconds}s"]
        return load.measure(way, timed, origin.directory, seed)["per_second"]


def run(directory, options):
    """Each round with fresh gateways."""
    words = ["get", "--size", f"{SIZE}B", "--objects", OBJECTS, "--concurrency", CLIENTS]
    rounds = []
    with Endpoints(Path(directory)) as origin:
        load.prepare(origin, words)
        taps = origin.taps(COUNT, **WELL)
        for seed in range(options.rounds):
            two = _two(origin, taps, words, options, seed)
            rounds.append({"two": two} | _round(origin, taps, words, options, seed))
    return {"rounds": rounds, "rows": _judge(rounds)}


def _mean(windows, since=0):
    rates = [window["per_second"] for window in windows if window["from"] >= since]
    return sum(rates) / max(len(rates), 1)


def _seconds_until(windows, began, is_so):
    """Until the end of the first of two windows in a row that are so, or else until the last."""
    holds = [is_so(window) for window in windows]
    for window, now, then in zip(windows, holds, [*holds[1:], True], strict=True):
        if now and then:
            return window["to"] - began
    return windows[-1]["to"] - began if windows else 0


def _judge(rounds):
    def spread(of):
        return figures.spread([of(one) for one in rounds])

    def good_again(one):
        return _seconds_until(
            one["slow"], one["slowed"],
            lambda window: window["per_second"] >= RATE_TIMES * one["two"],
        )

    def back(one):
        return _seconds_until(
            one["back"], one["recovered"], lambda window: window["shares"][-1] >= BACK_SHARE
        )

    since = SLOW_SECONDS_MAX
    return [
        gates.gate("two by themselves, requests/s", None, spread(lambda one: one["two"])),
        gates.gate(
            "three, all well ÷ two by themselves", None,
            spread(lambda one: _mean(one["well"]) / one["two"]),
        ),
        gates.gate(
            "one of three slow: time until as two by themselves", ("≤", SLOW_SECONDS_MAX),
            spread(good_again), " s",
        ),
        gates.gate(
            f"from {since} s on ÷ two by themselves", ("≥", RATE_TIMES),
            spread(lambda one: _mean(one["slow"], one["slowed"] + since) / one["two"]),
        ),
        gates.gate(
            "share of the slow one", None,
            spread(lambda one: one["slow"][-1]["shares"][-1] if one["slow"] else 0),
        ),
        gates.gate(
            f"well again: time until it has {BACK_SHARE:.0%} of requests",
            ("≤", BACK_SECONDS_MAX), spread(back), " s",
        ),
        gates.gate("requests that failed", ("=", 0), sum(one["failed"] for one in rounds)),
    ]


def text(figure):
    """The gates, and a round in windows."""
    rows = [
        [f"{window['from'] - one['slowed']:+.1f} s", name, f"{window['per_second']:,.0f}",
         *(f"{share:.2f}" for share in window["shares"])]
        for one in figure["rounds"][:1]
        for name in ("well", "slow", "back")
        for window in one[name]
    ]
    header = ["since the step", "the third is", "requests/s"]
    header += [f"share of {number + 1}" for number in range(COUNT)]
    return gates.table(figure["rows"]) + "\n\nThe first round:\n\n" + figures.table(header, rows)
