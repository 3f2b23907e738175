"""An origin that misbehaves on command: cut bodies, slow answers, errors that servers rarely give.

It checks no signature and stores nothing. A test gives it a script, a function from the request
seen to a `Reply`; everything it saw is kept, so that a test can count requests.
"""

import dataclasses
import http.server
import socket
import struct
import threading


@dataclasses.dataclass
class Seen:
    """One request as it arrived. `body_is_whole` tells whether all announced bytes came."""

    method: str
    target: str
    headers: dict
    body: bytes
    body_is_whole: bool


@dataclasses.dataclass
class Reply:
    """One answer. With `cut_after_bytes` the connection is reset after that much of the body."""

    status: int = 200
    headers: dict = dataclasses.field(default_factory=dict)
    body: bytes = b""
    cut_after_bytes: int | None = None
    # Waited for after the head and the first `hold_after_bytes` of the body.
    hold: threading.Event | None = None
    hold_after_bytes: int = 0
    # Sent in chunks, so that its length is not known before its end.
    is_chunked: bool = False


def object_reply(content, etag='"stub"', **more):
    """A plausible answer to GetObject."""
    headers = {
        "etag": etag,
        "last-modified": "Fri, 01 Nov 2024 10:00:00 GMT",
        "content-type": "binary/octet-stream",
        "accept-ranges": "bytes",
    }
    return Reply(headers=headers, body=content, **more)


class StubOrigin:
    """A scripted server on a free loopback port; use as a context manager."""

    def __init__(self, script):
        self.script = script
        self.seen = []
        self.lock = threading.Lock()
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def handle_any(self):
                stub.serve(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def serve(self, handler):
        request = self._read(handler)
        with self.lock:
            self.seen.append(request)
        if not request.body_is_whole:
            handler.close_connection = True
            return
        try:
            self._write(handler, self.script(request), request.method)
        except (BrokenPipeError, ConnectionResetError):
            handler.close_connection = True

    def _read(self, handler):
        headers = {name.lower(): value for name, value in handler.headers.items()}
        body, is_whole = b"", True
        if headers.get("expect") == "100-continue":
            handler.wfile.flush()
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body, is_whole = self._read_chunked(handler.rfile)
        else:
            length = int(headers.get("content-length", 0))
            try:
                body = handler.rfile.read(length)
            except ConnectionResetError:
                pass
            is_whole = len(body) == length
        return Seen(handler.command, handler.path, headers, body, is_whole)

    @staticmethod
    def _read_chunked(reader):
        body = b""
        while True:
            line = reader.readline()
            if not line:
                return body, False
            size = int(line.split(b";")[0], 16)
            chunk = reader.read(size)
            reader.readline()
            body += chunk
            if size == 0:
                return body, True

    @staticmethod
    def _write(handler, reply, method):
        handler.send_response(reply.status)
        framing = {"content-length": str(len(reply.body))}
        if reply.is_chunked:
            framing = {"transfer-encoding": "chunked"}
        headers = framing | reply.headers
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        body = b"" if method == "HEAD" or reply.status in (204, 304) else reply.body
        if reply.hold:
            handler.wfile.write(framed(reply, body[: reply.hold_after_bytes]))
            handler.wfile.flush()
            reply.hold.wait(30)
            body = body[reply.hold_after_bytes :]
        if reply.cut_after_bytes is not None:
            handler.wfile.write(body[: reply.cut_after_bytes])
            handler.wfile.flush()
            # Linger of zero: close sends RST, as a killed machine's peer would see it.
            linger = struct.pack("ii", 1, 0)
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True
            return
        end = b"0\r\n\r\n" if reply.is_chunked else b""
        handler.wfile.write(framed(reply, body) + end)


def framed(reply, data):
    """Bytes of a body as they are sent."""
    return b"%x\r\n%s\r\n" % (len(data), data) if reply.is_chunked and data else data
