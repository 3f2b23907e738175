"""Pages on disk: warm after every kind of end, and never a fault or a stale byte for a client."""

import contextlib
import os
import random
import shutil
import subprocess
import time

import pytest

from harness import servers
from harness.metrics import metric
from harness.origins import Shelf, body_bytes, content_of
from harness.stub_origin import StubOrigin
from harness.wire import Wire

pytestmark = pytest.mark.skipif(
    not servers.forebay_binary().exists(), reason="needs the built gateway"
)

KIB, MIB = 1 << 10, 1 << 20
CONFIG = """
[stores.origin]
type = "s3"
endpoint = "{origin}"
region = "us-east-1"
[[routes]]
store = "origin"
[[routes.layers]]
type = "cache"
memory = "{memory}"
page = "256KiB"
coherence = {coherence}
disk = {{ path = "{folder}", size = "{size}" }}
{rules}
"""
# All goes to the disk at once, and to no other place: what a kill leaves is then known.
ON_DISK = '[[routes.layers.rules]]\nplace = "disk"\n'
BOUNDED = '{ mode = "bounded", ttl = "10m" }'
SIZES = [0, 1, 1000, 100_000, 256 * KIB, 256 * KIB + 1, 3 * MIB, 5 * MIB + 7]


@pytest.fixture
def shelf():
    return Shelf()


@pytest.fixture
def disk(gateways, shelf, tmp_path):
    """Starts gateways one after the other on one folder, before `shelf`."""
    with StubOrigin(shelf) as origin:

        def start(coherence=BOUNDED, rules="", size="128MiB", folder=tmp_path / "disk",
                  memory="64MiB", **options):
            config = CONFIG.format(
                origin=origin.url, coherence=coherence, rules=rules, size=size, folder=folder,
                memory=memory,
            )
            gateway = gateways(config=config, **options)
            gateway.origin = origin
            return gateway

        start.origin = origin
        start.folder = tmp_path / "disk"
        yield start


def read_for_a_while(gateway, keys):
    """Reads each object again and again: uses within a second count as one."""
    end = time.monotonic() + 1.3
    while time.monotonic() < end:
        read_all(gateway, keys)


def fill(shelf, sizes=SIZES, seed=0):
    """Puts objects of these sizes; returns their keys."""
    for number, size in enumerate(sizes):
        shelf.put(f"{number}", content_of(size, seed=(seed + number) * 10_000))
    return [f"{number}" for number in range(len(sizes))]


def read_all(gateway, keys):
    """Reads each object; the bytes are the origin's of this moment."""
    wire = Wire(gateway)
    for key in keys:
        answer = wire.signed("GET", f"/bucket/{key}")
        expected = gateway.origin.script.objects[f"/bucket/{key}"]
        assert (answer.status, answer.body == expected) == (200, True), key


def wait_until_written(gateway, shelf, keys):
    """Waits until the disk has so many bytes as the objects have."""
    total = sum(len(shelf.objects[f"/bucket/{key}"]) for key in keys)
    servers.wait_until(
        lambda: metric(gateway, "forebay_disk_written_bytes_total") >= total, "pages on disk"
    )


@pytest.mark.parametrize("end", ["drained", "killed"])
def test_a_restart_is_warm_at_the_price_of_one_question_an_object(disk, shelf, end):
    keys = fill(shelf)
    before = disk(rules=ON_DISK if end == "killed" else "")
    read_for_a_while(before, keys)
    if end == "killed":
        wait_until_written(before, shelf, keys)
        before.kill()
    else:
        assert before.stop() == 0
    count = len(disk.origin.seen)
    after = disk(rules=ON_DISK if end == "killed" else "")
    read_all(after, keys)
    asked = disk.origin.seen[count:]
    assert [seen.target for seen in asked] == [f"/bucket/{key}" for key in keys]
    assert [seen.headers.get("if-none-match") for seen in asked] == [shelf.etag(k) for k in keys]
    assert body_bytes(disk.origin, count) == 0
    for _ in range(2):
        read_all(after, keys)
    assert len(disk.origin.seen) == count + len(keys), "and asked nothing for further reads"
    assert metric(after, "forebay_cache_disk_hit_bytes_total") >= sum(SIZES)


