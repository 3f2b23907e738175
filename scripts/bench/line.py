"""An origin at the end of a line: versitygw on a directory, behind `forebay tap`.

The tap holds back the first byte of each answer, may narrow the line, and counts what passes. All
that is compared stands before the same tap, so that the line is nobody's merit.
"""

import contextlib
import subprocess

from harness import servers

from . import machine
from .tap import Tap

CONFIG = """
[stores.origin]
type = "s3"
endpoint = "{origin}"
region = "us-east-1"
[[routes]]
store = "origin"
layers = [{{ type = "cache", {cache} }}]
"""


class Way:
    """Where requests go, who signs them, and the processes that work for them."""

    def __init__(self, url, credentials, processes, server=None):
        self.url, self.credentials = url, credentials
        self.processes, self.server = processes, server

    def cpu_seconds(self):
        """What each process and its children have used so far."""
        return {
            name: machine.cpu_seconds(machine.family(pid)) for name, pid in self.processes.items()
        }


class Line:
    """The origin, the tap before it, and what is put before the tap; stopped together."""

    def __init__(self, directory, **faults):
        self.directory = directory
        with contextlib.ExitStack() as started:
            self.origin = servers.start_versitygw(directory)
            started.callback(self.origin.stop)
            self.tap = Tap(directory, self.origin.port, **faults)
            started.callback(self.tap.stop)
            self.started = started.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.started.close()

    def _processes(self, **more):
        return {"origin": self.origin.process.pid, "tap": self.tap.pid} | more

    def direct(self):
        """The way through the tap alone."""
        return Way(self.url, self.origin.credentials, self._processes())

    def peer(self, start):
        """The way through a peer that `start(directory, port)` puts before the tap."""
        self.directory.chmod(0o755)  # nginx drops its rights before it opens its cache.
        peer = start(self.directory, self.tap.port)
        self.started.callback(peer.stop)
        processes = self._processes(peer=peer.pid)
        return Way(f"http://127.0.0.1:{peer.port}", self.origin.credentials, processes)

    @property
    def url(self):
        """The near end of the line."""
        return self.tap.url

    def forebay(self, cache):
        """The way through a fresh gateway whose cache layer has these settings."""
        return self.gateway(CONFIG.format(origin=self.url, cache=cache))

    @contextlib.contextmanager
    def gateway(self, config):
        """The way through a fresh gateway of this configuration."""
        home = self.directory / f"forebay-{servers.free_port()}"
        gateway = servers.start_forebay(home, config=config)
        try:
            processes = self._processes(gateway=gateway.process.pid)
            yield Way(gateway.url, gateway.credentials, processes, gateway)
        finally:
            gateway.stop()

    def counts(self):
        """What has passed the tap so far."""
        return self.tap.counts()

    def set_faults(self, **faults):
        """Replaces what the tap adds to the line."""
        self.tap.set_faults(**faults)

    @contextlib.contextmanager
    def counted(self):
        """A dictionary that holds, once the block is over, what passed the tap meanwhile."""
        before, passed = self.counts(), {}
        yield passed
        after = self.counts()
        for name in ("requests", "bytes_to_client", "body_bytes_to_client"):
            passed[name] = after[name] - before[name]
        for name in ("responses", "requests_by_method"):
            passed[name] = {
                key: count - before[name].get(key, 0)
                for key, count in after[name].items()
                if count > before[name].get(key, 0)
            }


def accepts(cache, directory):
    """Whether this Forebay knows these settings of a cache layer."""
    file = directory / "asked.toml"
    file.write_text(CONFIG.format(origin="http://127.0.0.1:1", cache=cache))
    done = subprocess.run(
        [servers.forebay_binary(), "config", "check", "--config", file],
        capture_output=True, check=False, env=servers.plain_environment(),
    )
    return done.returncode == 0
