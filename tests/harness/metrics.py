"""Reads what a gateway counts of itself."""

import re
import urllib.request

LINE = re.compile(r"^(?P<name>[a-z0-9_]+)(\{(?P<labels>[^}]*)\})? (?P<value>\S+)")


def metric(gateway, name, **labels):
    """The sum of a metric over all its series that have these labels."""
    with urllib.request.urlopen(gateway.admin_url + "/metrics", timeout=10) as response:
        text = response.read().decode()
    total, found = 0.0, False
    for line in map(LINE.match, text.splitlines()):
        if not line or line["name"] != name:
            continue
        found = True
        series = dict(pair.split("=", 1) for pair in (line["labels"] or "").split(",") if pair)
        if all(series.get(key) == f'"{value}"' for key, value in labels.items()):
            total += float(line["value"])
    assert found, f"there is no metric {name}"
    return total
