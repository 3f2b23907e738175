"""The servers that Forebay is compared with, each set up as its own makers advise for speed."""

import os
import subprocess
from pathlib import Path

from harness.servers import (
    ROOT,
    free_port,
    is_listening,
    plain_environment,
    versitygw_binary,
    wait_until,
)

# The loads that wrk cannot make; built from scripts/bench/s3load.
S3LOAD = ROOT / ".tools/bin/s3load"
NGINX = """
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log warn;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  default_type application/octet-stream;
  sendfile on;
  # Off: on, it stalls 44 ms at 100 KiB.
  tcp_nopush off;
  tcp_nodelay on;
  keepalive_timeout 300s;
  keepalive_requests 1000000000;
  {options}
  client_max_body_size 0;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  {servers}
}}
"""
STATIC = "server {{ listen 127.0.0.1:{port}; root {root}; }}"
PROXY = """
  upstream origin {{ server 127.0.0.1:{origin}; keepalive 64; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://origin;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      # The host is signed, so it must stay.
      proxy_set_header Host $http_host;
      proxy_request_buffering off;
      proxy_buffering on;
      proxy_max_temp_file_size 0;
    }}
  }}
"""

CACHE = """
  proxy_cache_path {directory}/kept keys_zone=kept:16m max_size=1g use_temp_path=off;
  upstream origin {{ server 127.0.0.1:{origin}; keepalive 64; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://origin;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      # The host is signed, so it must stay.
      proxy_set_header Host $http_host;
      proxy_request_buffering off;
      proxy_max_temp_file_size 0;
      proxy_cache kept;
      proxy_cache_key $request_uri;
      proxy_cache_methods GET;
      # A HEAD must reach the origin as what was signed.
      proxy_cache_convert_head off;
      proxy_cache_valid 200 1d;
      proxy_ignore_headers Cache-Control Expires Set-Cookie Vary;
    }}
  }}
"""


class Peer:
    """A running peer: its port and its process."""

    def __init__(self, name, command, port, directory, core=None):
        if core is not None:
            command = ["taskset", "-c", str(core), *command]
        self.name, self.port = name, port
        log = (Path(directory) / f"{name}.log").open("ab")
        self.process = subprocess.Popen(
            [str(part) for part in command], stdout=log, stderr=log, env=plain_environment(
                PATH=os.environ["PATH"] + ":/usr/sbin"
            )
        )
        wait_until(lambda: is_listening(port), f"{name} to listen")

    @property
    def pid(self):
        return self.process.pid

    @property
    def host(self):
        return f"127.0.0.1:{self.port}"

    @property
    def url(self):
        return f"http://{self.host}"

    def stop(self):
        self.process.terminate()
        self.process.wait()


def relay(name, directory, origin_port, *options):
    """Passes bytes on and knows nothing of HTTP: a bound for whatever looks at them."""
    port = free_port()
    addresses = ["-listen", f"127.0.0.1:{port}", "-to", f"127.0.0.1:{origin_port}"]
    return Peer(name, [S3LOAD, "relay", *addresses, *options], port, directory)


def _nginx(name, directory, servers, port, core, options=""):
    home = Path(directory) / name
    home.mkdir(parents=True, exist_ok=True)
    config = home / "nginx.conf"
    config.write_text(NGINX.format(directory=home, servers=servers, options=options))
    return Peer(name, ["nginx", "-p", home, "-c", config], port, home, core)


def nginx_static(directory, root, core=None):
    """nginx over a directory of files, by sendfile, opening the file of each request."""
    port = free_port()
    return _nginx("nginx", directory, STATIC.format(port=port, root=root), port, core)


def nginx_open_files(directory, root, core=None):
    """The same, keeping files open: quicker, and a changed file is noticed a minute late."""
    port = free_port()
    servers = STATIC.format(port=port, root=root)
    return _nginx("nginx-open", directory, servers, port, core, "open_file_cache max=1000;")


def nginx_proxy(directory, origin_port, core=None):
    """nginx as a reverse proxy that keeps nothing."""
    port = free_port()
    servers = PROXY.format(port=port, origin=origin_port)
    return _nginx("nginx-proxy", directory, servers, port, core)


def nginx_cache(directory, origin_port):
    """nginx that keeps answers on a file system, here in memory, whoever signed for them."""
    port = free_port()
    home = Path(directory) / "nginx-cache"
    home.mkdir(parents=True, exist_ok=True)
    servers = CACHE.format(port=port, origin=origin_port, directory=home)
    return _nginx("nginx-cache", directory, servers, port, None)


def versitygw_proxy(directory, origin):
    """versitygw as a gateway to another S3 service."""
    port = free_port()
    home = Path(directory) / "versitygw-proxy"
    home.mkdir(parents=True, exist_ok=True)
    access_key, secret_key = origin.credentials.access_key, origin.credentials.secret_key
    command = [
        versitygw_binary(), "--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet",
        "--access", access_key, "--secret", secret_key,
        "s3", "--access", access_key, "--secret", secret_key, "--endpoint", origin.url,
        # With it a PUT of unsigned payload over plain HTTP fails: its client can't hash a stream.
        "--disable-data-integrity-check",
    ]
    return Peer("versitygw-proxy", command, port, home)


def redis(directory, appendfsync=None):
    """Redis with nothing on a disk, or with a log of its writes that is synced so.

    The log is not rewritten meanwhile: that would meet whoever has its turn.
    """
    port = free_port()
    home = Path(directory) / "redis"
    home.mkdir(parents=True, exist_ok=True)
    command = [
        "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", home,
        "--save", "", "--appendonly", "yes" if appendfsync else "no",
        "--appendfsync", appendfsync or "no", "--auto-aof-rewrite-percentage", "0",
    ]
    return Peer("redis", command, port, home)


def varnish(directory, origin_port, core=None):
    """varnish with all of it in memory, for good."""
    return _varnish(directory, origin_port, "malloc,512m", "", core)


def varnish_signed(directory, origin_port):
    """The same, larger, which keeps what carries a signature as well and passes writes on."""
    keep = 'sub vcl_recv { if (req.method == "GET") { return (hash); } return (pass); }\n'
    return _varnish(directory, origin_port, "malloc,1g", keep, None)


def _varnish(directory, origin_port, memory, rules, core):
    port = free_port()
    home = Path(directory) / "varnish"
    home.mkdir(parents=True, exist_ok=True)
    vcl = home / "bench.vcl"
    vcl.write_text(
        "vcl 4.1;\n"
        f'backend default {{ .host = "127.0.0.1"; .port = "{origin_port}"; }}\n'
        f"{rules}"
        "sub vcl_backend_response { set beresp.ttl = 1d; }\n"
    )
    command = [
        "varnishd", "-F", "-j", "none", "-n", home / "work", "-a", f"127.0.0.1:{port}", "-f", vcl,
        "-s", memory,
    ]
    return Peer("varnish", command, port, home, core)
