"""Runs wrk for one round and reads its result as numbers."""

import json
import subprocess
import tempfile

# wrk's own report rounds; this one does not.
REPORT = """
done = function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '\\n{"requests":%d,"seconds":%f,"bytes":%d,"p50_us":%f,"p99_us":%f,"failed":%d}\\n',
    summary.requests, summary.duration / 1e6, summary.bytes,
    latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
"""


def _quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def script(method, headers, body_bytes):
    """The Lua of one request, repeated: method, headers and a body of zeros."""
    lines = [f"wrk.method = {_quoted(method)}"]
    lines += [f"wrk.headers[{_quoted(name)}] = {_quoted(text)}" for name, text in headers.items()]
    if body_bytes:
        lines.append(f'wrk.body = string.rep("\\0", {body_bytes})')
    return "\n".join(lines) + REPORT


def run(url, seconds, connections, headers=None, method="GET", body_bytes=0, core=None):
    """One round of `wrk -t1`; every answer must be a success."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as lua:
        lua.write(script(method, headers or {}, body_bytes))
        lua.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", lua.name, url]
        if core is not None:
            command = ["taskset", "-c", str(core), *command]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"wrk failed: {done.stderr or done.stdout}")
    result = json.loads(done.stdout.strip().splitlines()[-1])
    if result["failed"]:
        raise SystemExit(f"{method} {url}: {result['failed']} of {result['requests']} failed")
    result["per_second"] = result["requests"] / result["seconds"]
    return result
