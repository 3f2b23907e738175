"""What choosing among endpoints, and hedging, cost while all is well.

One server listens on as many ports as there are endpoints, so that it is the same server whichever
is asked. No tap stands before it.
"""

import contextlib
from pathlib import Path

from harness import servers
from harness.metrics import metric

from . import endpoints, gates, load
from .line import Way

NAME = "origin-cost"
SECONDS = 1
CONNECTIONS = 16
COUNT = 3
OBJECTS = 250
CASES = {
    "GET 1 KiB": ["get", "--size", "1KiB", "--objects", OBJECTS],
    "GET 100 KiB": ["get", "--size", "100KiB", "--objects", OBJECTS],
    "PUT 1 KiB": ["put", "--size", "1KiB", "--objects", OBJECTS],
}
PLAIN, HEDGED = "hedge = { enabled = false }", "hedge = { enabled = true }"
# Way → endpoints and settings.
WAYS = {"one": (1, PLAIN), "three": (COUNT, PLAIN), "three, hedged": (COUNT, HEDGED)}
RATE_TIMES = 0.97


class _Origin:
    """One server, at as many addresses as there are endpoints."""

    def __init__(self, directory, started):
        self.directory = directory
        ports = [servers.free_port() for _ in range(COUNT)]
        self.origin = servers.start_versitygw(directory, ports[0], more_ports=ports[1:])
        started.callback(self.origin.stop)
        self.urls = [f"http://127.0.0.1:{port}" for port in ports]

    def gateway(self, name, started):
        count, settings = WAYS[name]
        home = self.directory / f"forebay-{name.replace(', ', '-')}"
        server = servers.start_forebay(home, config=endpoints.config(self.urls[:count], settings))
        started.callback(server.stop)
        processes = {"origin": self.origin.process.pid, "gateway": server.process.pid}
        return Way(server.url, server.credentials, processes, server)


def run(directory, options):
    """All ways in turns, each round from another one on."""
    with contextlib.ExitStack() as started:
        origin = _Origin(Path(directory), started)
        ways = {name: origin.gateway(name, started) for name in WAYS}
        measured = {case: _rounds(origin, ways, words, options) for case, words in CASES.items()}
        hedges = metric(ways["three, hedged"].server, "forebay_origin_hedges_issued_total")
    reads = sum(
        one["requests"] for case, turns in measured.items() if case.startswith("GET")
        for one in turns["three, hedged"]
    )
    # Those of the warm-ups are among the hedges and not among the reads.
    share = gates.gate("hedges, in percent of reads", None, hedges / max(reads, 1) * 100, " %")
    return {"measured": measured, "rows": [*_judge(measured), share]}


def _rounds(origin, ways, words, options):
    load.prepare(origin, words)
    timed = [*words, "--concurrency", CONNECTIONS, "--duration", f"{options.seconds}s"]
    turns, names = {name: [] for name in ways}, list(ways)
    for number in range(options.rounds):
        # What is first in a round has the quiet after the last one.
        for name in names[number % len(names):] + names[:number % len(names)]:
            turns[name].append(load.measure(ways[name], timed, origin.directory, number))
    return turns


def _judge(measured):
    rows = []
    for case, turns in measured.items():
        for name in list(WAYS)[1:]:
            asked = ("≥", RATE_TIMES) if name == "three, hedged" else None
            ratio = gates.ratio(turns, name, "one")
            rows.append(gates.gate(f"{case}: requests/s of {name} ÷ of one", asked, ratio))
            ratio = gates.ratio(turns, name, "one", "gateway_cpu_us")
            rows.append(gates.gate(f"{case}: gateway's CPU of {name} ÷ of one", None, ratio))
    return rows


def text(figure):
    """The gates, and what was measured."""
    return gates.table(figure["rows"]) + "\n\n" + gates.rates(
        figure["measured"], WAYS, "gateway's"
    )
