"""Listings: order, pages of results, delimiters, encodings."""

import pytest

from harness.expect import refused

KEYS = sorted(
    [f"logs/2025/{month:02}/{day:02}.txt" for month in (1, 2, 3) for day in range(1, 8)]
    + ["a", "b/c", "b/d/e", "photos/ü.jpg", "photos/z z.jpg", "z"],
    key=lambda key: key.encode(),
)


@pytest.fixture
def filled(s3, bucket):
    for key in KEYS:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    return bucket


def keys_of(answer):
    return [entry["Key"] for entry in answer.get("Contents", [])]


def prefixes_of(answer):
    return [entry["Prefix"] for entry in answer.get("CommonPrefixes", [])]


@pytest.mark.parametrize("operation", ["list_objects", "list_objects_v2"])
def test_all_keys_come_once_in_byte_order_whatever_the_batch(s3, filled, operation):
    for batch in (1, 3, 7, 1000):
        pages = s3.get_paginator(operation).paginate(
            Bucket=filled, PaginationConfig={"PageSize": batch}
        )
        listed = [key for page in pages for key in keys_of(page)]
        assert listed == KEYS, f"batches of {batch}"


@pytest.mark.parametrize("operation", ["list_objects", "list_objects_v2"])
@pytest.mark.parametrize("batch", [1, 2, 1000])
def test_a_delimiter_rolls_up_prefixes_across_batches(s3, filled, operation, batch):
    pages = list(
        s3.get_paginator(operation).paginate(
            Bucket=filled, Delimiter="/", PaginationConfig={"PageSize": batch}
        )
    )
    assert [prefix for page in pages for prefix in prefixes_of(page)] == ["b/", "logs/", "photos/"]
    assert [key for page in pages for key in keys_of(page)] == ["a", "z"]


def test_a_prefix_inside_a_directory_is_found(s3, filled):
    answer = s3.list_objects_v2(Bucket=filled, Prefix="logs/2025/0", Delimiter="/")
    assert prefixes_of(answer) == ["logs/2025/01/", "logs/2025/02/", "logs/2025/03/"]
    answer = s3.list_objects_v2(Bucket=filled, Prefix="logs/2025/02/0")
    assert keys_of(answer) == [f"logs/2025/02/{day:02}.txt" for day in range(1, 8)]
    assert keys_of(s3.list_objects_v2(Bucket=filled, Prefix="nothing/")) == []


def test_start_after_and_marker_are_exclusive(s3, filled):
    answer = s3.list_objects_v2(Bucket=filled, StartAfter="logs/2025/03/06.txt")
    assert keys_of(answer) == ["logs/2025/03/07.txt", "photos/z z.jpg", "photos/ü.jpg", "z"]
    answer = s3.list_objects(Bucket=filled, Marker="logs/2025/03/06.txt")
    assert keys_of(answer) == ["logs/2025/03/07.txt", "photos/z z.jpg", "photos/ü.jpg", "z"]


def test_counts_and_truncation_are_told(s3, filled):
    answer = s3.list_objects_v2(Bucket=filled, MaxKeys=5)
    assert (answer["KeyCount"], answer["MaxKeys"], answer["IsTruncated"]) == (5, 5, True)
    answer = s3.list_objects_v2(Bucket=filled)
    assert (answer["KeyCount"], answer["IsTruncated"]) == (len(KEYS), False)
    assert "NextContinuationToken" not in answer


def test_entries_tell_size_and_etag(s3, filled):
    entries = s3.list_objects_v2(Bucket=filled, Prefix="photos/")["Contents"]
    for entry in entries:
        head = s3.head_object(Bucket=filled, Key=entry["Key"])
        assert (entry["ETag"], entry["Size"]) == (head["ETag"], head["ContentLength"])
        assert abs((entry["LastModified"] - head["LastModified"]).total_seconds()) < 1


def test_a_bad_token_and_a_bad_count_are_refused(s3, filled, wire):
    answer = wire.signed("GET", f"/{filled}", [("list-type", "2"), ("max-keys", "minus")])
    assert (answer.status, answer.code) == (400, "InvalidArgument")


@pytest.mark.targets("fs")
def test_a_token_nobody_gave_is_refused(s3, filled):
    with refused(400, "InvalidArgument"):
        s3.list_objects_v2(Bucket=filled, ContinuationToken="!not a token!")


def test_a_write_shows_in_the_next_listing(s3, filled):
    assert "new" not in keys_of(s3.list_objects_v2(Bucket=filled))
    s3.put_object(Bucket=filled, Key="new", Body=b"")
    assert "new" in keys_of(s3.list_objects_v2(Bucket=filled))
    s3.delete_object(Bucket=filled, Key="new")
    assert "new" not in keys_of(s3.list_objects_v2(Bucket=filled))


def test_an_empty_directory_left_by_a_delete_is_no_prefix(s3, bucket):
    s3.put_object(Bucket=bucket, Key="deep/er/object", Body=b"x")
    s3.delete_object(Bucket=bucket, Key="deep/er/object")
    answer = s3.list_objects_v2(Bucket=bucket, Delimiter="/")
    assert (keys_of(answer), prefixes_of(answer)) == ([], [])


# versitygw ignores the parameter.
@pytest.mark.targets("fs")
def test_url_encoding_is_applied_when_asked(filled, wire):
    query = [("list-type", "2"), ("prefix", "photos/"), ("encoding-type", "url")]
    answer = wire.signed("GET", f"/{filled}", query)
    assert answer.status == 200
    assert b"photos/%C3%BC.jpg" in answer.body
    assert b"photos/z+z.jpg" in answer.body or b"photos/z%20z.jpg" in answer.body
