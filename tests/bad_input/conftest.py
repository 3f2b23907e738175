"""After each of these tests the bucket must be as it was: nothing stored, whatever was sent."""

import pytest

from harness.clients import boto3_client


@pytest.fixture
def untouched(s3, bucket, origin):
    """The name of a bucket that must still be empty after the test, seen at the origin too."""
    yield bucket
    views = [s3] + ([boto3_client(origin)] if origin else [])
    for view in views:
        assert view.list_objects_v2(Bucket=bucket)["KeyCount"] == 0, "something was stored"
        assert "Uploads" not in view.list_multipart_uploads(Bucket=bucket)


@pytest.fixture
def never_forwarded(untouched, origin_requests):
    """As `untouched`, and the origin must not even hear of it."""
    before = origin_requests.since_start() if origin_requests else 0
    yield untouched
    if origin_requests:
        assert origin_requests.since_start() == before, "a refused request reached the origin"
