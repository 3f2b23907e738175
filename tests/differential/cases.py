"""The requests of the differential test. Each is sent to the origin and through the gateway.

A read case is sent to one bucket, prepared at the origin: once direct, then cold and warm through
the gateway. A write case is sent to two equal buckets, one direct and one through the gateway,
and then the two buckets must be equal.
"""

import base64
import dataclasses
import hashlib

MIB = 1 << 20
SMALL = b"0123456789" * 10
LARGE = b"".join(n.to_bytes(4, "big") * 256 for n in range(2600))
OBJECTS = {
    "small": (SMALL, {"content-type": "text/plain", "x-amz-meta-colour": "blue"}),
    "large": (LARGE, {"cache-control": "max-age=5", "content-language": "de"}),
    "empty": (b"", {}),
    "dir/with space+plus": (b"odd", {"content-disposition": 'attachment; filename="x"'}),
    "dir/ü": ("ü".encode(), {"content-encoding": "gzip", "x-amz-tagging": "a=b"}),
    "sum": (SMALL, {"x-amz-checksum-sha256": base64.b64encode(
        hashlib.sha256(SMALL).digest()).decode()}),
}
ETAG = f'"{hashlib.md5(SMALL).hexdigest()}"'
PAST = "Sat, 01 Jan 2000 00:00:00 GMT"
NEVER = "Fri, 01 Jan 2100 00:00:00 GMT"


@dataclasses.dataclass(frozen=True)
class Case:
    """One request. `key` is None for the bucket itself, `bucket` names another than the usual."""

    name: str
    method: str = "GET"
    key: str | None = None
    query: tuple = ()
    headers: dict = dataclasses.field(default_factory=dict)
    body: bytes = b""
    bucket: str | None = None
    # The gateway answers this by itself once it can: the verdict is the same, the words its own.
    is_judged: bool = False


def _gets():
    """Reads of objects, each as GET and as HEAD."""
    reads = {
        "plain": ("small", (), {}),
        "large": ("large", (), {}),
        "empty": ("empty", (), {}),
        "space and plus": ("dir/with space+plus", (), {}),
        "unicode": ("dir/ü", (), {}),
        "no such key": ("none", (), {}),
        "checksum asked": ("sum", (), {"x-amz-checksum-mode": "ENABLED"}),
        "checksum asked in lower case": ("sum", (), {"x-amz-checksum-mode": "enabled"}),
        "checksum not asked": ("sum", (), {}),
        "if-match": ("small", (), {"if-match": ETAG}),
        "if-match star": ("small", (), {"if-match": "*"}),
        "if-match other": ("small", (), {"if-match": '"other"'}),
        "if-none-match": ("small", (), {"if-none-match": ETAG}),
        "if-none-match other": ("small", (), {"if-none-match": '"other"'}),
        "if-modified-since past": ("small", (), {"if-modified-since": PAST}),
        "if-unmodified-since past": ("small", (), {"if-unmodified-since": PAST}),
        "if-unmodified-since future": ("small", (), {"if-unmodified-since": NEVER}),
        "if-match and date": ("small", (), {"if-match": ETAG, "if-unmodified-since": PAST}),
        "override type": ("small", (("response-content-type", "x/y"),), {}),
        "override several": (
            "small",
            (("response-cache-control", "no-store"), ("response-expires", NEVER),
             ("response-content-disposition", "inline"), ("response-content-language", "fr"),
             ("response-content-encoding", "br")),
            {},
        ),
        "part number 1": ("small", (("partNumber", "1"),), {}),
        "part number 2": ("small", (("partNumber", "2"),), {}),
        "version null": ("small", (("versionId", "null"),), {}),
        "version unknown": ("small", (("versionId", "no-such"),), {}),
        "unknown query": ("small", (("x-id", "GetObject"),), {}),
        "accept-encoding": ("small", (), {"accept-encoding": "gzip"}),
        "unknown amz header": ("small", (), {"x-amz-of-the-future": "1"}),
    }
    ranges = [
        "bytes=0-", "bytes=0-0", "bytes=5-9", "bytes=99-", "bytes=99-500", "bytes=100-",
        "bytes=-1", "bytes=-100", "bytes=-500", "bytes=-0", "bytes=9-5", "bytes=a-b",
        "bytes=0-1,5-6", "items=0-1", "0-1",
    ]
    for text in ranges:
        reads[f"range {text}"] = ("small", (), {"range": text})
    for text in ["bytes=1048570-1048580", "bytes=2097152-", "bytes=-1048577"]:
        reads[f"large {text}"] = ("large", (), {"range": text})
    reads["range of empty"] = ("empty", (), {"range": "bytes=0-"})
    reads["range and if-match"] = ("small", (), {"range": "bytes=1-2", "if-match": ETAG})
    reads["range and if-none-match"] = ("small", (), {"range": "bytes=1-2", "if-none-match": ETAG})
    judged = {
        "if-match other", "if-none-match", "if-unmodified-since past", "range bytes=100-",
        "range bytes=-0", "range of empty", "range and if-none-match",
    }
    for name, (key, query, headers) in reads.items():
        for method in ("GET", "HEAD"):
            yield Case(
                f"{method} {name}", method, key, query, headers, is_judged=name in judged
            )


