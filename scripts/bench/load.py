"""Runs `forebay bench run` on one way for one round, and reads its results as numbers."""

import collections
import json
import subprocess
import threading

from harness import servers

from .line import Way

BUCKET = PREFIX = "forebay-bench"


def keys(size, count, folder="objects"):
    """The keys under which `forebay bench run` keeps objects of a size."""
    return [f"{PREFIX}/{folder}/{size}/{n // 100:05}/{n:07}" for n in range(count)]


def _run(ways, words, file, more, is_failure_a_figure=False):
    """Runs `forebay bench run` on ways by their labels, and gives what it wrote into a file."""
    command = ["forebay", "bench", "run", *map(str, words), "--out", file.name, *more]
    for label, way in ways.items():
        command += ["--endpoint", f"{label}={way.url}"]
        if key := way.credentials:
            command += ["--credentials", f"{label}={key.access_key}:{key.secret_key}"]
    done = subprocess.run(
        command, executable=servers.forebay_binary(), cwd=file.parent, capture_output=True,
        text=True, check=False, env=servers.plain_environment(),
    )
    if done.returncode != 0 and not (is_failure_a_figure and file.exists()):
        raise SystemExit(f"{' '.join(command[3:])}: {done.stdout}{done.stderr}")
    return json.loads(file.read_text())


def _one(way, words, directory, more, is_failure_a_figure=False):
    # Loads may run beside each other.
    file = directory / f"run-{threading.get_ident()}.json"
    try:
        run = _run({"it": way}, words, file, ["--rounds", "1", *more], is_failure_a_figure)
    finally:
        file.unlink(missing_ok=True)
    return run["measurements"]


def prepare(line, words):
    """Has the origin hold what a workload asks for; past the tap, which has no delay for it."""
    prepare_at(Way(line.origin.url, line.origin.credentials, {}), words, line.directory)


def prepare_at(way, words, directory):
    """Writes what a workload asks for through the way itself."""
    _one(way, [*words, "--requests", "1"], directory, ["--create-bucket"])


def read_all(way, names, size, directory):
    """Reads each object once."""
    (directory / "keys").write_text("".join(f"{name}\t{size}\n" for name in names))
    words = ["get", "--trace", "keys", "--requests", str(len(names))]
    _one(way, words, directory, ["--no-prepare"])


def measure(way, words, directory, seed=1, is_failure_a_figure=False):
    """Rates, percentiles, and the processor time of all that took part.

    A request that fails ends the run, unless that is what is measured.
    """
    before = way.cpu_seconds()
    more = ["--no-prepare", "--seed", str(seed)]
    one = _one(way, words, directory, more, is_failure_a_figure)[0]
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


def count(way, words, directory, seed=1, is_failure_a_figure=False):
    """Requests of all operations, how they failed, and how many were due and never sent.

    Those never got an answer that could have been wrong; the load generator had no connection free.
    """
    more = ["--no-prepare", "--seed", str(seed)]
    measured = _one(way, words, directory, more, is_failure_a_figure)
    errors = collections.Counter()
    for one in measured:
        errors.update(one.get("errors", {}))
    unsent = errors.pop("NotStarted", 0)
    return {
        "requests": sum(one["requests"] for one in measured), "unsent": unsent,
        "failed": errors.total(), "errors": dict(errors),
    }


def side_by_side(ways, words, file, rounds, seed=1):
    """Measures ways in turns within each round: `{label: [measurement of each round]}`.

    The run file stays, for charts.
    """
    more = ["--no-prepare", "--rounds", str(rounds), "--seed", str(seed)]
    run = _run(ways, words, file, more, is_failure_a_figure=True)
    if run["outcome"]["state"] != "complete":
        raise SystemExit(f"{file.stem}: {run['outcome']}")
    labels = [endpoint["label"] for endpoint in run["endpoints"]]
    found = {label: [] for label in labels}
    for one in run["measurements"]:
        found[labels[one["endpoint"]]].append(one)
    return found


def quantile_ms(measurements, share):
    """The quantile of the latencies of several measurements together, in milliseconds.

    Within a bucket it is where its share of the bucket's counts is.
    """
    merged = collections.Counter()
    for one in measurements:
        for lowest, count in one["latency_ns"]:
            merged[lowest] += count
    left = share * sum(merged.values())
    for lowest, count in sorted(merged.items()):
        if left <= count:
            # From 256 on a power of two has 128 buckets (docs/bench-results.md).
            width = 1 << max(lowest.bit_length() - 8, 0)
            return (lowest + width * left / count) / 1e6
        left -= count
    return 0.0


def _percentile(histogram, share):
    """The lowest value of the bucket that holds it: within a hundredth of it."""
    left = share * sum(count for _, count in histogram)
    for lowest, count in histogram:
        left -= count
        if left <= 0:
            return lowest
    return 0
