"""`forebay admin` against one gateway, and what it answers."""

import json
import subprocess

from . import servers


def run_admin(gateway, *words):
    """Runs a command of `forebay admin`."""
    return subprocess.run(
        [servers.forebay_binary(), "admin", *map(str, words)],
        env=servers.plain_environment(FOREBAY_ADMIN=gateway.admin_url),
        capture_output=True, text=True, timeout=120,
    )


def admin(gateway, *words, code=0):
    """What a command that leaves with `code` answers."""
    done = run_admin(gateway, "--json", *words)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def endpoints(gateway):
    """How the endpoints of the only S3 store stand, by their names."""
    [origin] = admin(gateway, "origin", "status")["origins"]
    return {endpoint["endpoint"]: endpoint for endpoint in origin["endpoints"]}


def members(gateway):
    """How the members of the only mirror stand, by their names."""
    [mirror] = admin(gateway, "mirror", "status")["mirrors"]
    return {member["store"]: member for member in mirror["members"]}
