"""Small expectations that many tests share."""

import contextlib

import pytest
from botocore.exceptions import ClientError


@contextlib.contextmanager
def refused(status, code):
    """The block fails with this HTTP status and this S3 error code."""
    with pytest.raises(ClientError) as raised:
        yield
    response = raised.value.response
    got = (response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"])
    assert got == (status, code), response
