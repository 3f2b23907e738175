"""The log as a store of its own, under many writers: against Redis, files and the disk itself."""

import contextlib
from pathlib import Path

from harness import servers

from . import gates, hot, load, peers
from .line import Way

NAME = "log-puts"
SECONDS = 3
SIZE = 1 << 10
WRITERS = 64
CASE = f"PUT 1 KiB, {WRITERS} at once"
REDIS_TIMES, FILES_TIMES, SYNC_P99_TIMES_MAX = 0.7, 20, 3
SYNCED, SYNCED_BATCH = "fdatasync", f"fdatasync of {WRITERS} KiB"
CONFIG = """
[stores.it]
{store}
[[routes]]
store = "it"
"""


@contextlib.contextmanager
def _gateway(home, store):
    gateway = servers.start_forebay(home, config=CONFIG.format(store=store))
    try:
        yield Way(gateway.url, gateway.credentials, {"gateway": gateway.process.pid}, gateway)
    finally:
        gateway.stop()


@contextlib.contextmanager
def _ways(directory, disk):
    server = peers.redis(disk, appendfsync="always")
    (disk / "files").mkdir()
    files = f'type = "fs"\npath = "{disk / "files"}"\ndurability = "sync"'
    with contextlib.ExitStack() as started:
        started.callback(server.stop)
        log = _gateway(directory / "log", hot.log(disk / "log"))
        yield {
            "log": started.enter_context(log),
            "redis": Way(f"redis://{server.host}", None, {"redis": server.pid}),
            "fs": started.enter_context(_gateway(directory / "fs", files)),
        }


def run(directory, options):
    """All in turns."""
    directory = Path(directory)
    words = ["put", "--size", f"{SIZE}B", "--concurrency", WRITERS]
    turns = {}
    with hot.disk_directory() as disk, _ways(directory, disk) as ways:
        for way in ways.values():
            load.prepare_at(way, words, directory)
        words += ["--duration", f"{options.seconds}s"]
        for number in range(options.rounds):
            for name, way in ways.items():
                one = load.measure(way, words, directory, number)
                turns.setdefault(name, []).append(one)
            for name, size in ((SYNCED, SIZE), (SYNCED_BATCH, WRITERS * SIZE)):
                turns.setdefault(name, []).append(hot.fdatasync(disk, size, options.seconds))
    return {"measured": {CASE: turns}, "rows": _judge(turns)}


def _judge(turns):
    p99 = gates.ratio(turns, "log", SYNCED, "p99_us")
    batch_p99 = gates.ratio(turns, "log", SYNCED_BATCH, "p99_us")
    redis, files = gates.ratio(turns, "log", "redis"), gates.ratio(turns, "log", "fs")
    return [
        gates.gate("log ÷ Redis that syncs always", ("≥", REDIS_TIMES), redis),
        gates.gate("log ÷ files that are synced", ("≥", FILES_TIMES), files),
        gates.gate(f"p99 ÷ p99 of {SYNCED}", ("≤", SYNC_P99_TIMES_MAX), p99),
        gates.gate(f"p99 ÷ p99 of {SYNCED_BATCH}", None, batch_p99),
    ]


def text(figure):
    """The gates, and what was measured."""
    names = next(iter(figure["measured"].values()))
    return gates.table(figure["rows"]) + "\n\n" + gates.rates(
        figure["measured"], names, "gateway's"
    )
