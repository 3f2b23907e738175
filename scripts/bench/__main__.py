"""`python -m bench [TABLE…]`: measures, writes docs/figures/*.json and docs/benchmarks.md."""

import argparse
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from harness import servers

from . import (
    cache_ahead,
    cache_blocks,
    cache_crowd,
    cache_exceeds,
    cache_fits,
    cache_strict,
    client,
    cold_read,
    figures,
    hit_path,
    log_puts,
    machine,
    matrix,
    memory,
    mirror_kill,
    origin_brownout,
    origin_cost,
    origin_crowd,
    origin_slow_one,
    origin_tail,
    pass_through,
    tier_blocks,
    tier_list,
    tier_mover,
    tier_small,
)
from .peers import S3LOAD

CACHE_TABLES = (
    cache_fits, cache_exceeds, cache_blocks, cache_crowd, cache_strict, cache_ahead,
)
TIER_TABLES = (tier_small, tier_blocks, tier_list, tier_mover, log_puts)
ORIGIN_TABLES = (
    origin_tail, origin_brownout, origin_slow_one, origin_crowd, origin_cost, mirror_kill,
)
TABLES = {
    table.NAME: table
    for table in (
        hit_path, pass_through, memory, cold_read, *CACHE_TABLES, *TIER_TABLES, *ORIGIN_TABLES,
        matrix, client,
    )
}
# Names of several tables.
GROUPS = {
    "cache": [table.NAME for table in CACHE_TABLES],
    "tier": [table.NAME for table in TIER_TABLES],
    "origin": [table.NAME for table in ORIGIN_TABLES],
}
SECONDS = 3
# What `--smoke` runs beside the matrix.
SMOKED = (
    cache_fits.NAME, cache_blocks.NAME, cache_strict.NAME, *(table.NAME for table in ORIGIN_TABLES),
)


def _seconds(text):
    """Whole seconds stay whole: wrk knows no others."""
    return int(text) if text.isdigit() else float(text)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="make bench BENCH_ARGS=…", description=__doc__)
    parser.add_argument("tables", nargs="*", help=f"of {', '.join([*GROUPS, *TABLES])}; all if none")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=_seconds, help="of each measurement; unless given, what a table asks for"
    )
    parser.add_argument("--multipart-gib", type=int, default=10, dest="multipart_gib")
    parser.add_argument(
        "--outage-seconds", type=int, default=30, dest="outage_seconds",
        help="of mirror-kill; its gate is about 300",
    )
    parser.add_argument(
        "--smoke", action="store_true", help="matrix, cache and origin, short: for function"
    )
    parser.add_argument(
        "--peers-only", action="store_false", dest="forebay", help="measure only the others"
    )
    options = parser.parse_args()
    if options.smoke:
        options.tables, options.rounds, options.seconds = [matrix.NAME, *SMOKED], 1, 0.2
    named = [GROUPS.get(name, [name]) for name in options.tables]
    options.tables = [table for names in named for table in names]
    if unknown := set(options.tables) - set(TABLES):
        parser.error(f"no table is called {', '.join(unknown)}")
    return options


def scratch_directory():
    """Memory rather than disk when it can hold extended attributes: the disk is nobody's merit."""
    for parent in ("/dev/shm", None):
        path = Path(tempfile.mkdtemp(prefix="forebay-bench-", dir=parent))
        try:
            os.setxattr(path, "user.forebay", b"1")
            return path
        except OSError:
            path.rmdir()
    raise SystemExit("no directory for scratch files has extended attributes")


def build_s3load():
    subprocess.run(
        ["go", "build", "-o", S3LOAD, "."],
        cwd=servers.ROOT / "scripts/bench/s3load",
        check=True,
    )


def main():
    options = parse_arguments()
    os.environ.setdefault("FOREBAY_BIN", str(servers.ROOT / "target/release/forebay"))
    os.environ["PATH"] += ":/usr/sbin"
    build_s3load()
    facts = {
        "machine": machine.describe(),
        "versions": machine.versions(servers.forebay_binary(), servers.versitygw_binary()),
    }
    seconds = options.seconds
    for name in options.tables or TABLES:
        options.seconds = seconds or getattr(TABLES[name], "SECONDS", SECONDS)
        directory = scratch_directory()
        try:
            figure = TABLES[name].run(directory, options)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        print(f"\n{name}\n{TABLES[name].text(figure)}")
        if options.forebay and not options.smoke:
            figures.write(name, figure | facts)
            figures.publish(name, TABLES[name].text(figure) + "\n\n" + _conditions(facts, options))


def _conditions(facts, options):
    box = facts["machine"]
    versions = ", ".join(f"{name} {text}" for name, text in sorted(facts["versions"].items()))
    return (
        f"{box['cpu']}, {box['cores']} cores, {box['memory_gib']} GiB, Linux {box['kernel']}; "
        f"{versions}; {options.rounds} rounds."
    )


if __name__ == "__main__":
    main()
