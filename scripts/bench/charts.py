"""Draws run files: a page and its charts beside the figures of docs/benchmarks.md."""

import subprocess

from harness import servers

from . import figures


def report(file, *more, **options):
    """`forebay report`, run so that what it notes of itself names no place of this machine."""
    return subprocess.run(
        ["forebay", "report", file.name, *more], executable=servers.forebay_binary(), check=True,
        cwd=file.parent, env=servers.plain_environment(), **options
    )


def draw(file):
    """Writes the page and the charts of a run file, under its name."""
    charts = figures.FIGURES / file.stem
    charts.mkdir(parents=True, exist_ok=True)
    report(file, "-o", figures.FIGURES / f"{file.stem}.html", "--svg", charts)
    return charts
