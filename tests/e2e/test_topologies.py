"""Other ways to stand in a network: behind each other, by host names, without signatures."""

import subprocess

import pytest

from harness import servers
from harness.clients import boto3_client
from harness.servers import AS_CONFIGURED, GATEWAY_ROOT
from harness.wire import Wire

pytestmark = pytest.mark.skipif(
    not servers.forebay_binary().exists(), reason="needs the built gateway"
)

MIB = 1 << 20
FILES = """
[stores.files]
type = "fs"
path = "{data}"
[[routes]]
store = "files"
"""


@pytest.mark.parametrize("protocol", ["http1", "http2"])
def test_a_gateway_is_the_origin_of_another(gateways, tmp_path, protocol):
    inner = gateways(config=FILES.format(data=tmp_path / "data"))
    outer = gateways(
        config=f"""
[stores.inner]
type = "s3"
endpoint = "{inner.url}"
region = "us-east-1"
protocol = "{protocol}"
credentials = "keys"
access_key = "{GATEWAY_ROOT.access_key}"
secret_key = "{GATEWAY_ROOT.secret_key}"
[[routes]]
store = "inner"
layers = [{{ type = "cache", memory = "64MiB" }}]
"""
    )
    s3 = boto3_client(outer)
    s3.create_bucket(Bucket="bucket")
    content = b"".join(n.to_bytes(4, "big") * 256 for n in range(9 * 1024))
    s3.put_object(Bucket="bucket", Key="small", Body=b"small")
    with (tmp_path / "large").open("w+b") as file:
        file.write(content)
        file.seek(0)
        s3.upload_fileobj(file, "bucket", "large")
    for client in (s3, boto3_client(inner), s3):
        assert client.get_object(Bucket="bucket", Key="small")["Body"].read() == b"small"
        assert client.get_object(Bucket="bucket", Key="large")["Body"].read() == content
        assert client.list_objects_v2(Bucket="bucket")["KeyCount"] == 2


def test_buckets_are_host_names_of_configured_domains(gateways, tmp_path):
    domains = '[server]\ndomains = ["s3.test", "objects.s3.test"]\n'
    gateway = gateways(config=domains + FILES.format(data=tmp_path / "data"))
    wire = Wire(gateway)
    assert wire.signed("PUT", "/bucket").status == 200
    assert wire.signed("PUT", "/bucket/dir/k", body=b"by path").status == 200
    for host in ("bucket.s3.test", f"bucket.s3.test:{gateway.port}", "bucket.objects.s3.test"):
        wire.host = host
        assert wire.signed("GET", "/dir/k").body == b"by path", host
        assert b"<Key>dir/k</Key>" in wire.signed("GET", "/", [("list-type", "2")]).body
    wire.host = "s3.test"
    assert wire.signed("GET", "/bucket/dir/k").body == b"by path"
    wire.host = "elsewhere.test"
    assert wire.signed("GET", "/bucket/dir/k").body == b"by path"


def test_without_authentication_everybody_is_the_user(gateways, tmp_path):
    port = servers.free_port()
    listen = f'[server]\nlisten = [{{ address = "127.0.0.1:{port}", authentication = "off" }}]\n'
    gateway = gateways(
        config=listen + FILES.format(data=tmp_path / "data"), port=AS_CONFIGURED
    )
    gateway.port = port
    wire = Wire(gateway)
    assert wire.plain("PUT", "/bucket").status == 200
    assert wire.plain("PUT", "/bucket/k", body=b"open").status == 200
    assert wire.plain("GET", "/bucket/k").body == b"open"
    assert "WARN" not in gateway.log.read_text(), "loopback needs no warning"


def test_without_authentication_beyond_loopback_must_be_meant(tmp_path):
    """Refused by the check, unless said twice."""
    listen = '[server]\nlisten = [{ address = "0.0.0.0:9", authentication = "off" }]\n'
    file = tmp_path / "open.toml"
    for more, code in (("", 64), (", allow_unauthenticated = true }", 0)):
        text = listen.replace(" }", more) if more else listen
        file.write_text(text + FILES.format(data=tmp_path / "data"))
        done = subprocess.run(
            [servers.forebay_binary(), "config", "check", "--config", file],
            env=servers.plain_environment(), capture_output=True, text=True, timeout=20,
        )
        assert done.returncode == code, done.stderr


def test_routes_send_buckets_to_their_stores(gateways, tmp_path):
    config = f"""
[stores.first]
type = "fs"
path = "{tmp_path / 'first'}"
[stores.second]
type = "fs"
path = "{tmp_path / 'second'}"
[[routes]]
buckets = ["logs-*"]
store = "second"
[[routes]]
buckets = ["*"]
store = "first"
"""
    wire = Wire(gateways(config=config))
    for bucket in ("logs-1", "other"):
        assert wire.signed("PUT", f"/{bucket}").status == 200
        assert wire.signed("PUT", f"/{bucket}/k", body=bucket.encode()).status == 200
    found = {
        name: any(path.is_file() and path.read_bytes() == name.encode()
                  for path in (tmp_path / store).rglob("*"))
        for name, store in (("logs-1", "second"), ("other", "first"))
    }
    assert found == {"logs-1": True, "other": True}
