"""Resident memory: idle, with many uploads in mid-body at once, with one huge multipart upload."""

import json
import os
import subprocess
from pathlib import Path

from harness import servers

from . import figures, machine
from .pass_through import CONFIG
from .peers import S3LOAD, Peer

NAME = "memory"


def load(server, *arguments):
    """Runs one s3load command against a server and returns its result."""
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": server.credentials.access_key,
        "AWS_SECRET_ACCESS_KEY": server.credentials.secret_key,
    }
    done = subprocess.run(
        [S3LOAD, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"s3load {arguments}: {done.stderr}")
    return json.loads(done.stdout)


def run(directory, options):
    """Measures a fresh gateway for each load, in front of an origin that keeps nothing."""
    directory = Path(directory)
    port = servers.free_port()
    sink = Peer("sink", [S3LOAD, "sink", "-listen", f"127.0.0.1:{port}"], port, directory)
    loads = {
        "idle": None,
        "350 PUTs of 1 MiB at once": ["puts", "-count", "350", "-size", str(1 << 20)],
        "350 PUTs of 1 MiB at once, slow clients": [
            "puts", "-count", "350", "-size", str(1 << 20), "-rounds", "1", "-pause", "200ms",
        ],
        f"{options.multipart_gib} GiB multipart, 64 MiB parts, 100 at once": [
            "multipart", "-size", str(options.multipart_gib << 30),
        ],
    }
    result = {}
    try:
        for name, command in loads.items():
            result[name] = _one(directory, sink, command)
    finally:
        sink.stop()
    return {"loads": result}


def _one(directory, sink, command):
    home = directory / f"forebay-{servers.free_port()}"
    gateway = servers.start_forebay(home, config=CONFIG.format(origin=sink.url))
    try:
        machine.reset_peak(gateway.process.pid)
        shown = None
        if command:
            target = "/bench/k" if command[0] == "multipart" else "/bench"
            shown = load(gateway, command[0], "-url", gateway.url + target, *command[1:])
            if shown.get("failed"):
                raise SystemExit(f"{shown['failed']} uploads failed: {shown['first_error']}")
        now, peak = machine.memory_bytes(gateway.process.pid)
        return {"peak_bytes": peak, "after_bytes": now, "load": shown}
    finally:
        gateway.stop()


def text(figure):
    """The table of the figure."""
    rows = []
    for name, row in figure["loads"].items():
        speed = f"{row['load']['bytes_per_second'] / (1 << 20):,.0f}" if row["load"] else ""
        peak, after = row["peak_bytes"] / 1e6, row["after_bytes"] / 1e6
        rows.append([name, f"{peak:.1f}", f"{after:.1f}", speed])
    return figures.table(["load", "peak, MB", "after, MB", "MiB/s"], rows)
