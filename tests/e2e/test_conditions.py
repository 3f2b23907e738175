"""Conditional reads and writes, and what happens when many writers race for one key."""

import concurrent.futures
import datetime

import pytest
from botocore.exceptions import ClientError

from harness.clients import boto3_client
from harness.expect import refused

HOUR = datetime.timedelta(hours=1)


def test_reads_obey_if_match_and_if_none_match(s3, bucket):
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"x")["ETag"]
    for _ in range(2):
        assert s3.get_object(Bucket=bucket, Key="k", IfMatch=etag)["Body"].read() == b"x"
        with refused(412, "PreconditionFailed"):
            s3.get_object(Bucket=bucket, Key="k", IfMatch='"other"')
        with refused(304, "304"):
            s3.get_object(Bucket=bucket, Key="k", IfNoneMatch=etag)
        got = s3.get_object(Bucket=bucket, Key="k", IfNoneMatch='"other"')
        assert got["Body"].read() == b"x"


def test_reads_obey_dates(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    modified = s3.head_object(Bucket=bucket, Key="k")["LastModified"]
    for _ in range(2):
        with refused(412, "PreconditionFailed"):
            s3.get_object(Bucket=bucket, Key="k", IfUnmodifiedSince=modified - HOUR)
        s3.get_object(Bucket=bucket, Key="k", IfModifiedSince=modified - HOUR)
        s3.get_object(Bucket=bucket, Key="k", IfUnmodifiedSince=modified + HOUR)


# versitygw compares the date in the header, whole seconds, with the file's fraction of one.
@pytest.mark.targets("fs")
def test_the_date_shown_counts_as_not_modified_since(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    modified = s3.head_object(Bucket=bucket, Key="k")["LastModified"]
    with refused(304, "304"):
        s3.get_object(Bucket=bucket, Key="k", IfModifiedSince=modified)
    s3.get_object(Bucket=bucket, Key="k", IfUnmodifiedSince=modified)


def test_if_match_outweighs_if_unmodified_since(s3, bucket):
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"x")["ETag"]
    old = s3.head_object(Bucket=bucket, Key="k")["LastModified"] - HOUR
    got = s3.get_object(Bucket=bucket, Key="k", IfMatch=etag, IfUnmodifiedSince=old)
    assert got["Body"].read() == b"x"


def test_head_obeys_conditions(s3, bucket):
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"x")["ETag"]
    with refused(304, "304"):
        s3.head_object(Bucket=bucket, Key="k", IfNoneMatch=etag)
    with refused(412, "412"):
        s3.head_object(Bucket=bucket, Key="k", IfMatch='"other"')


def test_if_none_match_star_writes_only_what_is_new(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"first", IfNoneMatch="*")
    with refused(412, "PreconditionFailed"):
        s3.put_object(Bucket=bucket, Key="k", Body=b"second", IfNoneMatch="*")
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"first"


def test_if_match_writes_only_over_that_version(s3, bucket):
    first = s3.put_object(Bucket=bucket, Key="k", Body=b"first")["ETag"]
    s3.put_object(Bucket=bucket, Key="k", Body=b"second", IfMatch=first)
    with refused(412, "PreconditionFailed"):
        s3.put_object(Bucket=bucket, Key="k", Body=b"third", IfMatch=first)
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"second"
    with refused(404, "NoSuchKey"):
        s3.put_object(Bucket=bucket, Key="none", Body=b"x", IfMatch=first)


def _outcome(server, bucket, number):
    try:
        content = f"writer {number}".encode()
        boto3_client(server).put_object(Bucket=bucket, Key="k", Body=content, IfNoneMatch="*")
        return number
    except ClientError as error:
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        assert status in (409, 412), error.response
        return None


def test_of_many_racing_creators_exactly_one_wins(server, s3, bucket):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda n: _outcome(server, bucket, n), range(16)))
    winners = [number for number in outcomes if number is not None]
    assert len(winners) == 1
    content = s3.get_object(Bucket=bucket, Key="k")["Body"].read()
    assert content == f"writer {winners[0]}".encode()


def test_racing_writers_leave_one_whole_object(server, s3, bucket):
    size = 300_000

    def write(number):
        client = boto3_client(server)
        return client.put_object(Bucket=bucket, Key="k", Body=bytes([number]) * size)["ETag"]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        etags = list(pool.map(write, range(24)))
    got = s3.get_object(Bucket=bucket, Key="k")
    content = got["Body"].read()
    assert content == bytes([content[0]]) * size
    assert got["ETag"] == etags[content[0]]
