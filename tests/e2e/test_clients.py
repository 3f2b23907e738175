"""The command-line clients people use: aws cli, rclone, s3cmd, curl."""

import hashlib
import json
import os

import pytest

from harness.clients import AwsCli, Curl, Rclone, S3cmd

MIB = 1 << 20


@pytest.fixture
def tree(tmp_path):
    """A small directory with a large file and odd names."""
    root = tmp_path / "tree"
    (root / "deep" / "er").mkdir(parents=True)
    (root / "small.txt").write_bytes(b"small")
    (root / "empty").write_bytes(b"")
    (root / "with space+plus.txt").write_bytes(b"odd")
    (root / "deep" / "ü.bin").write_bytes(bytes(range(256)) * 400)
    large = b"".join(n.to_bytes(4, "big") * 256 for n in range(20 * 1024))
    (root / "deep" / "er" / "large.bin").write_bytes(large)
    for path in root.rglob("*"):
        # Clearly older than any upload of it: a sync compares fractions with whole seconds.
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return root


def files_of(root):
    """Relative name → content of every file below `root`."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


class TestAwsCli:
    """`aws s3` and `aws s3api`."""

    @pytest.fixture
    def aws(self, server, tmp_path):
        return AwsCli(server, tmp_path)

    def test_a_bucket_is_made_and_removed(self, aws, bucket):
        name = bucket + "-cli"
        aws("s3", "mb", f"s3://{name}")
        assert name in aws("s3", "ls").stdout.decode()
        aws("s3", "rb", f"s3://{name}")
        assert name not in aws("s3", "ls").stdout.decode()

    @pytest.mark.parametrize("name", ["small.txt", "deep/er/large.bin", "with space+plus.txt"])
    def test_cp_brings_back_what_it_took(self, aws, bucket, tree, tmp_path, name):
        aws("s3", "cp", tree / name, f"s3://{bucket}/{name}", "--quiet")
        for _ in range(2):
            back = tmp_path / "back"
            aws("s3", "cp", f"s3://{bucket}/{name}", back, "--quiet")
            assert back.read_bytes() == (tree / name).read_bytes()

    def test_cp_streams_from_and_to_pipes(self, aws, bucket, tree):
        aws("s3", "cp", tree / "small.txt", f"s3://{bucket}/k", "--quiet")
        assert aws("s3", "cp", f"s3://{bucket}/k", "-").stdout == b"small"

    def test_sync_there_and_back_keeps_every_file(self, aws, bucket, tree, tmp_path):
        aws("s3", "sync", tree, f"s3://{bucket}/tree", "--quiet")
        again = aws("s3", "sync", tree, f"s3://{bucket}/tree")
        assert again.stdout == b"", "a second sync has nothing to do"
        back = tmp_path / "back"
        aws("s3", "sync", f"s3://{bucket}/tree", back, "--quiet")
        assert files_of(back) == files_of(tree)

    def test_ls_shows_and_rm_removes_recursively(self, aws, bucket, tree):
        aws("s3", "sync", tree, f"s3://{bucket}/t", "--quiet")
        listed = aws("s3", "ls", f"s3://{bucket}/t/", "--recursive").stdout.decode()
        assert sorted(line.split(maxsplit=3)[3] for line in listed.splitlines()) == sorted(
            f"t/{name}" for name in files_of(tree)
        )
        assert "PRE deep/" in aws("s3", "ls", f"s3://{bucket}/t/").stdout.decode()
        aws("s3", "rm", f"s3://{bucket}/t", "--recursive", "--quiet")
        assert aws("s3", "ls", f"s3://{bucket}", "--recursive", check=False).stdout == b""

    def test_mv_moves_within_the_bucket(self, aws, bucket, tree):
        aws("s3", "cp", tree / "small.txt", f"s3://{bucket}/from", "--quiet")
        aws("s3", "mv", f"s3://{bucket}/from", f"s3://{bucket}/to", "--quiet")
        assert aws("s3", "cp", f"s3://{bucket}/to", "-").stdout == b"small"
        assert "from" not in aws("s3", "ls", f"s3://{bucket}").stdout.decode()

    def test_presign_makes_a_url_that_curl_can_get(self, aws, server, bucket, tree):
        aws("s3", "cp", tree / "small.txt", f"s3://{bucket}/k x", "--quiet")
        # Without this the old command line signs with SigV2, which S3 itself no longer takes.
        aws("configure", "set", "default.s3.signature_version", "s3v4")
        url = aws("s3", "presign", f"s3://{bucket}/k x").stdout.decode().strip()
        assert Curl(server).unsigned(url, "--fail").stdout == b"small"

    def test_head_object_and_ranged_get_object(self, aws, bucket, tree, tmp_path):
        name = "deep/er/large.bin"
        aws("s3", "cp", tree / name, f"s3://{bucket}/k", "--quiet", "--metadata", "colour=blue")
        target = ("--bucket", bucket, "--key", "k")
        head = json.loads(aws("s3api", "head-object", *target).stdout)
        assert (head["ContentLength"], head["Metadata"]) == (20 * MIB, {"colour": "blue"})
        back = tmp_path / "range"
        aws("s3api", "get-object", *target, "--range", "bytes=1048570-1048589", back)
        assert back.read_bytes() == (tree / name).read_bytes()[1048570:1048590]


class TestRclone:
    """`rclone copy`, `check`, `sync`."""

    @pytest.fixture
    def rclone(self, server, tmp_path):
        return Rclone(server, tmp_path)

    def test_copy_then_check_finds_no_difference(self, rclone, bucket, tree, tmp_path):
        rclone("copy", tree, f"s3:{bucket}/tree")
        rclone("check", "--download", tree, f"s3:{bucket}/tree")
        rclone("check", tree, f"s3:{bucket}/tree")
        back = tmp_path / "back"
        rclone("copy", f"s3:{bucket}/tree", back)
        assert files_of(back) == files_of(tree)

    def test_sync_removes_what_is_gone(self, rclone, s3, bucket, tree):
        rclone("sync", tree, f"s3:{bucket}")
        (tree / "small.txt").unlink()
        (tree / "deep" / "ü.bin").write_bytes(b"changed")
        rclone("sync", tree, f"s3:{bucket}")
        rclone("check", "--download", tree, f"s3:{bucket}")
        listed = s3.list_objects_v2(Bucket=bucket)["Contents"]
        assert sorted(entry["Key"] for entry in listed) == sorted(files_of(tree))

    def test_multipart_uploads_are_checked_by_rclone(self, rclone, bucket, tree):
        rclone("copy", "--s3-upload-cutoff", "5M", "--s3-chunk-size", "5M", tree, f"s3:{bucket}")
        rclone("check", "--download", tree, f"s3:{bucket}")

    def test_purge_leaves_nothing(self, rclone, s3, bucket, tree):
        rclone("copy", tree, f"s3:{bucket}/p")
        rclone("purge", f"s3:{bucket}/p")
        assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


class TestS3cmd:
    """`s3cmd`, which asks for ACLs and locations that others never do."""

    @pytest.fixture
    def s3cmd(self, server, tmp_path):
        return S3cmd(server, tmp_path)

    def test_put_ls_get_and_del(self, s3cmd, bucket, tree, tmp_path):
        for name in ("small.txt", "with space+plus.txt", "deep/er/large.bin"):
            s3cmd("put", tree / name, f"s3://{bucket}/{name}")
            assert name in s3cmd("ls", "--recursive", f"s3://{bucket}").stdout.decode()
            back = tmp_path / "back"
            s3cmd("get", "--force", f"s3://{bucket}/{name}", back)
            assert back.read_bytes() == (tree / name).read_bytes()
            s3cmd("del", f"s3://{bucket}/{name}")
        assert s3cmd("ls", "--recursive", f"s3://{bucket}").stdout == b""

    def test_sync_there_and_back_keeps_every_file(self, s3cmd, bucket, tree, tmp_path):
        s3cmd("sync", f"{tree}/", f"s3://{bucket}/t/")
        back = tmp_path / "back"
        back.mkdir()
        s3cmd("sync", f"s3://{bucket}/t/", f"{back}/")
        assert files_of(back) == files_of(tree)

    def test_info_tells_the_size(self, s3cmd, bucket, tree):
        s3cmd("put", tree / "small.txt", f"s3://{bucket}/k")
        assert "File size: 5" in s3cmd("info", f"s3://{bucket}/k").stdout.decode()


class TestCurl:
    """`curl --aws-sigv4`."""

    @pytest.fixture
    def curl(self, server):
        return Curl(server)

    def test_put_get_head_and_delete(self, curl, s3, bucket, tmp_path):
        file = tmp_path / "f"
        file.write_bytes(b"by curl")
        curl(f"/{bucket}/k", "--fail", "--upload-file", file)
        for _ in range(2):
            assert curl(f"/{bucket}/k", "--fail").stdout == b"by curl"
        head = curl(f"/{bucket}/k", "--fail", "--head").stdout.lower()
        assert b"content-length: 7" in head
        curl(f"/{bucket}/k", "--fail", "--request", "DELETE")
        assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0

    def test_a_small_literal_body_is_signed_by_its_hash(self, curl, s3, bucket):
        put = ["--fail", "--request", "PUT", "--data-binary", "hashed"]
        curl(f"/{bucket}/k", *put, payload_hash=hashlib.sha256(b"hashed").hexdigest())
        assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"hashed"

    def test_a_listing_and_a_range(self, curl, s3, bucket):
        s3.put_object(Bucket=bucket, Key="k", Body=b"0123456789")
        assert b"<Key>k</Key>" in curl(f"/{bucket}?list-type=2", "--fail").stdout
        assert curl(f"/{bucket}/k", "--fail", "--range", "3-5").stdout == b"345"

    def test_http2_with_prior_knowledge(self, curl, s3, bucket):
        if curl.server.name != "forebay":
            pytest.skip("the reference server speaks HTTP/1.1 only")
        s3.put_object(Bucket=bucket, Key="k", Body=b"over h2c" * 10000)
        for _ in range(2):
            version = ["--http2-prior-knowledge", "--write-out", "%{http_version}"]
            out = curl(f"/{bucket}/k", "--fail", *version).stdout
            assert out == b"over h2c" * 10000 + b"2"
