"""The running program: config, users, health, metrics, TLS, limits, logs, the end."""

import concurrent.futures
import http.client
import json
import signal
import ssl
import subprocess
import threading
import time
import urllib.request

import pytest

from harness import servers, sigv4
from harness.servers import AS_CONFIGURED, Credentials
from harness.stub_origin import StubOrigin, object_reply
from harness.wire import Wire, head_bytes, read_answer

pytestmark = pytest.mark.skipif(
    not servers.forebay_binary().exists(), reason="needs the built gateway"
)

READER = Credentials("READERKEY00000000001", "reader+secret/00000000000000000000001")
STRANGER = Credentials("STRANGERKEY000000001", "stranger+secret/000000000000000000001")
ROUTE = """
[stores.files]
type = "fs"
path = "{data}"
[[routes]]
store = "files"
layers = [{{ type = "cache", memory = "64MiB" }}]
"""
USERS = f"""
[users.reader]
access_key = "{READER.access_key}"
secret_key = "{READER.secret_key}"
policies = ["readonly"]
[users.stranger]
access_key = "{STRANGER.access_key}"
secret_key = "{STRANGER.secret_key}"
policies = [{{ json = '''{{"Version": "2012-10-17", "Statement": [{{"Effect": "Allow",
  "Action": "s3:GetObject", "Resource": "arn:aws:s3:::shared/own/*"}}]}}''' }}]
[[bucket_policies]]
bucket = "public"
policy = "public-read"
"""


