"""`python -m bench [TABLE…]`: measures, writes docs/figures/*.json and docs/benchmarks.md."""

import argparse
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from harness import servers

from . import client, cold_read, figures, hit_path, machine, matrix, memory, pass_through
from .peers import S3LOAD

TABLES = {table.NAME: table for table in (hit_path, pass_through, memory, cold_read, matrix, client)}


def parse_arguments():
    parser = argparse.ArgumentParser(prog="make bench BENCH_ARGS=…", description=__doc__)
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)}; all of them if none")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="of each measurement")
    parser.add_argument("--multipart-gib", type=int, default=10, dest="multipart_gib")
    parser.add_argument(
        "--smoke", action="store_true", help="the matrix alone, short: for function, not figures"
    )
    parser.add_argument(
        "--peers-only", action="store_false", dest="forebay", help="measure only the others"
    )
    options = parser.parse_args()
    if options.smoke:
        options.tables, options.rounds = [matrix.NAME], 1
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
    for name in options.tables or TABLES:
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
