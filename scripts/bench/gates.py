"""What is asked of a figure, and whether it was met: the tables of the cache have these rows."""

from . import figures

_HOLDS = {
    "≥": lambda figure, limit: figure >= limit,
    "≤": lambda figure, limit: figure <= limit,
    "=": lambda figure, limit: figure == limit,
}


def gate(what, asked, figure, unit=""):
    """One row. `asked` is such as `("≥", 8)`, or None where a figure only stands beside others.

    `figure` is a number, or a spread of rounds whose median counts.
    """
    median = figure["median"] if isinstance(figure, dict) else figure
    row = {"what": what, "figure": figure, "unit": unit}
    if asked:
        word, limit = asked
        row["asked"] = f"{word} {limit:g}{unit}"
        row["is_met"] = _HOLDS[word](median, limit)
    return row


def _cell(row):
    figure = row["figure"]
    if isinstance(figure, dict):
        digits = 2 if abs(figure["median"]) < 100 else 0
        return figures.shown(figure, digits) + row["unit"]
    number = f"{figure:,}" if isinstance(figure, int) else f"{figure:,.2f}"
    return number + row["unit"]


def table(rows):
    """The rows as a table."""
    met = {True: "yes", False: "**no**", None: ""}
    return figures.table(
        ["gate", "asked", "figure", "met"],
        [
            [row["what"], row.get("asked", ""), _cell(row), met[row.get("is_met")]]
            for row in rows
        ],
    )


def rates(measured, names, whose="cache's"):
    """What was measured, a line for each case and way: `{case: {way: [rounds]}}`."""
    rows = []
    for case, ways in measured.items():
        for name in names:
            if name not in ways:
                continue
            row = {
                measure: figures.spread([one[measure] for one in ways[name]])["median"]
                for measure in ways[name][0]
            }
            rows.append([
                case, name, f"{row['per_second']:,.0f}",
                f"{row['bytes_per_second'] / (1 << 20):,.1f}", f"{row['p50_us'] / 1e3:,.2f}",
                f"{row['p99_us'] / 1e3:,.2f}", f"{row['cores']:.2f}",
                f"{row['gateway_cpu_us']:,.0f}" if row["gateway_cpu_us"] else "",
            ])
    header = ["case", "way", "requests/s", "MiB/s", "p50 ms", "p99 ms", "cores busy"]
    return figures.table([*header, f"{whose} CPU µs/request"], rows)


def ratio(ways, ours, theirs, measure="per_second"):
    """Round by round."""
    pairs = zip(ways[ours], ways[theirs], strict=True)
    return figures.spread([one[measure] / other[measure] for one, other in pairs])


def difference(ways, ours, theirs, measure):
    """Round by round."""
    pairs = zip(ways[ours], ways[theirs], strict=True)
    return figures.spread([one[measure] - other[measure] for one, other in pairs])