def text_of(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.status, response.read().decode()


@pytest.fixture
def gateway(gateways, tmp_path):
    """A gateway on a directory with a cache, three users and one public bucket."""
    return gateways(config=ROUTE.format(data=tmp_path / "data") + USERS)


class TestUsers:
    """Who may do what, on hits too."""

    @pytest.fixture
    def root(self, gateway):
        wire = Wire(gateway)
        for bucket in ("shared", "public"):
            assert wire.signed("PUT", f"/{bucket}").status == 200
            for key in ("own/k", "other/k"):
                path = f"/{bucket}/{key}"
                assert wire.signed("PUT", path, body=path.encode()).status == 200
                for _ in range(2):  # In the cache from here on.
                    assert wire.signed("GET", path).body == path.encode()
        return wire

    def test_a_reader_reads_and_cannot_write(self, gateway, root):
        reader = Wire(gateway, READER)
        assert reader.signed("GET", "/shared/own/k").body == b"/shared/own/k"
        for method, path in (("PUT", "/shared/new"), ("DELETE", "/shared/own/k"), ("PUT", "/new")):
            answer = reader.signed(method, path)
            assert (answer.status, answer.code) == (403, "AccessDenied"), (method, path)
        assert root.signed("GET", "/shared/own/k").status == 200

    def test_a_hit_is_refused_to_who_has_no_grant(self, gateway, root):
        stranger = Wire(gateway, STRANGER)
        assert stranger.signed("GET", "/shared/own/k").body == b"/shared/own/k"
        for method in ("GET", "HEAD"):
            assert stranger.signed(method, "/shared/other/k").status == 403
        ranged = stranger.signed("GET", "/shared/other/k", headers={"range": "bytes=0-1"})
        assert (ranged.status, ranged.code) == (403, "AccessDenied")
        assert stranger.signed("GET", "/shared", [("list-type", "2")]).status == 403
        assert root.signed("GET", "/shared/other/k").body == b"/shared/other/k"

    def test_a_copy_needs_the_right_to_read_its_source(self, gateway, root):
        stranger = Wire(gateway, STRANGER)
        answer = stranger.signed(
            "PUT", "/shared/own/copy", headers={"x-amz-copy-source": "/shared/other/k"}
        )
        assert (answer.status, answer.code) == (403, "AccessDenied")

    def test_anonymous_reads_only_what_a_policy_opens(self, gateway, root):
        wire = Wire(gateway)
        assert wire.plain("GET", "/public/own/k").body == b"/public/own/k"
        for method, path in (
            ("GET", "/shared/own/k"), ("PUT", "/public/new"), ("DELETE", "/public/own/k"),
            ("GET", "/"), ("PUT", "/new"),
        ):
            answer = wire.plain(method, path)
            assert (answer.status, answer.code) == (403, "AccessDenied"), (method, path)

    def test_a_wrong_signature_is_refused_where_anonymous_may_read(self, gateway, root):
        wrong = Wire(gateway, Credentials(READER.access_key, "wrong"))
        answer = wrong.signed("GET", "/public/own/k")
        assert (answer.status, answer.code) == (403, "SignatureDoesNotMatch")


def test_cache_status_tells_hit_from_miss(gateway):
    wire = Wire(gateway)
    wire.signed("PUT", "/bucket")
    wire.signed("PUT", "/bucket/k", body=b"x" * 1000)
    cold, warm = wire.signed("GET", "/bucket/k"), wire.signed("GET", "/bucket/k")
    assert "fwd=" in cold.header("cache-status")
    assert "hit" in warm.header("cache-status")


def test_health_tells_live_and_ready(gateway):
    assert text_of(gateway.admin_url + "/health/live")[0] == 200
    assert text_of(gateway.admin_url + "/health/ready")[0] == 200


def test_metrics_count_requests_and_hits(gateway):
    wire = Wire(gateway)
    wire.signed("PUT", "/bucket")
    wire.signed("PUT", "/bucket/k", body=b"x")
    for _ in range(5):
        assert wire.signed("GET", "/bucket/k").status == 200
    status, text = text_of(gateway.admin_url + "/metrics")
    assert status == 200
    assert "# TYPE forebay_" in text
    lines = [line for line in text.splitlines() if "GetObject" in line and "_total" in line]
    assert any(line.rsplit(" ", 1)[1] == "5" for line in lines), lines


def test_sigterm_lets_a_download_finish_and_exits_with_zero(gateways):
    content = b"drain" * 1_000_000
    with StubOrigin(lambda _: object_reply(content)) as origin:
        gateway = gateways(origin=origin.url)
        wire = Wire(gateway)
        headers = sigv4.sign_headers(wire.scope(), "GET", wire.host, "/bucket/k")
        with wire.open(head_bytes("GET", "/bucket/k", headers)) as connection:
            response = http.client.HTTPResponse(connection)
            response.begin()
            first = response.read(1000)
            gateway.process.send_signal(signal.SIGTERM)
            assert first + response.read() == content
        assert gateway.process.wait(20) == 0
        with pytest.raises(OSError):
            wire.plain("GET", "/")


def test_a_restart_keeps_what_was_acknowledged(gateways, tmp_path):
    config = ROUTE.format(data=tmp_path / "kept")
    gateway = gateways(config=config)
    wire = Wire(gateway)
    wire.signed("PUT", "/bucket")
    for number in range(20):
        assert wire.signed("PUT", f"/bucket/k{number}", body=str(number).encode()).status == 200
    gateway.kill()
    wire = Wire(gateways(config=config))
    for number in range(20):
        assert wire.signed("GET", f"/bucket/k{number}").body == str(number).encode()


def test_slow_heads_are_cut(gateways, tmp_path):
    """Slow loris: a byte a moment, for ever."""
    limits = '[server.limits]\nheader_timeout = "1s"\n'
    wire = Wire(gateways(config=limits + ROUTE.format(data=tmp_path / "data")))
    started = time.monotonic()
    with wire.open(b"GET / HTTP/1.1\r\n") as connection:
        connection.settimeout(0.1)
        is_cut = False
        while not is_cut and time.monotonic() - started < 10:
            try:
                connection.sendall(b"x-a: b\r\n")
                connection.recv(1000)
                is_cut = True
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                is_cut = True
    assert is_cut
    assert time.monotonic() - started < 5


def test_a_stalled_upload_is_cut_and_stores_nothing(gateways, tmp_path):
    limits = '[server.limits]\nstall_timeout = "1s"\n'
    wire = Wire(gateways(config=limits + ROUTE.format(data=tmp_path / "data")))
    wire.signed("PUT", "/bucket")
    headers = sigv4.sign_headers(
        wire.scope(), "PUT", wire.host, "/bucket/k", payload_hash=sigv4.UNSIGNED
    )
    headers["content-length"] = "1000000"
    started = time.monotonic()
    with wire.open(head_bytes("PUT", "/bucket/k", headers), b"x" * 1000) as connection:
        answer = read_answer(connection)
    assert time.monotonic() - started < 10
    assert answer is None or (answer.status, answer.code) == (400, "RequestTimeout")
    assert wire.signed("GET", "/bucket/k").code == "NoSuchKey"


def test_an_origin_that_never_answers_is_503(gateways):
    never = threading.Event()

    def script(_):
        never.wait(20)
        return object_reply(b"late")

    with StubOrigin(script) as origin:
        config = f"""
[stores.origin]
type = "s3"
endpoint = "{origin.url}"
region = "us-east-1"
timeouts = {{ first_byte = "1s" }}
retries = {{ attempts_max = 1 }}
[[routes]]
store = "origin"
"""
        wire = Wire(gateways(config=config))
        started = time.monotonic()
        answer = wire.signed("GET", "/bucket/k")
        never.set()
    assert answer.status in (503, 504), answer
    assert time.monotonic() - started < 8


def test_many_idle_connections_do_not_stop_others(gateway):
    wire = Wire(gateway)
    idle = [wire.open(b"") for _ in range(300)]
    assert wire.signed("GET", "/").status == 200
    for connection in idle:
        connection.close()


def test_a_hundred_clients_at_once_get_right_answers(gateway):
    wire = Wire(gateway)
    wire.signed("PUT", "/bucket")

    def round_trip(number):
        content = str(number).encode() * 10_000
        assert wire.signed("PUT", f"/bucket/k{number}", body=content).status == 200
        return all(wire.signed("GET", f"/bucket/k{number}").body == content for _ in range(3))

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        assert all(pool.map(round_trip, range(200)))


@pytest.fixture
def certificate(tmp_path):
    """Makes a self-signed certificate for 127.0.0.1, as often as it is called."""

    def make():
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-days", "2", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=IP:127.0.0.1",
             "-keyout", tmp_path / "tls.key", "-out", tmp_path / "tls.crt"],
            check=True, capture_output=True,
        )
        return tmp_path / "tls.crt", tmp_path / "tls.key"

    return make


