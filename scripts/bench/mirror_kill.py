"""Three servers that share nothing behind a mirror; one is killed under load and comes back.

Three loads run beside each other: reads of objects that nobody changes, as fast as they go; writes,
overwrites and deletes at a steady rate; and while the one is away, new objects that are written and
then all read.
"""

import contextlib
import time
from pathlib import Path
from xml.etree import ElementTree

from harness import servers
from harness.wire import Wire

from . import endpoints, figures, gates, load
from .endpoints import Watch
from .line import Way

NAME = "mirror-kill"
SECONDS = 10
SIZE, OBJECTS = 10 << 10, 500
READERS, WRITERS, WRITES_PER_SECOND = 8, 8, 100
NEW_SIZE, NEW_OBJECTS, SMOKE_NEW_OBJECTS = 2 << 10, 2000, 50
# The gate's own outage is of 300 s: `--outage-seconds 300`.
SMOKE_OUTAGE_SECONDS = 2
RATE_TIMES = 0.9
# Beyond it the members are taken never to become equal.
REPAIR_SECONDS_MAX = 300
MEMBERS = ("a", "b", "c")
STORE = """
[stores.{name}]
type = "s3"
endpoint = "{url}"
region = "us-east-1"
"""
CONFIG = """
[stores.journal]
type = "log"
path = "{journal}"
[stores.mirror]
type = "mirror"
stores = ["a", "b", "c"]
journal = "journal"
[[routes]]
store = "mirror"
"""
NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"


class Mirror:
    """The members, and the gateway before them."""

    def __init__(self, directory, started):
        self.directory, self.members = directory, {}
        started.callback(self._stop_members)
        for name in MEMBERS:
            self.start(name)
        stores = [
            STORE.format(name=name, url=member.url) for name, member in self.members.items()
        ]
        config = "".join(stores) + CONFIG.format(journal=directory / "journal")
        self.gateway = servers.start_forebay(directory / "forebay", config=config)
        started.callback(self.gateway.stop)
        self.way = Way(self.gateway.url, self.gateway.credentials, {}, self.gateway)

    def start(self, name):
        """Starts a member, at the same port as before if it has been there."""
        home = self.directory / name
        home.mkdir(exist_ok=True)
        known = self.members.get(name)
        self.members[name] = servers.start_versitygw(home, port=known and known.port)

    def _stop_members(self):
        for member in self.members.values():
            member.stop()

    def differences(self):
        """Keys that are not the same everywhere: on the members, and as the gateway lists them."""
        lists = [objects(server) for server in (*self.members.values(), self.gateway)]
        everywhere = set.intersection(*(set(one.items()) for one in lists))
        anywhere = set.union(*(set(one.items()) for one in lists))
        return len({key for key, _ in anywhere - everywhere})


def objects(server):
    """`{key: (ETag, size)}` of all that a server lists: nothing where the bucket is missing."""
    found, token, wire = {}, None, Wire(server)
    while True:
        query = [("list-type", "2")] + ([("continuation-token", token)] if token else [])
        answer = wire.signed("GET", f"/{load.BUCKET}", sorted(query))
        if answer.status != 200:
            return {}
        page = ElementTree.fromstring(answer.body)
        for each in page.iter(f"{NAMESPACE}Contents"):
            key, tag, size = (each.findtext(NAMESPACE + of) for of in ("Key", "ETag", "Size"))
            found[key] = (tag.strip('"'), int(size))
        token = page.findtext(f"{NAMESPACE}NextContinuationToken")
        if not token:
            return found


def _write_then_read_all(mirror, count):
    """What s3bench does: so many objects are written, and then each is read."""
    size = f"{NEW_SIZE}B"
    words = ["put", "--size", size, "--objects", count, "--requests", count, "--warm-up", "0s"]
    written = load.count(mirror.way, words, mirror.directory, is_failure_a_figure=True)
    names = load.keys(NEW_SIZE, count, "put")
    (mirror.directory / "keys").write_text("".join(f"{name}\t{NEW_SIZE}\n" for name in names))
    words = ["get", "--trace", "keys", "--requests", count, "--warm-up", "0s"]
    read = load.count(mirror.way, words, mirror.directory, is_failure_a_figure=True)
    return {"new, written": written, "new, read": read}


