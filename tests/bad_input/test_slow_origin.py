"""Operations that an origin works on for long, and errors that come after a head of 200."""

import concurrent.futures
import http.client
import threading

import pytest
from botocore.exceptions import ClientError

from harness import servers, sigv4
from harness.clients import AwsCli, boto3_client
from harness.origins import content_of, ranged
from harness.stub_origin import Reply, StubOrigin
from harness.wire import Wire, head_bytes

DECLARATION = b'<?xml version="1.0" encoding="UTF-8"?>\n'
XML = {"content-type": "application/xml", "x-of-tomorrow": "1"}
RESULT = b'<%s xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><ETag>&quot;e&quot;</ETag></%s>'
pytestmark = pytest.mark.skipif(
    not servers.forebay_binary().exists(), reason="needs the built gateway"
)


def document(request):
    """What an S3 server says of a write that takes long, by the key that it is about."""
    if "/missing" in request.target:
        return Reply(404, XML, DECLARATION + b"<Error><Code>NoSuchUpload</Code></Error>")
    if request.method == "POST":
        name = b"CompleteMultipartUploadResult"
    else:
        name = b"CopyPartResult" if "partNumber" in request.target else b"CopyObjectResult"
    return Reply(200, XML, DECLARATION + RESULT % (name, name))


def late_copy(wire):
    """A copy by hand: gives the connection once the head and the declaration have come."""
    headers = sigv4.sign_headers(
        wire.scope(), "PUT", wire.host, "/bucket/raw", headers={"x-amz-copy-source": "/bucket/s"}
    )
    connection = wire.open(head_bytes("PUT", "/bucket/raw", headers | {"content-length": "0"}))
    response = http.client.HTTPResponse(connection)
    response.begin()
    assert (response.status, response.getheader("content-type")) == (200, "application/xml")
    assert response.getheader("x-of-tomorrow") is None, "the origin has not answered yet"
    assert response.read(len(DECLARATION)) == DECLARATION
    return connection, response


def test_clients_read_what_comes_after_white_space(gateways, tmp_path):
    """boto3 and `aws` understand an answer whose head left before the origin had answered."""
    is_done = threading.Event()

    def script(request):
        is_done.wait(60)
        return document(request)

    with StubOrigin(script) as origin, concurrent.futures.ThreadPoolExecutor() as pool:
        gateway = gateways(origin=origin.url)
        s3, aws = boto3_client(gateway), AwsCli(gateway, tmp_path)
        parts = {"Parts": [{"ETag": '"p"', "PartNumber": 1}]}
        upload = {"Bucket": "bucket", "UploadId": "1"}
        source = {"CopySource": "bucket/source"}
        complete = pool.submit(
            s3.complete_multipart_upload, **upload, Key="a", MultipartUpload=parts
        )
        copy = pool.submit(s3.copy_object, Bucket="bucket", Key="b", **source)
        part = pool.submit(s3.upload_part_copy, **upload, Key="c", PartNumber=1, **source)
        missing = pool.submit(
            s3.complete_multipart_upload, **upload, Key="missing", MultipartUpload=parts
        )
        command = ("s3api", "copy-object", "--bucket", "bucket", "--key", "d")
        by_aws = pool.submit(aws, *command, "--copy-source", "bucket/source")
        servers.wait_until(lambda: len(origin.seen) == 5, "all requests")
        # The others have waited as long when this one, the last, has its head.
        connection, response = late_copy(Wire(gateway))
        with connection:
            is_done.set()
            rest = response.read()
        name = b"CopyObjectResult"
        assert rest.strip() == RESULT % (name, name)
        assert complete.result()["ETag"] == '"e"'
        assert copy.result()["CopyObjectResult"]["ETag"] == '"e"'
        assert part.result()["CopyPartResult"]["ETag"] == '"e"'
        assert b'"ETag": "\\"e\\""' in by_aws.result().stdout
        with pytest.raises(ClientError) as refused:
            missing.result()
        assert refused.value.response["Error"]["Code"] == "NoSuchUpload"


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("POST", [("uploadId", "1")], {}),
        ("PUT", [], {"x-amz-copy-source": "/bucket/source"}),
    ],
)
def test_an_error_in_a_200_passes_unchanged_and_invalidates(
    before, method, target, headers, is_chunked
):
    """The origin may have written all the same, so the cache asks it again."""
    content = content_of(1000)
    error = DECLARATION + b"\n   <Error><Code>InternalError</Code><Message>m</Message></Error>"

    def script(request):
        if request.method == "GET":
            return ranged(content, '"a"', request)
        return Reply(200, XML, error, is_chunked=is_chunked)

    with StubOrigin(script) as origin:
        wire = before(origin.url)
        for _ in range(2):
            assert wire.signed("GET", "/bucket/k").body == content
        assert len(origin.seen) == 1, "the second is a hit"
        answer = wire.signed(method, "/bucket/k", target, headers)
        assert (answer.status, answer.body) == (200, error)
        assert answer.header("x-of-tomorrow") == "1"
        assert wire.signed("GET", "/bucket/k").body == content
        assert [seen.method for seen in origin.seen] == ["GET", method, "GET"]
