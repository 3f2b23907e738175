"""Log hygiene: a WARN or ERROR line that a test does not expect fails the test."""

import re

LOUD = re.compile(r'\b(WARN|ERROR)\b|"level":\s*"(WARN|ERROR)"|panicked at')
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class LogWatch:
    """Reads what one server logged since the watch began."""

    def __init__(self, server):
        self.path = server.log
        self.start = self.path.stat().st_size

    def loud_lines(self, allowed=()):
        """The loud lines that match none of the `allowed` patterns."""
        with self.path.open("rb") as log:
            log.seek(self.start)
            text = ESCAPES.sub("", log.read().decode(errors="replace"))
        return [
            line
            for line in text.splitlines()
            if LOUD.search(line) and not any(re.search(pattern, line) for pattern in allowed)
        ]


class RequestCount:
    """Counts the requests the origin served, from its access log."""

    def __init__(self, origin):
        self.path = origin.requests_log
        self.start = self._total()

    def _total(self):
        return self.path.read_bytes().count(b"\n") if self.path.exists() else 0

    def since_start(self):
        return self._total() - self.start