def _sub_resources():
    for name in ("tagging", "acl", "retention", "legal-hold", "torrent"):
        yield Case(f"object ?{name}", key="small", query=((name, ""),))
    yield Case("object ?tagging of none", key="none", query=(("tagging", ""),))
    yield Case(
        "object ?attributes", key="sum", query=(("attributes", ""),),
        headers={"x-amz-object-attributes": "ETag,ObjectSize,Checksum,StorageClass"},
    )
    yield Case("parts of no upload", key="small", query=(("uploadId", "none"),))
    for name in (
        "location versioning policy cors lifecycle encryption tagging acl notification object-lock "
        "ownershipControls publicAccessBlock logging website replication requestPayment accelerate "
        "versions uploads policyStatus intelligent-tiering"
    ).split():
        yield Case(f"bucket ?{name}", query=((name, ""),))


def _listings():
    yield Case("list v1")
    queries = [
        {"delimiter": "/"},
        {"prefix": "dir/"},
        {"prefix": "di", "delimiter": "/"},
        {"max-keys": "2"},
        {"max-keys": "0"},
        {"encoding-type": "url"},
    ]
    for query in queries:
        text = " ".join(f"{name}={value}" for name, value in query.items())
        yield Case(f"list v1 {text}", query=tuple(query.items()))
        yield Case(f"list v2 {text}", query=(("list-type", "2"), *query.items()))
    yield Case("list v1 marker", query=(("marker", "empty"),))
    yield Case("list v2 start-after", query=(("list-type", "2"), ("start-after", "empty")))
    yield Case("list v2 owner", query=(("list-type", "2"), ("fetch-owner", "true")))
    yield Case("list v2 bad count", query=(("list-type", "2"), ("max-keys", "x")))
    yield Case("HEAD bucket", "HEAD")
    yield Case("GET no such bucket", bucket="no-such-bucket-here")
    yield Case("HEAD no such bucket", "HEAD", bucket="no-such-bucket-here")
    yield Case("GET object in no bucket", key="k", bucket="no-such-bucket-here")


READS = [*_gets(), *_sub_resources(), *_listings()]


def _md5(content):
    return base64.b64encode(hashlib.md5(content).digest()).decode()


_TAGS = (
    b"<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>"
)
_DELETE = b"<Delete><Object><Key>small</Key></Object><Object><Key>none</Key></Object></Delete>"