def test_tls_is_served_and_a_new_certificate_taken_without_a_restart(
    gateways, certificate, tmp_path
):
    file, key = certificate()
    port = servers.free_port()
    config = f"""
[server]
listen = [{{ address = "127.0.0.1:{port}", tls = {{ certificate = "{file}", key = "{key}" }} }}]
"""
    gateway = gateways(config=config + ROUTE.format(data=tmp_path / "data"), port=AS_CONFIGURED)

    def shown():
        return ssl.get_server_certificate(("127.0.0.1", port))

    first = file.read_text()
    assert shown().split() == first.split()
    context = ssl.create_default_context(cafile=str(file))
    with urllib.request.urlopen(
        f"http://127.0.0.1:{gateway.admin_port}/health/ready", timeout=5
    ) as ready:
        assert ready.status == 200
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=10)
    connection.request("GET", "/")
    assert connection.getresponse().status == 403
    connection.close()
    certificate()
    gateway.process.send_signal(signal.SIGHUP)
    servers.wait_until(lambda: shown().split() != first.split(), "the new certificate")
    assert shown().split() == file.read_text().split()


def test_users_are_taken_live_and_a_bad_file_is_refused(gateways, tmp_path):
    users = tmp_path / "users.toml"
    users.write_text(USERS)
    head = f'users_file = "{users}"\n'
    gateway = gateways(config=head + ROUTE.format(data=tmp_path / "data"))
    reader = Wire(gateway, READER)
    assert reader.signed("GET", "/").status == 200
    users.write_text("[users.broken]\nno_such_key = 1\n")
    gateway.process.send_signal(signal.SIGHUP)
    servers.wait_until(lambda: "no_such_key" in gateway.log.read_text(), "the refusal in the log")
    assert reader.signed("GET", "/").status == 200
    users.write_text("")
    gateway.process.send_signal(signal.SIGHUP)
    servers.wait_until(lambda: reader.signed("GET", "/").status == 403, "the user to be gone")
    assert reader.signed("GET", "/").code == "InvalidAccessKeyId"


