"""The servers that Forebay is compared with, each set up as its own makers advise for speed."""

import os
import subprocess
from pathlib import Path

from harness.servers import ROOT, free_port, is_listening, plain_environment, wait_until

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
  open_file_cache max=1000;
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


def _nginx(name, directory, servers, port, core):
    home = Path(directory) / name
    home.mkdir(parents=True, exist_ok=True)
    config = home / "nginx.conf"
    config.write_text(NGINX.format(directory=home, servers=servers))
    return Peer(name, ["nginx", "-p", home, "-c", config], port, home, core)


def nginx_static(directory, root, core=None):
    """nginx over a directory of files, by sendfile."""
    port = free_port()
    return _nginx("nginx", directory, STATIC.format(port=port, root=root), port, core)


def nginx_proxy(directory, origin_port, core=None):
    """nginx as a reverse proxy that keeps nothing."""
    port = free_port()
    servers = PROXY.format(port=port, origin=origin_port)
    return _nginx("nginx-proxy", directory, servers, port, core)


def varnish(directory, origin_port, core=None):
    """varnish with all of it in memory, for good."""
    port = free_port()
    home = Path(directory) / "varnish"
    home.mkdir(parents=True, exist_ok=True)
    vcl = home / "bench.vcl"
    vcl.write_text(
        "vcl 4.1;\n"
        f'backend default {{ .host = "127.0.0.1"; .port = "{origin_port}"; }}\n'
        "sub vcl_backend_response { set beresp.ttl = 1d; }\n"
    )
    command = [
        "varnishd", "-F", "-j", "none", "-n", home / "work", "-a", f"127.0.0.1:{port}", "-f", vcl,
        "-s", "malloc,512m",
    ]
    return Peer("varnish", command, port, home, core)
