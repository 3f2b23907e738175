"""A small AWS Signature Version 4 signer of our own, able to sign wrongly on purpose.

The clients' own signers are exercised by the client matrix. This one exists so that a test can
choose every detail: the date, the signed headers, the payload hash, each chunk's signature.

Source: AWS, "Authenticating Requests (AWS Signature Version 4)", and its pages on chunked uploads.
"""

import base64
import binascii
import dataclasses
import datetime
import hashlib
import hmac
import urllib.parse

from .servers import REGION, Credentials

UNSIGNED = "UNSIGNED-PAYLOAD"
STREAMING = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
STREAMING_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
STREAMING_UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


def utc_now():
    return datetime.datetime.now(datetime.UTC)


def amz_date(moment):
    return moment.strftime("%Y%m%dT%H%M%SZ")


def encode(text, safe=""):
    """Percent-encodes as SigV4 does: only unreserved characters stay."""
    return urllib.parse.quote(text, safe=safe + "-_.~")


def path_of(bucket, key=None):
    """The path on the wire of a bucket, or of an object whose key may hold anything."""
    if key is None:
        return f"/{bucket}"
    return f"/{bucket}/" + encode(key, safe="/")


def _hmac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


@dataclasses.dataclass
class Scope:
    """Who signs, when and for where; each part may be set wrong."""

    credentials: Credentials
    moment: datetime.datetime = dataclasses.field(default_factory=utc_now)
    region: str = REGION
    service: str = "s3"

    @property
    def date(self):
        return self.moment.strftime("%Y%m%d")

    @property
    def text(self):
        return f"{self.date}/{self.region}/{self.service}/aws4_request"

    def key(self):
        secret = ("AWS4" + self.credentials.secret_key).encode()
        for part in (self.date, self.region, self.service, "aws4_request"):
            secret = _hmac(secret, part)
        return secret

    def sign(self, *lines):
        text = "\n".join(("AWS4-HMAC-SHA256", amz_date(self.moment), self.text) + lines)
        return _hmac(self.key(), text).hex()


def canonical_request(method, path, query, headers, signed, payload_hash):
    """The text that is hashed. `query` is a list of pairs, `headers` has lower-case names."""
    pairs = sorted((encode(name), encode(value)) for name, value in query)
    return "\n".join(
        [
            method,
            path,
            "&".join(f"{name}={value}" for name, value in pairs),
            "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in signed),
            ";".join(signed),
            payload_hash,
        ]
    )


def _sha256_of(text):
    return hashlib.sha256(text.encode()).hexdigest()


def sign_headers(
    scope, method, host, path, query=(), headers=None, payload_hash=EMPTY_SHA256, unsigned=()
):
    """Returns all headers of a signed request. Headers named in `unsigned` stay out of it."""
    headers = {name.lower(): value for name, value in (headers or {}).items()}
    headers["host"] = host
    headers.setdefault("x-amz-date", amz_date(scope.moment))
    headers.setdefault("x-amz-content-sha256", payload_hash)
    signed = sorted(
        name
        for name in headers
        if (name.startswith("x-amz-") or name in ("host", "content-md5", "content-type"))
        and name not in unsigned
    )
    request = canonical_request(method, path, query, headers, signed, payload_hash)
    signature = scope.sign(_sha256_of(request))
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={scope.credentials.access_key}/{scope.text}, "
        f"SignedHeaders={';'.join(signed)}, Signature={signature}"
    )
    return headers


def presign(scope, method, host, path, query=(), expires_seconds=900, headers=None):
    """Returns the path and query of a presigned URL; `headers` must be sent along with it."""
    headers = {name.lower(): value for name, value in (headers or {}).items()} | {"host": host}
    signed = sorted(headers)
    query = [
        *query,
        ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
        ("X-Amz-Credential", f"{scope.credentials.access_key}/{scope.text}"),
        ("X-Amz-Date", amz_date(scope.moment)),
        ("X-Amz-Expires", str(expires_seconds)),
        ("X-Amz-SignedHeaders", ";".join(signed)),
    ]
    request = canonical_request(method, path, query, headers, signed, UNSIGNED)
    query.append(("X-Amz-Signature", scope.sign(_sha256_of(request))))
    return path + "?" + "&".join(f"{encode(name)}={encode(value)}" for name, value in query)


def signature_of(headers):
    """The signature in an Authorization header: the seed of a chunked upload."""
    return headers["authorization"].rpartition("Signature=")[2]


def signed_chunks(scope, seed, chunks, trailers=None, chunk_damaged=None, trailer_damaged=False):
    """Encodes `chunks` as aws-chunked with a signature each, after the seed signature.

    `chunk_damaged` is the number of the chunk whose signature is made wrong. `trailers` are
    signed after the last chunk; with `trailer_damaged` that signature is wrong.
    """
    body, previous = b"", seed
    for number, chunk in enumerate([*chunks, b""]):
        text = (EMPTY_SHA256, hashlib.sha256(chunk).hexdigest())
        previous = _chunk_signature(scope, "AWS4-HMAC-SHA256-PAYLOAD", previous, *text)
        shown = previous if number != chunk_damaged else "0" * 64
        body += f"{len(chunk):x};chunk-signature={shown}\r\n".encode() + chunk
        body += b"\r\n" if chunk else b""
    if trailers:
        lines = "".join(f"{name}:{value}\n" for name, value in sorted(trailers.items()))
        signature = _chunk_signature(scope, "AWS4-HMAC-SHA256-TRAILER", previous, _sha256_of(lines))
        body += "".join(f"{name}:{value}\r\n" for name, value in sorted(trailers.items())).encode()
        shown = signature if not trailer_damaged else "0" * 64
        body += f"x-amz-trailer-signature:{shown}\r\n".encode()
    return body + b"\r\n"


def _chunk_signature(scope, algorithm, *lines):
    text = "\n".join((algorithm, amz_date(scope.moment), scope.text, *lines))
    return _hmac(scope.key(), text).hex()


def unsigned_chunks(chunks, trailers=None):
    """Encodes `chunks` as aws-chunked without signatures, as the SDKs do by default over TLS."""
    body = b"".join(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n" for chunk in chunks)
    body += b"0\r\n"
    for name, value in (trailers or {}).items():
        body += f"{name}:{value}\r\n".encode()
    return body + b"\r\n"


def crc32_base64(content):
    return base64.b64encode(binascii.crc32(content).to_bytes(4, "big")).decode()