@pytest.mark.parametrize("kind", ["json", "aws"])
def test_the_access_log_has_one_line_per_request(gateways, tmp_path, kind):
    log = tmp_path / "access.log"
    head = f'[access_log]\npath = "{log}"\nformat = "{kind}"\n'
    wire = Wire(gateways(config=head + ROUTE.format(data=tmp_path / "data")))
    wire.signed("PUT", "/bucket")
    wire.signed("GET", "/bucket/none")
    servers.wait_until(
        lambda: log.exists() and log.read_text().count("\n") == 2, "two lines", timeout_seconds=10
    )
    line = log.read_text().splitlines()[1]
    for part in ("none", "404", "NoSuchKey"):
        assert part in line
    assert wire.credentials.secret_key not in log.read_text()
    if kind == "json":
        assert json.loads(line)["status"] == 404


class TestConfigFaults:
    """All faults at once, each with key, value and remedy, exit code 64, nothing listening."""

    def check(self, tmp_path, text, command=("config", "check")):
        file = tmp_path / "bad.toml"
        file.write_text(text)
        return subprocess.run(
            [servers.forebay_binary(), *command, "--config", file],
            env=servers.plain_environment(), capture_output=True, text=True, timeout=20,
        )

    @pytest.mark.parametrize("command", [("config", "check"), ("serve",)])
    def test_all_faults_are_told_at_once(self, tmp_path, command):
        done = self.check(
            tmp_path,
            '[server]\nlisten = ["not an address"]\nlisten_typo = 1\n'
            '[server.limits]\nheader_timeout = "10 parsecs"\n'
            '[[routes]]\nstore = "nowhere"\n',
            command,
        )
        assert done.returncode == 64
        told = done.stderr + done.stdout
        for part in ("not an address", "listen_typo", "10 parsecs", "nowhere", "header_timeout"):
            assert part in told, told

    def test_a_good_config_passes(self, tmp_path):
        done = self.check(tmp_path, ROUTE.format(data=tmp_path / "data"))
        assert done.returncode == 0, done.stderr

    def test_the_example_is_a_good_config(self, tmp_path):
        example = subprocess.run(
            [servers.forebay_binary(), "config", "example"], capture_output=True, text=True,
            check=True, timeout=20,
        ).stdout
        done = self.check(tmp_path, example)
        assert done.returncode == 0, done.stderr

    def test_show_hides_secrets_and_names_sources(self, tmp_path):
        done = self.check(tmp_path, ROUTE.format(data=tmp_path / "data") + USERS,
                          ("config", "show"))
        assert done.returncode == 0, done.stderr
        assert READER.secret_key not in done.stdout
        assert READER.access_key in done.stdout


def test_the_first_start_makes_credentials_and_shows_them_once(tmp_path):
    """Without credentials in the environment, as a person starts it."""
    port, admin = servers.free_port(), servers.free_port()
    command = [
        servers.forebay_binary(), "serve", "--data", tmp_path / "data",
        "--listen", f"127.0.0.1:{port}", "--admin-listen", f"127.0.0.1:{admin}",
    ]
    shown = []
    for _ in range(2):
        output = (tmp_path / "out").open("w+b")
        process = subprocess.Popen(
            command, env=servers.plain_environment(), stdout=output, stderr=output
        )
        try:
            servers.wait_until(lambda: servers.is_listening(port), "forebay to listen")
        finally:
            process.terminate()
            process.wait(20)
        output.seek(0)
        shown.append(output.read().decode())
    held = [
        path for path in (tmp_path / "data").rglob("*")
        if path.is_file() and path.stat().st_mode & 0o777 == 0o600
    ]
    secrets = [word for path in held for word in path.read_text().replace('"', " ").split()
               if len(word) >= 32 and word in shown[0]]
    assert secrets, "the secret that was shown is in a file with mode 0600"
    assert all(word not in shown[1] for word in secrets), "shown once"