WRITES = [
    Case("PUT new", "PUT", "new", body=b"new"),
    Case("PUT empty", "PUT", "new"),
    Case("PUT over", "PUT", "small", body=b"over"),
    Case("PUT large", "PUT", "new", body=LARGE),
    Case("PUT odd key", "PUT", "new/ü +%2F", body=b"odd"),
    Case(
        "PUT headers", "PUT", "new",
        headers={
            "content-type": "a/b", "cache-control": "no-cache", "content-language": "de",
            "content-disposition": "inline", "content-encoding": "gzip", "expires": NEVER,
            "x-amz-meta-one": "1", "x-amz-meta-two": "a  b", "x-amz-tagging": "t=1",
        },
        body=b"x",
    ),
    Case("PUT content-md5", "PUT", "new", headers={"content-md5": _md5(b"x")}, body=b"x"),
    Case("PUT wrong content-md5", "PUT", "new", headers={"content-md5": _md5(b"y")}, body=b"x",
         is_judged=True),
    Case("PUT if-none-match new", "PUT", "new", headers={"if-none-match": "*"}, body=b"x"),
    Case("PUT if-none-match old", "PUT", "small", headers={"if-none-match": "*"}, body=b"x"),
    Case("PUT if-match", "PUT", "small", headers={"if-match": ETAG}, body=b"x"),
    Case("PUT if-match other", "PUT", "small", headers={"if-match": '"other"'}, body=b"x"),
    Case("PUT tagging", "PUT", "small", (("tagging", ""),),
         {"content-md5": _md5(_TAGS)}, _TAGS),
    Case("PUT tagging of none", "PUT", "none", (("tagging", ""),),
         {"content-md5": _md5(_TAGS)}, _TAGS),
    Case("DELETE tagging", "DELETE", "dir/ü", (("tagging", ""),)),
    Case("DELETE", "DELETE", "small"),
    Case("DELETE none", "DELETE", "none"),
    Case("DELETE many", "POST", None, (("delete", ""),),
         {"content-md5": _md5(_DELETE)}, _DELETE),
    Case("COPY", "PUT", "new", headers={"x-amz-copy-source": "{bucket}/large"}),
    Case("COPY odd", "PUT", "new",
         headers={"x-amz-copy-source": "/{bucket}/dir/with%20space%2Bplus"}),
    Case("COPY replace", "PUT", "new",
         headers={"x-amz-copy-source": "{bucket}/small", "x-amz-metadata-directive": "REPLACE",
                  "x-amz-meta-new": "1"}),
    Case("COPY none", "PUT", "new", headers={"x-amz-copy-source": "{bucket}/none"}),
    Case("COPY if-match other", "PUT", "new",
         headers={"x-amz-copy-source": "{bucket}/small",
                  "x-amz-copy-source-if-match": '"other"'}),
    Case("multipart abort of none", "DELETE", "new", (("uploadId", "none"),)),
    Case("multipart part of none", "PUT", "new",
         (("partNumber", "1"), ("uploadId", "none")), body=b"x"),
    Case("PUT bucket again", "PUT"),
    Case("DELETE bucket not empty", "DELETE"),
    Case("PUT into no bucket", "PUT", "k", body=b"x", bucket="no-such-bucket-here"),
    Case("PUT unknown sub-resource", "PUT", "small", (("of-the-future", ""),), body=b"x"),
    *(
        Case(f"PUT checksum {name}", "PUT", "new", headers={f"x-amz-checksum-{name}": value},
             body=b"123456789")
        for name, value in {
            # The check values of the published CRC catalogues for "123456789".
            "crc32": "y/Q5Jg==",
            "crc32c": "4waSgw==",
            "crc64nvme": "rosUhgp5mIg=",
            "sha1": base64.b64encode(hashlib.sha1(b"123456789").digest()).decode(),
            "sha256": base64.b64encode(hashlib.sha256(b"123456789").digest()).decode(),
        }.items()
    ),
    Case("PUT wrong checksum", "PUT", "new", headers={"x-amz-checksum-crc32": "AAAAAA=="},
         body=b"x", is_judged=True),
    Case("PUT malformed checksum", "PUT", "new", headers={"x-amz-checksum-crc32": "short"},
         body=b"x", is_judged=True),
]
