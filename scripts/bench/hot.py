"""Hot stores for the tables of the tier, on a disk, and what that disk itself takes to sync."""

import contextlib
import os
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from harness import servers

from . import machine

CONFIG = """
[stores.origin]
type = "s3"
endpoint = "{origin}"
region = "us-east-1"
[stores.hot]
{hot}
[[routes]]
store = "origin"
layers = [{above}{{ type = "tier", hot = "hot", {tier} }}]
"""
# Nothing is moved for its age while it is measured.
LATER = 'demote_after = "1h"'
# As a segment of the log.
FILE_BYTES = 64 << 20


@contextlib.contextmanager
def disk_directory():
    """A directory that is not in memory, unlike those of the other tables."""
    for parent in (tempfile.gettempdir(), servers.ROOT):
        if machine.file_system(parent) not in ("tmpfs", "ramfs"):
            directory = Path(tempfile.mkdtemp(prefix=".forebay-bench-", dir=parent))
            break
    else:
        raise SystemExit("neither the temporary directory nor the repository is on a disk")
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def log(folder):
    """The settings of a log in a folder."""
    return f'type = "log"\npath = "{folder}"'


def redis(peer, prefix="forebay"):
    """The settings of a store in a Redis."""
    return f'type = "redis"\nurls = ["redis://{peer.host}"]\nprefix = "{prefix}"'


def tier(line, hot, settings=LATER, above=""):
    """The configuration of a gateway whose tier moves to the end of a line."""
    return CONFIG.format(origin=line.url, hot=hot, tier=settings, above=above)


def fdatasync(directory, size, seconds):
    """Writes and syncs so many bytes over and over, in a file that was written before.

    So are the segments of the log. Where a file grows, or only has its room, a sync also has to
    write down where its bytes are, which takes several times as long.

    Gives what `load.measure` gives of requests.
    """
    file, content, latencies = directory / "synced", os.urandom(size), []
    if not file.exists():
        _fill(file)
    descriptor = os.open(file, os.O_RDWR)
    try:
        used, began, offset = _own_cpu_seconds(), time.perf_counter(), 0
        end = began
        while end < began + seconds:
            start = time.perf_counter()
            os.pwrite(descriptor, content, offset)
            os.fdatasync(descriptor)
            end = time.perf_counter()
            latencies.append(end - start)
            offset = (offset + size) % (FILE_BYTES - size)
        cores = (_own_cpu_seconds() - used) / (end - began)
    finally:
        os.close(descriptor)
    return measures(latencies, end - began, size) | {"cores": cores}


def _fill(file):
    with file.open("wb") as filled:
        filled.write(bytes(FILE_BYTES))
        filled.flush()
        os.fsync(filled.fileno())


def measures(latencies, seconds, size):
    """Latencies in seconds as `load.measure` gives those of requests."""
    latencies = sorted(latencies)
    return {
        "requests": len(latencies),
        "seconds": seconds,
        "per_second": len(latencies) / seconds,
        "bytes_per_second": len(latencies) * size / seconds,
        "p50_us": statistics.median(latencies) * 1e6,
        "p99_us": latencies[int(0.99 * (len(latencies) - 1))] * 1e6,
        "cores": 0,
        "gateway_cpu_us": 0,
        "failed": 0,
    }


def _own_cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