def _until_equal(mirror, since):
    """Seconds from a moment until all are equal, and keys that were not once the load was over."""
    first = left = mirror.differences()
    while left and time.monotonic() < since + REPAIR_SECONDS_MAX:
        time.sleep(0.2)
        left = mirror.differences()
    return {"seconds": time.monotonic() - since, "at_first": first, "left": left}


def run(directory, options):
    """Once; all about the outage is in one run."""
    outage = SMOKE_OUTAGE_SECONDS if options.smoke else options.outage_seconds
    around = max(options.seconds, 1)
    reads = ["get", "--size", f"{SIZE}B", "--objects", OBJECTS]
    writes = ["mixed", "--shares", "put=3,delete=1", "--size", f"{SIZE}B", "--objects", 1]
    timed = ["--warm-up", "0s", "--duration", f"{around + outage + around:.0f}s"]
    with contextlib.ExitStack() as started:
        mirror = Mirror(Path(directory), started)
        load.prepare_at(mirror.way, reads, mirror.directory)
        reads += [*timed, "--concurrency", READERS]
        writes += [*timed, "--concurrency", WRITERS, "--rate", WRITES_PER_SECOND]
        watch = Watch(mirror.way, [])
        with (
            endpoints.loaded(mirror.way, reads, mirror.directory, measure=load.count) as readers,
            endpoints.loaded(mirror.way, writes, mirror.directory, measure=load.count) as writers,
        ):
            watch.look_for(around)
            mirror.members["c"].kill()
            killed = watch.look()["at"]
            watch.look_for(outage / 2)
            # Its reads count beside the readers', so that rates are judged without its time.
            newly_began = watch.look()["at"]
            new = _write_then_read_all(mirror, SMOKE_NEW_OBJECTS if options.smoke else NEW_OBJECTS)
            newly_ended = watch.look()["at"]
            watch.look_for(max(outage - (newly_ended - killed), 0))
            returned = watch.look()["at"]
            mirror.start("c")
            since = time.monotonic()
            watch.look_for(max(around - 1, 0))
        repaired = _until_equal(mirror, since)
    figure = {
        "outage_seconds": returned - killed,
        "per_second": {
            # The first second is the clients' start.
            "before": _rate(watch.windows(min(1, around / 2), killed)),
            "away": _rate(
                watch.windows(killed, newly_began) + watch.windows(newly_ended, returned)
            ),
            "back": _rate(watch.windows(returned, float("inf"))),
        },
        "loads": {"reads": readers, "writes": writers} | new,
        "repaired": repaired,
        "windows": watch.windows(0, float("inf")),
    }
    return figure | {"rows": _judge(figure)}


def _rate(windows):
    return sum(one["per_second"] for one in windows) / max(len(windows), 1)


def _judge(figure):
    rates, repaired = figure["per_second"], figure["repaired"]
    before = max(rates["before"], 1e-9)
    failed = sum(one["failed"] for one in figure["loads"].values())
    requests = sum(one["requests"] for one in figure["loads"].values())
    unsent = sum(one["unsent"] for one in figure["loads"].values())
    return [
        gates.gate("outage", None, figure["outage_seconds"], " s"),
        gates.gate("requests of all loads", None, requests),
        gates.gate("requests that failed", ("=", 0), failed),
        gates.gate("requests that were due and found no connection free", None, unsent),
        gates.gate("reads/s, one away ÷ before", ("≥", RATE_TIMES), rates["away"] / before),
        gates.gate("reads/s, it is back ÷ before", None, rates["back"] / before),
        gates.gate("keys that differed when the load was over", None, repaired["at_first"]),
        gates.gate("keys that differ after repair", ("=", 0), repaired["left"]),
        gates.gate("from its return until all are equal", None, repaired["seconds"], " s"),
    ]


def text(figure):
    """The gates, and what each load was told."""
    rows = [
        [name, f"{one['requests']:,}", ", ".join(f"{n} x {e}" for e, n in one["errors"].items())]
        for name, one in figure["loads"].items()
    ]
    return gates.table(figure["rows"]) + "\n\n" + figures.table(
        ["load", "requests that succeeded", "that failed"], rows
    )
