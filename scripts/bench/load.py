"""Runs `forebay bench run` on one way for one round, and reads its results as numbers."""

import json
import subprocess

from harness import servers

from .line import Way

BUCKET = PREFIX = "forebay-bench"


def keys(size, count, folder="objects"):
    """The keys under which `forebay bench run` keeps objects of a size."""
    return [f"{PREFIX}/{folder}/{size}/{n // 100:05}/{n:07}" for n in range(count)]


def _run(way, words, directory, more, is_failure_a_figure=False):
    command = [
        "forebay", "bench", "run", *map(str, words), "--endpoint", f"it={way.url}",
        "--rounds", "1", "--out", "run.json", *more,
    ]
    if key := way.credentials:
        command += ["--credentials", f"it={key.access_key}:{key.secret_key}"]
    done = subprocess.run(
        command, executable=servers.forebay_binary(), cwd=directory, capture_output=True,
        text=True, check=False, env=servers.plain_environment(),
    )
    file = directory / "run.json"
    if done.returncode != 0 and not (is_failure_a_figure and file.exists()):
        raise SystemExit(f"{' '.join(command[3:])}: {done.stdout}{done.stderr}")
    measured = json.loads(file.read_text())["measurements"]
    file.unlink()
    return measured


def prepare(line, words):
    """Has the origin hold what a workload asks for; past the tap, which has no delay for it."""
    prepare_at(Way(line.origin.url, line.origin.credentials, {}), words, line.directory)


def prepare_at(way, words, directory):
    """Writes what a workload asks for through the way itself."""
    _run(way, [*words, "--requests", "1"], directory, ["--create-bucket"])


def read_all(way, names, size, directory):
    """Reads each object once."""
    (directory / "keys").write_text("".join(f"{name}\t{size}\n" for name in names))
    words = ["get", "--trace", "keys", "--requests", str(len(names))]
    _run(way, words, directory, ["--no-prepare"])


def measure(way, words, directory, seed=1, is_failure_a_figure=False):
    """Rates, percentiles, and the processor time of all that took part.

    A request that fails ends the run, unless that is what is measured.
    """
    before = way.cpu_seconds()
    more = ["--no-prepare", "--seed", str(seed)]
    one = _run(way, words, directory, more, is_failure_a_figure)[0]
    after = way.cpu_seconds()
    used = {name: after[name] - before[name] for name in after}
    used["client"] = one["client"]["cpu_seconds"]
    seconds = one["seconds"]
    return {
        "requests": one["requests"],
        "seconds": seconds,
        "per_second": one["requests"] / seconds,
        "bytes_per_second": one["bytes"] / seconds,
        "p50_us": _percentile(one["latency_ns"], 0.50) / 1e3,
        "p99_us": _percentile(one["latency_ns"], 0.99) / 1e3,
        "cores": sum(used.values()) / seconds,
        "gateway_cpu_us": used.get("gateway", used.get("peer", 0)) / max(one["requests"], 1) * 1e6,
        "failed": sum(one.get("errors", {}).values()),
    }


def _percentile(histogram, share):
    """The lowest value of the bucket that holds it: within a hundredth of it."""
    left = share * sum(count for _, count in histogram)
    for lowest, count in histogram:
        left -= count
        if left <= 0:
            return lowest
    return 0
