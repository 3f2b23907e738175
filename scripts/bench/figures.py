"""Rounds, ratios and spreads; figures as JSON, and as tables in docs/benchmarks.md."""

import json
import re
import statistics
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs" / "figures"
PAGE = ROOT / "docs" / "benchmarks.md"


def spread(values):
    """Median, least and most of the values of all rounds."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "rounds": len(values),
    }


def ratio(rounds, ours, theirs, measure):
    """The ratio of two contenders, taken in each round and then summed up over the rounds."""
    return spread([one[ours][measure] / one[theirs][measure] for one in rounds])


def write(name, figure):
    """Keeps a figure as JSON."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    file = FIGURES / f"{name}.json"
    file.write_text(json.dumps(figure, indent=1, sort_keys=True) + "\n")


def table(header, rows):
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def shown(value, digits=2):
    """`1.23 (1.20–1.31)`: the median and how far the rounds went."""
    return (
        f"{value['median']:.{digits}f} ({value['min']:.{digits}f}–{value['max']:.{digits}f})"
    )


def publish(name, text):
    """Replaces one generated section of docs/benchmarks.md."""
    page = PAGE.read_text()
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    section = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not section.search(page):
        raise SystemExit(f"docs/benchmarks.md has no section {name}")
    PAGE.write_text(section.sub(lambda _: f"{begin}\n{text}\n{end}", page))


def size_name(size):
    """`1 KiB`, `100 KiB`, `1 MiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"