def test_a_range_and_a_head_after_a_restart_are_answered_from_the_disk(disk, shelf):
    keys = fill(shelf, [5 * MIB])
    before = disk()
    read_for_a_while(before, keys)
    assert before.stop() == 0
    count = len(disk.origin.seen)
    wire = Wire(disk())
    head = wire.signed("HEAD", "/bucket/0")
    assert (head.status, head.header("content-length")) == (200, str(5 * MIB))
    answer = wire.signed("GET", "/bucket/0", headers={"range": "bytes=3000000-3999999"})
    assert answer.body == shelf.objects["/bucket/0"][3_000_000:4_000_000]
    assert "detail=disk" in answer.header("cache-status")
    assert len(disk.origin.seen) == count + 1
    assert body_bytes(disk.origin, count) == 0


@pytest.mark.parametrize("mode", ["bounded", "exclusive", "immutable", "strict"])
def test_a_write_before_a_kill_is_never_undone_by_the_disk(disk, shelf, mode):
    """Each object is on disk as it was; then it is written or deleted; then comes the kill."""
    keys = fill(shelf)
    coherence = f'{{ mode = "{mode}" }}'
    before = disk(coherence=coherence, rules=ON_DISK)
    for _ in range(2):
        read_all(before, keys)
    wait_until_written(before, shelf, keys)
    wire = Wire(before)
    for number, key in enumerate(keys):
        if number % 3 == 0:
            assert wire.signed("DELETE", f"/bucket/{key}").status == 204
        else:
            # The same size, so that nothing but the bytes tells.
            content = content_of(SIZES[number], seed=500_000 + number)
            assert wire.signed("PUT", f"/bucket/{key}", body=content).status == 200
    before.kill()
    wire = Wire(disk(coherence=coherence, rules=ON_DISK))
    for _ in range(2):
        for key in keys:
            answer = wire.signed("GET", f"/bucket/{key}")
            expected = shelf.objects.get(f"/bucket/{key}")
            if expected is None:
                assert (answer.status, answer.code) == (404, "NoSuchKey")
            else:
                assert (answer.status, answer.body == expected) == (200, True), key


def test_what_others_wrote_while_it_was_down_is_seen(disk, shelf):
    keys = fill(shelf)
    coherence = '{ mode = "immutable" }'
    before = disk(coherence=coherence)
    read_for_a_while(before, keys)
    assert before.stop() == 0
    fill(shelf, seed=70)
    after = disk(coherence=coherence)
    for _ in range(2):
        read_all(after, keys)


