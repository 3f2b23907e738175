"""A thousand uploads at once before an origin that does not read: memory follows the budget.

Gateways that take a signed payload in whole before they judge it need its size times the number
of clients: 128 MiB times 200 threads was one of them.
"""

import asyncio
import hashlib
import resource
import socket
import urllib.request

import pytest

from harness import servers, sigv4
from harness.wire import head_bytes

KIB, MIB = 1 << 10, 1 << 20
pytestmark = pytest.mark.skipif(
    not servers.forebay_binary().exists(), reason="needs the built gateway"
)

UPLOADS = 1000
CRC = "x-amz-checksum-crc32"
CONTENT = bytes(range(256)) * (MIB // 256)
# What the budget lends one upload: the buffer being read and the one on its way.
UPLOAD_BYTES = 64 * KIB
# What the two connections of an upload hold beside that: a buffer of 32 KiB each.
PAIR_BYTES = 64 * KIB
IN_FLIGHT = "forebay_requests_in_flight"
ANSWER = b'HTTP/1.1 200 OK\r\netag: "x"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n'
PATIENCE_SECONDS = 60


class SilentOrigin:
    """Takes the head of each upload, and its body once it is told to; then it says 200."""

    def __init__(self):
        self.heads = self.whole = 0
        self.reads = asyncio.Event()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=UPLOADS)
        self.listener.setblocking(False)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.buffer = bytearray(256 * KIB)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    async def serve(self):
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                connection, _ = await loop.sock_accept(self.listener)
                connection.setblocking(False)
                group.create_task(self.answer(loop, connection))

    async def answer(self, loop, connection):
        with connection:
            read = b""
            while b"\r\n\r\n" not in read:
                piece = await loop.sock_recv(connection, 4 * KIB)
                if not piece:
                    return
                read += piece
            head, _, body = read.partition(b"\r\n\r\n")
            names = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
            left = int(names[b"content-length"]) - len(body)
            self.heads += 1
            await self.reads.wait()
            while left > 0:
                count = await loop.sock_recv_into(connection, self.buffer)
                if count == 0:
                    return
                left -= count
            self.whole += 1
            await loop.sock_sendall(connection, ANSWER)


def uploads(gateway):
    """Three ways to sign an upload, each as bytes that any number of connections may send."""
    scope, host = sigv4.Scope(gateway.credentials), f"{gateway.host}:{gateway.port}"

    def signed(payload_hash, length, headers=None):
        headers = dict(headers or {})
        if length != len(CONTENT):
            headers |= {
                "content-encoding": "aws-chunked",
                "x-amz-decoded-content-length": str(len(CONTENT)),
            }
        headers = sigv4.sign_headers(
            scope, "PUT", host, "/bucket/k", headers=headers, payload_hash=payload_hash
        )
        head = head_bytes("PUT", "/bucket/k", headers | {"content-length": str(length)})
        return head, sigv4.signature_of(headers)

    chunks = [CONTENT[at : at + 64 * KIB] for at in range(0, len(CONTENT), 64 * KIB)]
    head, _ = signed(hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
    yield head + CONTENT

    body = sigv4.unsigned_chunks(chunks, {CRC: sigv4.crc32_base64(CONTENT)})
    head, _ = signed(sigv4.STREAMING_UNSIGNED_TRAILER, len(body), {"x-amz-trailer": CRC})
    yield head + body

    length = len(sigv4.signed_chunks(scope, "", chunks))
    head, seed = signed(sigv4.STREAMING, length)
    yield head + sigv4.signed_chunks(scope, seed, chunks)


async def upload(loop, gateway, content):
    """Sends it as fast as the gateway takes it; returns the status of the answer."""
    with socket.socket() as connection:
        connection.setblocking(False)
        await loop.sock_connect(connection, (gateway.host, gateway.port))
        await loop.sock_sendall(connection, content)
        return int((await loop.sock_recv(connection, 4 * KIB)).split(b" ", 2)[1])


def resident_bytes_max(gateway):
    """The most memory that the gateway has had so far."""
    with open(f"/proc/{gateway.process.pid}/status") as status:
        line = next(line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) * KIB


def metric(gateway, name):
    """The value of a gauge that has no labels."""
    with urllib.request.urlopen(gateway.admin_url + "/metrics") as page:
        lines = page.read().decode().splitlines()
    return int(next(line for line in lines if line.startswith(name + " ")).split()[1])


@pytest.fixture
def many_files():
    """Room for a connection to the gateway and one from it for each upload."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4 * UPLOADS:
        pytest.skip(f"needs {4 * UPLOADS} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("budget_bytes", [256 * MIB, 16 * MIB])
def test_a_thousand_uploads_at_once_need_no_more_than_the_budget(
    gateways, many_files, budget_bytes
):
    """Goal: memory is bounded by the budget and by what connections cost, not by payloads.

    Method: 1000 signed uploads of 1 MiB to an origin that reads no more than their heads, so that
    each holds all it ever will; then the origin reads on, and every one of them arrives.
    """
    at_once = min(UPLOADS, budget_bytes // UPLOAD_BYTES)

    async def crowd(origin):
        serving = asyncio.create_task(origin.serve())
        gateway = await asyncio.to_thread(
            gateways, origin=origin.url, FOREBAY_MEMORY__BUDGET=f"{budget_bytes // MIB}MiB",
            # No upload is to give up while it waits for its share.
            FOREBAY_MEMORY__WAIT_MAX=f"{PATIENCE_SECONDS}s",
        )
        idle_bytes = resident_bytes_max(gateway)
        loop, kinds = asyncio.get_running_loop(), list(uploads(gateway))
        under_way = [
            asyncio.create_task(upload(loop, gateway, kinds[number % len(kinds)]))
            for number in range(UPLOADS)
        ]

        def is_stuck():
            return origin.heads >= at_once and metric(gateway, IN_FLIGHT) == UPLOADS

        await asyncio.to_thread(
            servers.wait_until, is_stuck, "the origin to be full", PATIENCE_SECONDS
        )
        assert origin.heads == at_once
        origin.reads.set()
        statuses = await asyncio.wait_for(asyncio.gather(*under_way), PATIENCE_SECONDS)
        serving.cancel()
        assert statuses == [200] * UPLOADS
        return resident_bytes_max(gateway) - idle_bytes

    with SilentOrigin() as origin:
        needed_bytes = asyncio.run(crowd(origin))
        assert origin.whole == UPLOADS
    assert needed_bytes <= at_once * UPLOAD_BYTES + UPLOADS * PAIR_BYTES
