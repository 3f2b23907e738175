"""Presigned URLs and browser forms: the holder has no key and signs nothing."""

import base64
import json
import urllib.parse

import pytest

from harness import sigv4
from harness.clients import Curl
from harness.wire import Wire


def presigned(s3, operation, bucket, **more):
    parameters = {"Bucket": bucket, "Key": "k ü+", **more}
    return s3.generate_presigned_url(operation, Params=parameters, ExpiresIn=300)


def test_a_presigned_get_serves_the_object(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="k ü+", Body=b"content")
    url = presigned(s3, "get_object", bucket)
    for _ in range(2):
        assert Curl(server).unsigned(url, "--fail").stdout == b"content"


def test_a_presigned_get_may_override_response_headers(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="k ü+", Body=b"content")
    url = presigned(s3, "get_object", bucket, ResponseContentType="x/y")
    shown = Curl(server).unsigned(url, "--fail", "--dump-header", "-").stdout.lower()
    assert b"content-type: x/y" in shown


def test_a_presigned_head_tells_the_size(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="k ü+", Body=b"content")
    url = presigned(s3, "head_object", bucket)
    shown = Curl(server).unsigned(url, "--fail", "--head").stdout.lower()
    assert b"content-length: 7" in shown


def test_a_presigned_put_stores_the_object(server, s3, bucket, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"put by url" * 1000)
    url = presigned(s3, "put_object", bucket, ContentType="text/x-put")
    Curl(server).unsigned(
        url, "--fail", "--upload-file", file, "--header", "content-type: text/x-put"
    )
    got = s3.get_object(Bucket=bucket, Key="k ü+")
    assert (got["Body"].read(), got["ContentType"]) == (file.read_bytes(), "text/x-put")


def test_a_presigned_delete_deletes(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="k ü+", Body=b"content")
    url = presigned(s3, "delete_object", bucket)
    Curl(server).unsigned(url, "--fail", "--request", "DELETE")
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_a_presigned_url_is_for_its_method_and_key_only(server, s3, bucket, wire):
    s3.put_object(Bucket=bucket, Key="other", Body=b"secret")
    target = sigv4.presign(wire.scope(), "GET", wire.host, f"/{bucket}/k")
    assert wire.plain("PUT", target, body=b"x").code == "SignatureDoesNotMatch"
    moved = target.replace(f"/{bucket}/k?", f"/{bucket}/other?")
    answer = wire.plain("GET", moved)
    assert (answer.status, answer.code) == (403, "SignatureDoesNotMatch")


def test_a_proxy_that_keeps_the_host_header_changes_nothing(server, s3, bucket):
    """A reverse proxy listens elsewhere; the Host that was signed is what counts."""
    s3.put_object(Bucket=bucket, Key="k", Body=b"content")
    wire = Wire(server)
    target = sigv4.presign(wire.scope(), "GET", "proxy.example:8443", f"/{bucket}/k")
    answer = wire.plain("GET", target, {"host": "proxy.example:8443"})
    assert (answer.status, answer.body) == (200, b"content")


@pytest.fixture
def form(s3, bucket):
    return s3.generate_presigned_post(
        bucket,
        "form/${filename}",
        Fields={"acl": "private", "Content-Type": "text/plain"},
        Conditions=[
            {"acl": "private"},
            {"Content-Type": "text/plain"},
            ["content-length-range", 1, 1000],
        ],
        ExpiresIn=300,
    )


def post(server, form, file, name="note.txt"):
    fields = [part for key, value in form["fields"].items() for part in ("-F", f"{key}={value}")]
    file_field = f"file=@{file};filename={name};type=application/octet-stream"
    url = server.url + urllib.parse.urlsplit(form["url"]).path
    shown = Curl(server).unsigned(
        url, *fields, "-F", file_field, "--write-out", "\n%{http_code}"
    ).stdout
    return shown.rpartition(b"\n")


# versitygw does not fill in `${filename}`; the gateway does it before the origin sees the key.
@pytest.mark.targets("fs", "origin")
def test_a_browser_form_stores_the_file(server, s3, bucket, form, tmp_path):
    file = tmp_path / "f"
    file.write_bytes(b"posted")
    body, _, status = post(server, form, file)
    assert status == b"204", body
    got = s3.get_object(Bucket=bucket, Key="form/note.txt")
    assert (got["Body"].read(), got["ContentType"]) == (b"posted", "text/plain")


def test_a_form_beyond_its_policy_stores_nothing(server, s3, bucket, form, tmp_path):
    file = tmp_path / "f"
    file.write_bytes(b"x" * 1001)
    body, _, status = post(server, form, file)
    assert (status, b"EntityTooLarge" in body) == (b"400", True)
    file.write_bytes(b"fine")
    form["fields"]["acl"] = "public-read"
    body, _, status = post(server, form, file)
    assert (status, b"AccessDenied" in body) == (b"403", True)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_a_form_with_a_forged_policy_stores_nothing(server, s3, bucket, form, tmp_path):
    file = tmp_path / "f"
    file.write_bytes(b"x")
    policy = json.loads(base64.b64decode(form["fields"]["policy"]))
    policy["conditions"].append(["content-length-range", 0, 10**9])
    form["fields"]["policy"] = base64.b64encode(json.dumps(policy).encode()).decode()
    body, _, status = post(server, form, file)
    assert (status, b"SignatureDoesNotMatch" in body) == (b"403", True)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
