"""The load generator itself: its rate beside wrk's, against the same servers."""

import json
import subprocess
from pathlib import Path

from harness import servers

from . import figures, hit_path, wrk

NAME = "client"
SIZE = 1 << 10


def _bench(server, directory, options, signed):
    """Reads one object over and over; the measurement of the run file."""
    (directory / "keys").write_text(f"{SIZE}\t{SIZE}\n")
    command = [
        "forebay", "bench", "run", "get", "--trace", "keys", "--bucket", "hits", "--no-prepare",
        "--endpoint", f"it={server.url}", "--threads", "1", "--out", "client.json",
        "--concurrency", str(hit_path.CONNECTIONS), "--duration", f"{options.seconds}s",
        "--warm-up", "200ms",
    ]
    if signed:
        key = server.credentials
        command += ["--credentials", f"it={key.access_key}:{key.secret_key}"]
    else:
        command.append("--anonymous")
    subprocess.run(
        ["taskset", "-c", str(hit_path.CLIENT_CORE), servers.forebay_binary(), *command[1:]],
        check=True, capture_output=True, cwd=directory, env=servers.plain_environment(),
    )
    one = json.loads((directory / "client.json").read_text())["measurements"][0]
    assert not one.get("errors"), one["errors"]
    return {"per_second": one["requests"] / one["seconds"]}


def _wrk(server, headers, options):
    path = f"/hits/{SIZE}"
    return wrk.run(
        server.url + path, options.seconds, hit_path.CONNECTIONS, headers(path),
        core=hit_path.CLIENT_CORE,
    )


def run(directory, options):
    """wrk and the load generator in turns, on anonymous nginx and on Forebay that verifies."""
    directory = Path(directory)
    started, ways = hit_path.contenders(directory, with_forebay=True)
    cases = {
        "anonymous, nginx": ("nginx, files open", False),
        "signed, Forebay": ("forebay signed", True),
    }
    rounds = {case: [] for case in cases}
    try:
        for case, (name, signed) in cases.items():
            server, headers = ways[name]
            for _ in range(options.rounds):
                rounds[case].append({
                    "wrk": _wrk(server, headers, options),
                    "forebay bench": _bench(server, directory, options, signed),
                })
    finally:
        for server in reversed(started):
            server.stop()
    return {
        case: {
            name: figures.spread([one[name]["per_second"] for one in turns])
            for name in ("wrk", "forebay bench")
        }
        | {"ratio": figures.ratio(turns, "forebay bench", "wrk", "per_second")}
        for case, turns in rounds.items()
    }


def text(figure):
    """The table of the figure."""
    rows = [
        [case, f"{row['wrk']['median']:,.0f}", f"{row['forebay bench']['median']:,.0f}",
         figures.shown(row["ratio"])]
        for case, row in figure.items() if isinstance(row, dict) and "ratio" in row
    ]
    header = ["1 KiB, one thread, 50 connections", "wrk, requests/s", "forebay bench, requests/s"]
    return figures.table([*header, "forebay bench ÷ wrk"], rows)
