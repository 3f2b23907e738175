"""The machine, the versions, and what a process has used: facts that a figure needs beside it."""

import os
import platform
import re
import subprocess
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def _output(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return (done.stdout + done.stderr).strip()


def _cpu_model():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def describe():
    """The machine in a few words."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(pages / (1 << 30)),
        "kernel": platform.release(),
    }


def versions(forebay, versitygw):
    """The versions of everything that is compared."""
    found = {
        "nginx": re.search(r"nginx/(\S+)", _output("nginx", "-v")),
        "varnish": re.search(r"varnish-(\S+)", _output("varnishd", "-V")),
        "redis": re.search(r"v=(\S+)", _output("redis-server", "--version")),
        "wrk": re.search(r"wrk \S*?([\d.]+\S*)", _output("wrk", "-v")),
        "forebay": re.search(r"forebay (\S+)", _output(forebay, "--version")),
        "versitygw": re.search(r"versitygw\s+(v[\d.]+)", _output("go", "version", "-m", versitygw)),
    }
    return {name: match.group(1) if match else "unknown" for name, match in found.items()}


def file_system(path):
    """The type of the file system that a path is on."""
    return _output("stat", "--file-system", "--format", "%T", str(path))


def _children(pid):
    text = _output("pgrep", "-P", str(pid))
    return [int(child) for child in text.split()]


def family(pid):
    """A process and all below it: nginx and varnish work in children."""
    pids = [pid]
    for child in _children(pid):
        pids += family(child)
    return pids


def cpu_seconds(pids):
    """User and system time that the processes have used so far."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS_PER_SECOND


def memory_bytes(pid):
    """Resident memory now, and its peak since `reset_peak`."""
    status = Path(f"/proc/{pid}/status").read_text()
    now = int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) * 1024
    return now, peak


def reset_peak(pid):
    """Starts a new peak (proc(5), clear_refs)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
