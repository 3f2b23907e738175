"""What scripted origins have in common: content that shows misplaced pages, and ranges of it."""

import hashlib

from .stub_origin import Reply, object_reply


def content_of(size, seed=0):
    return b"".join(n.to_bytes(4, "big") * 256 for n in range(seed, seed + size // 1024 + 1))[:size]


def ranged(content, etag, request):
    """Answers GET, HEAD and one range, with `If-Match`, as an S3 server does."""
    if request.headers.get("if-match", etag) not in (etag, "*"):
        return Reply(412, {"content-type": "application/xml"}, b"<Error><Code>PreconditionFailed"
                     b"</Code></Error>")
    reply = object_reply(content, etag)
    asked = request.headers.get("range")
    if asked:
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start = int(first)
        end = min(int(last) + 1 if last else len(content), len(content))
        reply.status = 206
        reply.body = content[start:end]
        reply.headers["content-range"] = f"bytes {start}-{end - 1}/{len(content)}"
    return reply


class Shelf:
    """An S3 service in one dictionary, as a script for `StubOrigin`: GET, HEAD, PUT and DELETE of
    objects with their conditions and ranges. Tests change objects behind the gateway's back."""

    def __init__(self):
        self.objects = {}
        self.content_types = {}

    def put(self, key, content, content_type="binary/octet-stream"):
        """Stores an object under `/bucket/key`."""
        self.objects[f"/bucket/{key}"] = content
        self.content_types[f"/bucket/{key}"] = content_type

    def etag(self, key):
        return '"' + hashlib.md5(self.objects[f"/bucket/{key}"]).hexdigest() + '"'

    def __call__(self, request):
        path = request.target.partition("?")[0]
        key = path.removeprefix("/bucket/")
        if request.method == "PUT":
            self.put(key, request.body)
            return Reply(200, {"etag": self.etag(key)})
        if request.method == "DELETE":
            self.objects.pop(path, None)
            return Reply(204)
        if path not in self.objects:
            return Reply(404, {"content-type": "application/xml"},
                         b"<Error><Code>NoSuchKey</Code></Error>")
        etag = self.etag(key)
        if request.headers.get("if-none-match") == etag:
            return Reply(304, {"etag": etag})
        reply = ranged(self.objects[path], etag, request)
        reply.headers["content-type"] = self.content_types[path]
        return reply


def body_bytes(origin, seen_from=0):
    """Bytes of bodies that the origin was asked for, of what it has seen from there on."""
    total = 0
    for request in origin.seen[seen_from:]:
        reply = origin.script(request)
        if request.method == "GET" and reply.status in (200, 206):
            total += len(reply.body)
    return total
