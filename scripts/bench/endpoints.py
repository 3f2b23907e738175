"""Endpoints that share their data: taps before one versitygw, each as shaky as it is told to be.

Everything is started at once and stopped together; a gateway stands before as many taps as its
configuration names. What a gateway was asked and what it asked are counted apart: the first by its
own metrics, the second by the taps.
"""

import contextlib
import threading
import time
import urllib.request

from harness import metrics, servers

from . import load
from .line import Way
from .tap import Tap

CONFIG = """
[stores.origin]
type = "s3"
{where}
region = "us-east-1"
{settings}
[[routes]]
store = "origin"
"""
# Between two looks at the counters.
TICK_SECONDS = 0.5


def config(urls, settings=""):
    """A gateway before these endpoints, without a cache."""
    listed = ", ".join(f'"{url}"' for url in urls)
    where = f"endpoint = {listed}" if len(urls) == 1 else f"endpoints = [{listed}]"
    return CONFIG.format(where=where, settings=settings)


class Endpoints:
    """An origin, and what is put before it."""

    def __init__(self, directory):
        self.directory = directory
        with contextlib.ExitStack() as started:
            self.origin = servers.start_versitygw(directory)
            started.callback(self.origin.stop)
            self.started = started.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.started.close()

    def taps(self, count, **faults):
        """So many taps, alike but for their seed."""
        taps = []
        for number in range(count):
            taps.append(Tap(self.directory, self.origin.port, seed=number + 1, **faults))
            self.started.callback(taps[-1].stop)
        return taps

    def direct(self):
        """The way to the origin itself."""
        return Way(self.origin.url, self.origin.credentials, {"origin": self.origin.process.pid})

    def gateway(self, urls, settings=""):
        """The way through a gateway before these endpoints."""
        return self.started.enter_context(self.passing(urls, settings))

    @contextlib.contextmanager
    def passing(self, urls, settings=""):
        """The same, for a while."""
        home = self.directory / f"forebay-{servers.free_port()}"
        server = servers.start_forebay(home, config=config(urls, settings))
        try:
            yield Way(
                server.url, server.credentials,
                {"origin": self.origin.process.pid, "gateway": server.process.pid}, server,
            )
        finally:
            server.stop()


def answered(way):
    """Requests that a gateway has answered so far, and reads of objects among them that went well.

    A gateway that was asked for nothing yet has no such metric.
    """
    with urllib.request.urlopen(way.server.admin_url + "/metrics", timeout=10) as response:
        lines = map(metrics.LINE.match, response.read().decode().splitlines())
    counts = {
        line["labels"]: int(line["value"])
        for line in lines if line and line["name"] == "forebay_requests_total"
    }
    well = {'operation="GetObject"', 'status="2xx"'}
    read = (count for labels, count in counts.items() if well <= set(labels.split(",")))
    return {"asked": sum(counts.values()), "served": sum(read)}


def passed(taps):
    """Requests that have reached each tap so far."""
    return [tap.counts()["requests"] for tap in taps]


class Watch:
    """Counters read again and again while a load runs: `[{"at", "served", "asked", "passed"}]`."""

    def __init__(self, way, taps):
        self.way, self.taps, self.ticks = way, taps, []
        self.began = time.monotonic()

    def look(self):
        """Reads the counters now."""
        tick = {
            "at": time.monotonic() - self.began, "passed": passed(self.taps),
        } | answered(self.way)
        self.ticks.append(tick)
        return tick

    def look_for(self, seconds):
        """Reads them every tick for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            time.sleep(max(0, min(TICK_SECONDS, end - time.monotonic())))
        return self.look()

    def windows(self, first, last):
        """What happened between looks, from one moment to another."""
        found = []
        for one, other in zip(self.ticks, self.ticks[1:], strict=False):
            seconds = other["at"] - one["at"]
            # Two looks in a row at the end of a phase are one.
            if one["at"] < first or other["at"] > last or seconds < TICK_SECONDS / 2:
                continue
            sent = [b - a for a, b in zip(one["passed"], other["passed"], strict=True)]
            found.append({
                "from": one["at"], "to": other["at"],
                "per_second": (other["served"] - one["served"]) / seconds,
                "shares": [part / max(sum(sent), 1) for part in sent],
            })
        return found


@contextlib.contextmanager
def loaded(way, words, directory, seed=1, measure=load.measure):
    """A load that runs beside the block, whose end waits for it; what it measured is added then.

    Requests that fail are figures.
    """
    measured, failure = {}, []

    def run():
        try:
            measured.update(measure(way, words, directory, seed, is_failure_a_figure=True))
        except BaseException as error:  # Raised again where somebody reads it.
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield measured
    finally:
        thread.join()
    if failure:
        raise failure[0]
