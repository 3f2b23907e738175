"""A cold object of 1 GiB: time to first byte and throughput, direct and through a cold cache.

Beside them a gateway without a cache, and two relays that know nothing of HTTP, one that copies the
bytes and one that has the kernel splice them: what a gateway costs at least on this machine.
"""

from pathlib import Path

from harness import servers
from harness.wire import Wire

from . import figures, peers
from .memory import load

NAME = "cold-read"
MIB = 1 << 20
PARTS = 16
PLAIN = """
[stores.origin]
type = "s3"
endpoint = "{origin}"
region = "us-east-1"
[[routes]]
store = "origin"
"""
CONFIG = PLAIN + """
layers = [{{ type = "cache", memory = "2GiB" }}]
"""


def _fill(origin):
    """Stores the object, and a small one to open connections with."""
    wire = Wire(origin)
    assert wire.signed("PUT", "/bench").status == 200
    assert wire.signed("PUT", "/bench/small", body=b"x").status == 200
    size = str(PARTS * 64 * MIB)
    load(origin, "multipart", "-url", origin.url + "/bench/large", "-size", size,
         "-concurrency", "4")


def _get(server):
    return load(
        server, "get", "-url", server.url + "/bench/large", "-warm", server.url + "/bench/small"
    )


class Relay:
    """A relay before the origin, whose keys it takes."""

    def __init__(self, peer, origin):
        self.peer, self.url, self.credentials = peer, peer.url, origin.credentials

    def stop(self):
        self.peer.stop()


def _ways(directory, origin, options):
    """What starts the server of each way but the direct one."""
    ways = {
        "relay": lambda _: Relay(peers.relay("relay", directory, origin.port), origin),
        "splice": lambda _: Relay(
            peers.relay("splice", directory, origin.port, "-splice"), origin
        ),
    }
    if options.forebay:
        for name, config in (("forebay, no cache", PLAIN), ("forebay", CONFIG)):
            ways[name] = lambda number, name=name, config=config: servers.start_forebay(
                directory / f"{name}-{number}", config=config.format(origin=origin.url)
            )
    return ways


def run(directory, options):
    """Measures direct and through in turns, with a fresh and empty gateway in each round."""
    directory = Path(directory)
    origin = servers.start_versitygw(directory)
    rounds = []
    try:
        _fill(origin)
        _get(origin)  # The file is in the kernel's memory from here on, for all ways.
        for number in range(options.rounds):
            one = {"direct": _get(origin)}
            for name, start in _ways(directory, origin, options).items():
                server = start(number)
                try:
                    one[name] = _get(server)
                finally:
                    server.stop()
            rounds.append(one)
    finally:
        origin.stop()
    measured = ("first_byte_seconds", "bytes_per_second")
    return {
        name: {
            measure: figures.spread([one[name][measure] for one in rounds])
            for measure in measured
        }
        | {
            "ratio": figures.ratio(rounds, name, "direct", "bytes_per_second"),
            "first_byte_added_ms": figures.spread([
                (one[name]["first_byte_seconds"] - one["direct"]["first_byte_seconds"]) * 1e3
                for one in rounds
            ]),
        }
        for name in rounds[0]
    }


def text(figure):
    """The table of the figure."""
    header = ["way", "first byte, ms", "later than direct, ms", "MiB/s", "÷ direct"]
    rows = [
        [
            name,
            f"{row['first_byte_seconds']['median'] * 1e3:.2f}",
            "" if name == "direct" else figures.shown(row["first_byte_added_ms"]),
            f"{row['bytes_per_second']['median'] / MIB:,.0f}",
            "" if name == "direct" else figures.shown(row["ratio"]),
        ]
        for name, row in figure.items()
    ]
    return figures.table(header, rows)
