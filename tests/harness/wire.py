"""HTTP/1.1 by hand: requests that no client library would send, answers exactly as they came."""

import dataclasses
import hashlib
import http.client
import socket

from . import sigv4

TIMEOUT_SECONDS = 60


@dataclasses.dataclass
class Answer:
    """One response: status, headers as a list of pairs in order, the whole body."""

    status: int
    headers: list
    body: bytes

    def header(self, name):
        """The value of a header, or None. A header sent twice comes joined by a comma."""
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        return ", ".join(values) if values else None

    @property
    def code(self):
        """The S3 error code of an XML body, or None."""
        before, found, rest = self.body.partition(b"<Code>")
        return rest.partition(b"</Code>")[0].decode() if found else None


class Wire:
    """Signed or raw requests to one server."""

    def __init__(self, server, credentials=None):
        self.server = server
        self.credentials = credentials or server.credentials
        self.host = f"{server.host}:{server.port}"

    def scope(self, **wrong):
        """A signing scope for now, with any part of it replaced."""
        return sigv4.Scope(**({"credentials": self.credentials} | wrong))

    def signed(self, method, path, query=(), headers=None, body=b"", **options):
        """Sends one well-signed request and returns the answer."""
        scope = options.pop("scope", None) or self.scope()
        payload_hash = options.pop("payload_hash", None) or hashlib.sha256(body).hexdigest()
        headers = sigv4.sign_headers(
            scope, method, self.host, path, query, headers, payload_hash, **options
        )
        return self.plain(method, with_query(path, query), headers, body)

    def plain(self, method, target, headers=None, body=b""):
        """Sends a request as it is given. `target` is the path and query on the wire."""
        connection = http.client.HTTPConnection(
            self.server.host, self.server.port, timeout=TIMEOUT_SECONDS
        )
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            headers = {name.lower(): value for name, value in (headers or {}).items()}
            headers.setdefault("host", self.host)
            if method in ("PUT", "POST") or body:
                headers.setdefault("content-length", str(len(body)))
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            try:
                connection.send(body)
            except (BrokenPipeError, ConnectionResetError):
                pass  # Refused before the body was read: the answer is there all the same.
            response = connection.getresponse()
            return Answer(response.status, response.getheaders(), response.read())
        finally:
            connection.close()

    def open(self, head, body=b""):
        """Sends raw bytes and leaves the connection open. The caller closes it."""
        connection = socket.create_connection(
            (self.server.host, self.server.port), timeout=TIMEOUT_SECONDS
        )
        connection.sendall(head + body)
        return connection

    def raw(self, content):
        """Sends raw bytes, half-closes nothing, and reads until the server closes or is idle."""
        with self.open(content) as connection:
            return read_answer(connection)


def read_answer(connection):
    """Reads one response from a socket, or None when the server closed without a word."""
    response = http.client.HTTPResponse(connection)
    try:
        response.begin()
        return Answer(response.status, response.getheaders(), response.read())
    except (http.client.BadStatusLine, ConnectionResetError):
        return None


def with_query(path, query):
    """The request target of a path and a list of query pairs, encoded as they are signed."""
    if not query:
        return path
    pairs = (
        f"{sigv4.encode(name)}={sigv4.encode(value)}" if value else sigv4.encode(name)
        for name, value in query
    )
    return path + "?" + "&".join(pairs)


def head_bytes(method, target, headers):
    """A request head as bytes."""
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
