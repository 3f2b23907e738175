"""`forebay tap` as a process: what it adds to a line, and what it has counted."""

import json
import urllib.request

from harness import servers

from . import peers


class Tap:
    """A tap before a port of this machine, counting, with these faults from the start."""

    def __init__(self, directory, to_port, seed=1, name="tap", **faults):
        self.port, self.stats_port = servers.free_port(), servers.free_port()
        command = [
            servers.forebay_binary(), "tap", "--listen", f"127.0.0.1:{self.port}",
            "--to", f"127.0.0.1:{to_port}", "--seed", str(seed),
            "--stats", f"127.0.0.1:{self.stats_port}",
        ]
        for fault, text in faults.items():
            command += ["--" + fault.replace("_", "-"), text]
        self.process = peers.Peer(name, command, self.port, directory)

    @property
    def pid(self):
        return self.process.pid

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def stop(self):
        self.process.stop()

    def counts(self):
        """What has passed so far."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.stats_port}/") as answer:
            return json.load(answer)

    def set_faults(self, **faults):
        """Replaces all that it adds to the line."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.stats_port}/faults", method="PUT",
            data=json.dumps(faults).encode(),
        )
        urllib.request.urlopen(request).close()
