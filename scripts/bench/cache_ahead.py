"""A cold object of 1 GiB behind a line of 20 ms and 100 MB/s a connection, read by one client.

In ranges of 1 MiB, one after another, and as a whole. Each reads for some seconds from the start of
the object, since all of it would take half a minute.
"""

import socket
import time
from pathlib import Path

from harness import sigv4
from harness.wire import Wire, head_bytes

from . import figures, gates
from .line import Line
from .memory import load

NAME = "cache-ahead"
SECONDS = 2
MIB = 1 << 20
SIZE, SMOKE_SIZE = 1 << 30, 128 << 20
RANGE = MIB
LINE = {"delay": "20ms", "bandwidth": "100MB"}
CACHE = 'memory = "2GiB"'
PATH = "/ahead/large"


class Reader:
    """One connection, and as little work for each byte as Python allows."""

    def __init__(self, way):
        address = way.url.removeprefix("http://")
        host, _, port = address.partition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        scope = sigv4.Scope(credentials=way.credentials)
        self.headers = sigv4.sign_headers(scope, "GET", address, PATH)
        self.buffer = memoryview(bytearray(4 * MIB))

    def get(self, length, deadline, byte_range=None):
        """Reads an answer of so many bytes, up to the deadline; gives how many came."""
        headers = dict(self.headers)
        if byte_range:
            headers["range"] = "bytes={}-{}".format(*byte_range)
        self.socket.sendall(head_bytes("GET", PATH, headers))
        head, count = b"", 0
        while b"\r\n\r\n" not in head:
            head += self.socket.recv(64 << 10)
        assert head.split()[1] in (b"200", b"206"), head
        count = len(head.partition(b"\r\n\r\n")[2])
        while count < length and time.monotonic() < deadline:
            count += self.socket.recv_into(self.buffer[: min(length - count, 4 * MIB)])
        return count

    def close(self):
        self.socket.close()


def _ranges(reader, size, deadline):
    done = 0
    while done < size and time.monotonic() < deadline:
        done += reader.get(RANGE, float("inf"), (done, done + RANGE - 1))
    return done


def _whole(reader, size, deadline):
    return reader.get(size, deadline)


LOADS = {"ranges of 1 MiB": _ranges, "whole": _whole}


def _measure(way, read, size, seconds):
    reader = Reader(way)
    try:
        begin = time.monotonic()
        done = read(reader, size, begin + seconds)
        return {"bytes": done, "bytes_per_second": done / (time.monotonic() - begin)}
    finally:
        reader.close()


def run(directory, options):
    """Direct and through a fresh gateway, in turns."""
    size = SMOKE_SIZE if options.smoke else SIZE
    measured = {name: {"direct": [], "forebay": []} for name in LOADS}
    with Line(Path(directory), **LINE) as line:
        wire = Wire(line.origin)
        assert wire.signed("PUT", "/ahead").status == 200
        load(line.origin, "multipart", "-url", line.origin.url + PATH, "-size", str(size),
             "-concurrency", "4")
        for _ in range(options.rounds):
            for name, read in LOADS.items():
                seconds = options.seconds
                measured[name]["direct"].append(_measure(line.direct(), read, size, seconds))
                with line.forebay(CACHE) as way, line.counted() as passed:
                    one = _measure(way, read, size, seconds)
                one["fetched"] = passed["body_bytes_to_client"] / one["bytes"]
                measured[name]["forebay"].append(one)
    return {"measured": measured}


def text(figure):
    """The table of the figure."""
    rows = []
    for name, turns in figure["measured"].items():
        rates = {
            way: figures.spread([one["bytes_per_second"] / MIB for one in rounds])
            for way, rounds in turns.items()
        }
        ratio = gates.ratio(turns, "forebay", "direct", "bytes_per_second")
        rows.append([
            name, figures.shown(rates["direct"], 0), figures.shown(rates["forebay"], 0),
            figures.shown(ratio),
            figures.shown(figures.spread([one["fetched"] for one in turns["forebay"]])),
        ])
    header = ["read", "direct, MiB/s", "forebay, MiB/s", "forebay ÷ direct"]
    return figures.table([*header, "bytes fetched ÷ read"], rows)