def mounted(folder):
    """Makes a file system of 16 MiB, or skips."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=0700", "forebay-test", str(folder)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("may not mount a small file system")


@pytest.fixture
def small_file_system(tmp_path):
    folder = tmp_path / "small"
    mounted(folder)
    yield folder
    # Lazily: the gateway still has it open.
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


MANY = [200 * KIB] * 60 + [2 * MIB] * 12


def test_a_full_disk_is_no_clients_business(disk, shelf, small_file_system):
    keys = fill(shelf, MANY)
    gateway = disk(rules=ON_DISK, folder=small_file_system / "pages")
    for _ in range(3):
        read_all(gateway, keys)
    assert metric(gateway, "forebay_disk_evicted_entries_total") > 0, "36 MiB do not fit into 16"
    assert metric(gateway, "forebay_disk_used_bytes") <= 16 * MIB
    for _ in range(2):
        read_all(gateway, keys[:5])
    assert metric(gateway, "forebay_cache_disk_hit_bytes_total") > 0, "what fits is of use"
    # Somebody else takes what room there is, and more each time that the gateway gives some back.
    with (small_file_system / "foreign").open("wb", buffering=0) as foreign:
        for number in range(4):
            with contextlib.suppress(OSError):
                while foreign.write(b"x" * 4096):
                    pass
            read_all(gateway, fill(shelf, MANY, seed=100 * number))


def test_a_folder_that_vanishes_is_no_clients_business(disk, shelf, tmp_path):
    keys = fill(shelf, MANY)
    gateway = disk(rules=ON_DISK)
    read_all(gateway, keys[:30])
    # Away at once: file by file, the gateway would put new ones beside those that go.
    shutil.move(disk.folder, tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone", ignore_errors=True)
    for _ in range(2):
        read_all(gateway, keys)
    wire = Wire(gateway)
    assert wire.signed("PUT", "/bucket/1", body=b"new").status == 200
    read_all(gateway, keys)


def test_a_folder_that_becomes_read_only_is_no_clients_business(disk, shelf):
    keys = fill(shelf, MANY)
    # Root is held to permissions only without this capability.
    bound = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    gateway = disk(rules=ON_DISK, wrapper=bound if os.geteuid() == 0 else ())
    read_all(gateway, keys[:30])
    disk.folder.chmod(0o500)
    try:
        for _ in range(2):
            read_all(gateway, keys)
        assert metric(gateway, "forebay_disk_writes_failed_total") > 0
        assert Wire(gateway).signed("PUT", "/bucket/1", body=b"new").status == 200
        read_all(gateway, keys)
    finally:
        disk.folder.chmod(0o700)


def test_a_second_gateway_on_a_folder_says_who_has_it(disk, shelf):
    first = disk()
    keys = fill(shelf)
    with pytest.raises(AssertionError, match=f"in use by process {first.process.pid}"):
        disk()
    read_all(first, keys)


def test_a_folder_of_somebody_else_is_refused_and_left_alone(disk):
    disk.folder.mkdir()
    (disk.folder / "thesis.tex").write_text("years of work")
    with pytest.raises(AssertionError, match="is not empty and not a cache of Forebay"):
        disk()
    assert [path.name for path in disk.folder.iterdir()] == ["thesis.tex"]


def damage(folder, places):
    """Flips a bit at each place that `places` finds in a segment's bytes; returns how many."""
    count = 0
    for segment in sorted(folder.glob("*.segment")):
        content = bytearray(segment.read_bytes())
        for place in places(bytes(content)):
            content[place] ^= 0x10
            count += 1
        segment.write_bytes(content)
    return count


def test_damaged_pages_are_fetched_again_and_counted(disk, shelf):
    keys = fill(shelf)
    before = disk(rules=ON_DISK)
    read_all(before, keys)
    assert before.stop() == 0

    def in_pages(content):
        """One bit of each object's first page, if it lies in this segment."""
        for key in keys[2:]:
            place = content.find(shelf.objects[f"/bucket/{key}"][:900])
            if place >= 0:
                yield place + 500

    damaged = damage(disk.folder, in_pages)
    assert damaged == len(keys[2:])
    after = disk(rules=ON_DISK)
    for _ in range(2):
        read_all(after, keys)
    assert metric(after, "forebay_disk_reads_failed_total", cause="corrupt") == damaged


@pytest.mark.parametrize("every", [997, 70_001])
def test_damage_anywhere_serves_no_wrong_byte(disk, shelf, every):
    keys = fill(shelf)
    for seed in range(3):
        print("seed", seed)
        before = disk(rules=ON_DISK)
        for _ in range(2):
            read_all(before, keys)
        assert before.stop() == 0
        first = random.Random(seed).randrange(every)
        assert damage(disk.folder, lambda content: range(first, len(content), every)) > 0
    after = disk(rules=ON_DISK)
    for _ in range(2):
        read_all(after, keys)


def test_a_disk_much_smaller_than_what_is_read_serves_right_bytes_within_its_size(disk, shelf):
    keys = fill(shelf, [MIB] * 40)
    gateway = disk(rules=ON_DISK, size="16MiB")
    for _ in range(3):
        read_all(gateway, keys)
    taken = 0
    for path in disk.folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            taken += path.stat().st_blocks * 512
    assert taken <= 16 * MIB + 64 * KIB
    servers.wait_until(
        lambda: metric(gateway, "forebay_disk_evicted_entries_total") > 0, "pages to make room"
    )
    read_all(gateway, keys)
