"""Real clients, each set up for one server and nothing from the machine's own settings."""

import os
import subprocess
import sys
from pathlib import Path

import boto3
from botocore.config import Config

from . import sigv4
from .servers import REGION, plain_environment

COMMAND_TIMEOUT_SECONDS = 180


def boto3_client(server, credentials=None, **options):
    """A boto3 client with its own defaults: CRC trailers on uploads, checksums on downloads."""
    credentials = credentials or server.credentials
    settings = {
        "s3": {"addressing_style": "path"},
        "retries": {"max_attempts": 1},
        # Only presigned URLs and forms need it: boto3 makes those with SigV2 by default.
        "signature_version": "s3v4",
    }
    return boto3.client(
        "s3",
        endpoint_url=server.url,
        region_name=REGION,
        aws_access_key_id=credentials.access_key,
        aws_secret_access_key=credentials.secret_key,
        config=Config(**(settings | options)),
    )


def run(command, environment=None, check=True, cwd=None):
    """Runs a client. Its output is part of the failure when it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        env=environment or plain_environment(),
        cwd=cwd,
        capture_output=True,
        timeout=COMMAND_TIMEOUT_SECONDS,
    )
    if check and done.returncode != 0:
        raise AssertionError(
            f"{command} left with {done.returncode}\n{done.stdout.decode(errors='replace')}\n"
            f"{done.stderr.decode(errors='replace')}"
        )
    return done


class AwsCli:
    """`aws`, as a shell user has it."""

    def __init__(self, server, home):
        self.server = server
        self.program = Path(sys.executable).parent / "aws"
        self.environment = plain_environment(
            HOME=str(home),
            AWS_ACCESS_KEY_ID=server.credentials.access_key,
            AWS_SECRET_ACCESS_KEY=server.credentials.secret_key,
            AWS_REGION=REGION,
            AWS_DEFAULT_REGION=REGION,
            AWS_MAX_ATTEMPTS="1",
        )

    def __call__(self, *arguments, check=True):
        command = [sys.executable, self.program, "--endpoint-url", self.server.url, *arguments]
        return run(command, self.environment, check)


class Rclone:
    """`rclone`, with a remote called `s3:` made of environment variables."""

    def __init__(self, server, home):
        self.environment = plain_environment(
            HOME=str(home),
            RCLONE_CONFIG=os.devnull,
            RCLONE_CONFIG_S3_TYPE="s3",
            RCLONE_CONFIG_S3_PROVIDER="Other",
            RCLONE_CONFIG_S3_ENDPOINT=server.url,
            RCLONE_CONFIG_S3_REGION=REGION,
            RCLONE_CONFIG_S3_ACCESS_KEY_ID=server.credentials.access_key,
            RCLONE_CONFIG_S3_SECRET_ACCESS_KEY=server.credentials.secret_key,
        )

    def __call__(self, *arguments, check=True):
        return run(["rclone", "--retries", "1", *arguments], self.environment, check)


class S3cmd:
    """`s3cmd`, with a config file that knows only this server."""

    def __init__(self, server, home):
        self.config = home / "s3cfg"
        host = f"{server.host}:{server.port}"
        self.config.write_text(
            f"[default]\naccess_key = {server.credentials.access_key}\n"
            f"secret_key = {server.credentials.secret_key}\n"
            f"host_base = {host}\nhost_bucket = {host}\n"
            f"bucket_location = {REGION}\nuse_https = False\nsignature_v2 = False\n"
        )

    def __call__(self, *arguments, check=True):
        return run(["s3cmd", "--config", self.config, *arguments], check=check)


class Curl:
    """`curl`, which signs by itself with `--aws-sigv4`."""

    def __init__(self, server):
        self.server = server

    def __call__(self, path, *arguments, check=True, payload_hash=sigv4.UNSIGNED):
        # Debian's curl 7.88 does not send the payload hash that S3 asks for, so we name it.
        arguments = ["--header", f"x-amz-content-sha256: {payload_hash}", *arguments]
        user = f"{self.server.credentials.access_key}:{self.server.credentials.secret_key}"
        signing = ["--aws-sigv4", f"aws:amz:{REGION}:s3", "--user", user]
        command = ["curl", "--silent", "--show-error", "--path-as-is", *signing]
        return run([*command, *arguments, self.server.url + path], check=check)

    def unsigned(self, url, *arguments, check=True):
        return run(["curl", "--silent", "--show-error", *arguments, url], check=check)
