"""What scripted origins have in common: content that shows misplaced pages, and ranges of it."""

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
