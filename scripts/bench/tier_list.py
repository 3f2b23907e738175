"""Lists of 1,000 keys where the hot store holds 100,000 that the origin, with as many, lacks.

The page begins at a place chosen by chance, the same for all in a round.
"""

import contextlib
import http.client
import os
import random
import time
from pathlib import Path

from harness import sigv4
from harness.wire import Wire, with_query

from . import gates, hot, load, machine, peers
from .line import Line

NAME = "tier-list"
SECONDS = 2
COUNT, SIZE = 100_000, 1 << 10
PAGE_KEYS = 1000
# Far from what makes the mover hurry: nothing is moved.
DIRTY_MAX = "4GiB"
TIMES_MAX = 1.3
HOT = ("log", "redis")
CASE = f"LIST {PAGE_KEYS:,} keys"


def _fill_origin(line):
    """Objects beside those that will be dirty, with all that the origin notes of an object.

    As copies of the files of one, since 100,000 requests would take longer than all the rest.
    """
    wire, names = Wire(line.origin), load.keys(SIZE, COUNT, "put")
    assert wire.signed("PUT", f"/{load.BUCKET}").status == 200
    assert wire.signed("PUT", f"/{load.BUCKET}/model", body=b"x").status == 200
    bucket = line.origin.data / load.BUCKET
    model = bucket / "model"
    noted = {name: os.getxattr(model, name) for name in os.listxattr(model)}
    for name in names:
        file = bucket / f"{name}-cold"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
        for attribute, content in noted.items():
            os.setxattr(file, attribute, content)
    assert wire.signed("DELETE", f"/{load.BUCKET}/model").status == 204


def _fill(way, directory):
    """Writes each of the dirty objects once."""
    words = ["put", "--size", f"{SIZE}B", "--objects", COUNT, "--requests", COUNT]
    load.measure(way, [*words, "--concurrency", 64, "--warm-up", "0s"], directory)


def _list(connection, way, after):
    """Seconds of one list, and its body; signed before they are counted."""
    path, host = f"/{load.BUCKET}", f"{connection.host}:{connection.port}"
    query = [("list-type", "2"), ("max-keys", str(PAGE_KEYS)), ("start-after", after)]
    scope = sigv4.Scope(credentials=way.credentials)
    headers = sigv4.sign_headers(scope, "GET", host, path, query)
    start = time.perf_counter()
    connection.request("GET", with_query(path, query), headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    took = time.perf_counter() - start
    assert answer.status == 200, body
    assert body.count(b"<Key>") == PAGE_KEYS, body[:1000]
    return took, body


def _measure(way, seconds, seed):
    names = load.keys(SIZE, COUNT - PAGE_KEYS, "put")
    places, latencies, size = random.Random(seed), [], 0
    host, port = way.url.removeprefix("http://").split(":")
    before, began = way.cpu_seconds(), time.perf_counter()
    with contextlib.closing(http.client.HTTPConnection(host, int(port))) as connection:
        while time.perf_counter() < began + seconds:
            took, body = _list(connection, way, places.choice(names))
            latencies.append(took)
            size = len(body)
    whole = time.perf_counter() - began
    after = way.cpu_seconds()
    used = {name: after[name] - before[name] for name in after}
    return hot.measures(latencies, whole, size) | {
        "cores": sum(used.values()) / whole,
        "gateway_cpu_us": used.get("gateway", 0) / len(latencies) * 1e6,
    }


def _check(ways):
    """Each tier gives keys of both sides, in order and in turns, where the origin gives its own."""
    begin = load.keys(SIZE, 1, "put")[0][:-1]
    for name, way in ways.items():
        host, port = way.url.removeprefix("http://").split(":")
        with contextlib.closing(http.client.HTTPConnection(host, int(port))) as connection:
            _, body = _list(connection, way, begin)
        keys = [part.partition(b"</Key>")[0] for part in body.split(b"<Key>")[1:]]
        assert keys == sorted(keys), name
        cold = sum(key.endswith(b"-cold") for key in keys)
        assert cold == (PAGE_KEYS if name == "direct" else PAGE_KEYS // 2), (name, cold)


def run(directory, options):
    """The origin and a tier on each hot store, in turns."""
    with contextlib.ExitStack() as started:
        disk = started.enter_context(hot.disk_directory())
        line = started.enter_context(Line(Path(directory)))
        server = peers.redis(disk, appendfsync="everysec")
        started.callback(server.stop)
        _fill_origin(line)
        settings = f'{hot.LATER}, dirty_max = "{DIRTY_MAX}"'
        ways = {}
        for name, store in (("log", hot.log(disk / "log")), ("redis", hot.redis(server))):
            config = hot.tier(line, store, settings)
            ways[name] = started.enter_context(line.gateway(config))
            _fill(ways[name], line.directory)
        ways["redis"].processes["redis"] = server.pid
        ways["direct"] = line.direct()
        _check(ways)
        resident = {
            name: machine.memory_bytes(ways[name].server.process.pid)[0] for name in HOT
        }
        turns = {name: [] for name in ways}
        for number in range(options.rounds):
            for name, way in ways.items():
                turns[name].append(_measure(way, options.seconds, number))
    return {
        "measured": {CASE: turns}, "resident_bytes": resident, "rows": _judge(turns, resident),
    }


def _judge(turns, resident):
    rows = []
    for name in HOT:
        ratio = gates.ratio(turns, name, "direct", "p50_us")
        rows.append(gates.gate(f"{CASE}, on {name}: p50 ÷ origin", ("≤", TIMES_MAX), ratio))
        what = f"on {name}: resident memory of the gateway meanwhile"
        rows.append(gates.gate(what, None, resident[name] / 1e6, " MB"))
    return rows


def text(figure):
    """The gates, and what was measured."""
    return gates.table(figure["rows"]) + "\n\n" + gates.rates(
        figure["measured"], (*HOT, "direct"), "gateway's"
    )
