"""A cold object of 1 GiB: time to first byte and throughput, direct and through a cold cache."""

from pathlib import Path

from harness import servers
from harness.wire import Wire

from . import figures
from .memory import load

NAME = "cold-read"
MIB = 1 << 20
PARTS = 16
CONFIG = """
[stores.origin]
type = "s3"
endpoint = "{origin}"
region = "us-east-1"
[[routes]]
store = "origin"
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


def run(directory, options):
    """Measures direct and through in turns, with a fresh and empty gateway in each round."""
    directory = Path(directory)
    origin = servers.start_versitygw(directory)
    rounds = []
    try:
        _fill(origin)
        _get(origin)  # The file is in the kernel's memory from here on, for both ways.
        for number in range(options.rounds):
            one = {"direct": _get(origin)}
            if options.forebay:
                gateway = servers.start_forebay(
                    directory / f"forebay-{number}", config=CONFIG.format(origin=origin.url)
                )
                try:
                    one["forebay"] = _get(gateway)
                finally:
                    gateway.stop()
            rounds.append(one)
    finally:
        origin.stop()
    names = list(rounds[0])
    figure = {
        name: {
            measure: figures.spread([one[name][measure] for one in rounds])
            for measure in ("first_byte_seconds", "bytes_per_second")
        }
        for name in names
    }
    if options.forebay:
        figure["ratio"] = figures.ratio(rounds, "forebay", "direct", "bytes_per_second")
        figure["first_byte_added_seconds"] = figures.spread([
            one["forebay"]["first_byte_seconds"] - one["direct"]["first_byte_seconds"]
            for one in rounds
        ])
    return figure


def text(figure):
    """The table of the figure."""
    rows = [
        [name, f"{figure[name]['first_byte_seconds']['median'] * 1e3:.2f}",
         f"{figure[name]['bytes_per_second']['median'] / MIB:,.0f}"]
        for name in ("direct", "forebay") if name in figure
    ]
    lines = [figures.table(["way", "first byte, ms", "MiB/s"], rows)]
    if "ratio" in figure:
        added = {
            key: value * 1e3 if key != "rounds" else value
            for key, value in figure["first_byte_added_seconds"].items()
        }
        lines.append(
            f"Throughput through ÷ direct: {figures.shown(figure['ratio'])}. First byte later by "
            f"{figures.shown(added)} ms. Median of the rounds (least–most)."
        )
    return "\n\n".join(lines)
