"""The matrix: workloads by sizes, at the origin and at what may stand before it.

Measured by `forebay bench run`. Everything is signed, and the origin (versitygw on a directory)
verifies. nginx and varnish keep answers by their URL and verify nothing; they are set up to cache
what carries a signature.
"""

import subprocess
from pathlib import Path

from harness import servers

from . import charts, peers

NAME = "matrix"
READERS = ("forebay", "versitygw proxy", "varnish", "nginx", "versitygw")
# varnish makes a GET of a HEAD, which the origin then refuses, since the method is signed.
WRITERS = ("forebay", "versitygw proxy", "nginx", "versitygw")
TIMED = ["--duration", "{seconds}s", "--concurrency", "16"]
# Workload → what of the command line is its own, and whom it measures.
WORKLOADS = {
    "get": (["get", "--size", "{sizes}", "--objects", "{objects}", *TIMED], READERS),
    "hot": (["hot", "--size", "{sizes}", "--objects", "{objects}", *TIMED], READERS),
    "head": (["head", "--size", "1KiB", "--objects", "{objects}", *TIMED], WRITERS),
    "list": (["list", "--size", "1KiB", "--objects", "{objects}", *TIMED], WRITERS),
    "put": (["put", "--size", "{sizes}", *TIMED], WRITERS),
    "clients": (
        ["clients", "--clients", "10,100,1000", "--of", "get", "--size", "1KiB",
         "--objects", "{objects}", "--duration", "{seconds}s"],
        READERS,
    ),
    "tier": (
        ["tier", "--size", "1KiB,10KiB,100KiB,1MiB", "--runs", "{runs}"],
        ("forebay", "versitygw", "redis"),
    ),
}
WHOLE = {"sizes": "1KiB,10KiB,100KiB,1MiB", "objects": "250", "seconds": 1.0, "runs": 100}
SMOKE = {"sizes": "1KiB,100KiB", "objects": "20", "seconds": 0.2, "runs": 3}
CONFIG = """
[stores.origin]
type = "s3"
endpoint = "{origin}"
region = "us-east-1"
[[routes]]
store = "origin"
layers = [{{ type = "cache", memory = "1GiB" }}]
"""


def _contenders(directory, with_forebay):
    """Label → server, the origin among them."""
    origin = servers.start_versitygw(directory)
    started = {"versitygw": origin}
    try:
        started["redis"] = peers.redis(directory)
        started["nginx"] = peers.nginx_cache(directory, origin.port)
        started["varnish"] = peers.varnish_signed(directory, origin.port)
        started["versitygw proxy"] = peers.versitygw_proxy(directory, origin)
        if with_forebay:
            started["forebay"] = servers.start_forebay(
                directory / "forebay", config=CONFIG.format(origin=origin.url)
            )
    except BaseException:
        _stop(started)
        raise
    return started


def _stop(started):
    for server in reversed(list(started.values())):
        server.stop()


def _command(name, contenders, scale, options, out):
    words, labels = WORKLOADS[name]
    command = ["forebay", "bench", "run"]
    command += [word.format(**scale) for word in words]
    for label in labels:
        server = contenders.get(label)
        if label == "redis":
            command += ["--endpoint", f"redis=redis://127.0.0.1:{server.port}"]
        elif server is not None:
            command += ["--endpoint", f"{label}=http://127.0.0.1:{server.port}"]
            credentials = getattr(server, "credentials", servers.ORIGIN_ROOT)
            command += ["--credentials", f"{label}={credentials.access_key}:{credentials.secret_key}"]
    origin = contenders["versitygw"]
    command += ["--prepare-at", f"versitygw={origin.url}", "--create-bucket"]
    return [*command, "--rounds", str(options.rounds), "--out", out.name]


def run(directory, options):
    """Measures every workload into a run file, and draws them."""
    directory = Path(directory)
    directory.chmod(0o755)  # nginx drops its rights before it opens its cache.
    scale = SMOKE if options.smoke else WHOLE
    contenders = _contenders(directory, options.forebay)
    files = []
    try:
        for name in WORKLOADS:
            files.append(directory / f"{name}.json")
            command = _command(name, contenders, scale, options, files[-1])
            # Named so that what it notes of itself names no place of this machine.
            subprocess.run(
                command, executable=servers.forebay_binary(), check=True, cwd=directory,
                env=servers.plain_environment(),
            )
    finally:
        _stop(contenders)
    tables = {}
    for file in files:
        done = charts.report(file, "--markdown", capture_output=True, text=True)
        tables[file.stem] = done.stdout
        if not options.smoke:
            charts.draw(file)
    return {"tables": tables, "scale": scale}


def text(figure):
    """The tables of all workloads."""
    return "\n\n".join(
        f"### `{name}`\n\n{table.strip()}" for name, table in figure["tables"].items()
    )
