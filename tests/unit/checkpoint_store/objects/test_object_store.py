"""Behaviour of single kinds of stores; tests/contract has the promises of all kinds."""

from __future__ import annotations

import errno
import multiprocessing
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import fsspec
import pytest
import s3fs
from fsspec.implementations.memory import MemoryFileSystem

from checkpoint_store.errors import ObjectExistsError, StoreAccessError, StoreUnavailableError
from checkpoint_store.objects.fsspec_object_store import FsspecObjectStore
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.objects.object_info import UNPUBLISHED
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from tests.support.stores.moto_s3 import S3Server, close_clients, moto_s3

pytestmark = pytest.mark.process

# Longer than a few quick retries.
SECONDS_AWAY = 8


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with moto_s3() as server:
        yield server


def put_and_list(store: ObjectStore, name: str) -> list[str]:
    store.put(name, b"x")
    return sorted(info.name for info in store.list("d"))


def test_a_path_is_a_local_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("./some/store", f"{tmp_path}/some/store", f"file://{tmp_path}/some/store/"):
        store = open_object_store(url)
        assert store == LocalObjectStore(tmp_path / "some/store")
        assert store.url == f"file://{tmp_path}/some/store"


def test_an_unknown_protocol_is_a_clear_error() -> None:
    with pytest.raises(StoreAccessError, match="no file system is known for s4://") as caught:
        open_object_store("s4://bucket/store")
    assert caught.value.url == "s4://bucket/store"


def test_a_missing_s3_client_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "s3fs"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    # The known classes of file systems; `fsspec.registry` is a read-only view of this dict.
    classes = sys.modules["fsspec.registry"]._registry
    monkeypatch.delitem(classes, "s3", raising=False)
    with pytest.raises(StoreAccessError, match=f"{sys.executable} -m pip install s3fs"):
        open_object_store("s3://bucket/store")


@pytest.mark.parametrize("url", ["s3://bucket/store", "gs://bucket/store"])
def test_a_missing_fsspec_says_what_to_install(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    packages = "-m pip install s3fs" if url.startswith("s3") else "install the package it names"
    for use in (lambda: open_object_store(url), lambda: FsspecObjectStore(url).get("a")):
        with pytest.raises(StoreAccessError, match="fsspec") as raised:
            use()
        assert packages in str(raised.value)
        assert sys.executable in str(raised.value)


def test_a_root_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("not a directory")
    store = open_object_store(str(tmp_path / "store"))
    with pytest.raises(StoreAccessError, match=r"Not a directory|File exists") as caught:
        store.put("d/a", b"x")
    assert caught.value.url == store.url


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a read-only file system")
def test_a_root_that_cannot_be_written_is_a_clear_error() -> None:
    with pytest.raises(StoreAccessError, match="/proc"):
        open_object_store("/proc/cowstate/store").put("d/a", b"x")


def test_a_bucket_that_does_not_exist_is_a_clear_error(s3: S3Server) -> None:
    store = open_object_store("s3://no-such-bucket/store", s3.storage_options)
    assert list(store.list("runs")) == []
    with pytest.raises(StoreAccessError, match="no-such-bucket"):
        store.put("d/a", b"x")


def test_a_server_that_is_gone_is_unavailable_in_bounded_time() -> None:
    with moto_s3() as server:
        url, options = server.new_bucket(), server.storage_options
        open_object_store(url, options).put("d/a", b"x")
    with moto_s3():
        store = RetryingObjectStore(open_object_store(url, options), retry_seconds=1)
        with pytest.raises(StoreUnavailableError, match="reading d/a failed for 1 s"):
            store.get("d/a")


def test_a_server_that_is_away_for_seconds_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    with moto_s3() as server:
        url = f"{server.new_bucket()}/store"
        store = RetryingObjectStore(open_object_store(url, server.storage_options))
        store.put("d/a", b"x")
        with ThreadPoolExecutor(4) as pool:
            with server.away():
                reading = [pool.submit(store.get, "d/a") for _ in range(2)]
                writing = pool.submit(store.put, "d/b", b"y")
                listing = pool.submit(store.list, "d")
                time.sleep(SECONDS_AWAY)
                assert not any(call.done() for call in (*reading, writing, listing))
            assert [call.result() for call in reading] == [b"x", b"x"]
            writing.result()
            assert {info.name for info in listing.result()} >= {"d/a"}
        assert store.get("d/b") == b"y"
    lines = [r for r in caplog.records if r.name.startswith("checkpoint_store")]
    assert [r.getMessage().split(" ")[1] for r in lines] == ["does", "answers"]
    assert not any(r.exc_info for r in caplog.records)


def test_the_endpoint_may_come_from_the_environment(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = s3.new_bucket()
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    close_clients()
    assert put_and_list(open_object_store(url), "d/a") == ["d/a"]


def test_missing_credentials_are_a_clear_error(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    store = open_object_store("s3://bucket/store", {"endpoint_url": s3.endpoint})
    with pytest.raises(StoreAccessError, match="NoCredentialsError"):
        store.put("d/a", b"x")


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.put("d/a", b"x"),
        lambda store: store.get("d/a"),
        lambda store: store.list("d"),
        lambda store: store.delete(["d/a"]),
    ],
    ids=["put", "get", "list", "delete"],
)
def test_a_library_that_cannot_be_loaded_makes_a_store_unusable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, use: Callable[[ObjectStore], object]
) -> None:
    for name in ("JAVA_HOME", "HADOOP_HOME", "ARROW_LIBHDFS_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    with pytest.raises(StoreAccessError, match=r"load lib.*ARROW_LIBHDFS_DIR"):
        use(open_object_store("hdfs://localhost:1/store"))


def test_a_store_that_needs_more_than_a_url_is_unusable() -> None:
    with pytest.raises(StoreAccessError, match=r"missing 1 required .* 'host'"):
        open_object_store("webhdfs:///store").list("d")


def test_an_s3_store_works_after_a_fork(s3: S3Server) -> None:
    store = open_object_store(s3.new_bucket(), s3.storage_options)
    assert put_and_list(store, "d/parent") == ["d/parent"]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        result = pool.apply_async(put_and_list, (store, "d/child"))
        assert result.get(timeout=60) == ["d/child", "d/parent"]
        pool.close()
        pool.join()
    assert put_and_list(store, "d/after") == ["d/after", "d/child", "d/parent"]


def test_an_object_is_read_with_one_request(s3: S3Server) -> None:
    store = open_object_store(s3.new_bucket(), s3.storage_options)
    store.put("d/object", b"data")
    with s3.counting() as requests:
        assert store.get("d/object") == b"data"
    assert requests == {"get": 1}


def test_a_placeholder_object_of_a_directory_is_not_listed(s3: S3Server) -> None:
    store = open_object_store(s3.new_bucket(), s3.storage_options)
    s3fs.S3FileSystem(**s3.storage_options).pipe_file(f"{store.url}/d/", b"")
    store.put("d/a", b"x")
    assert [info.name for info in store.list("d")] == ["d/a"]


class ServerAnswer(Exception):
    """An error of botocore, with only the fields that the store reads."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


class AnsweringFileSystem(MemoryFileSystem):
    """A file system that answers a conditional create as S3-compatible servers do through s3fs."""

    protocol = "answering"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    answer = ServerAnswer("")

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        if mode == "create":
            assert not path.endswith("d/b"), "it has said at d/a that it knows no such create"
            raise OSError(22, "translated") from self.answer
        super().pipe_file(path, value, mode=mode, **options)


fsspec.register_implementation("answering", AnsweringFileSystem, clobber=True)


class SurprisedFileSystem(MemoryFileSystem):
    """A client that passes unknown options on to a library at the first read."""

    protocol = "surprised"

    def cat_file(self, *_: Any, **__: Any) -> bytes:
        raise TypeError("connect() got an unexpected keyword argument 'surprise'")


fsspec.register_implementation("surprised", SurprisedFileSystem, clobber=True)


def test_an_option_that_the_client_does_not_know_is_told() -> None:
    store = open_object_store("surprised://store", {"surprise": 1})
    with pytest.raises(StoreAccessError, match=r"option is not known to its client: .*'surprise'"):
        store.get("d/a")


class LostFileSystem(MemoryFileSystem):
    """A server that cannot be reached."""

    protocol = "lost"

    def cat_file(self, *_: Any, **__: Any) -> bytes:
        raise ConnectionResetError("gone")

    def info(self, *_: Any, **__: Any) -> dict[str, Any]:
        raise AssertionError("it was asked again")


fsspec.register_implementation("lost", LostFileSystem, clobber=True)


def test_a_range_that_cannot_be_read_is_no_end_of_an_object() -> None:
    with pytest.raises(ConnectionResetError, match=r"^gone$"):
        open_object_store("lost://store").get_range("d/a", 5, 1)


def test_precondition_failed_means_that_an_object_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnsweringFileSystem, "answer", ServerAnswer("PreconditionFailed"))
    with pytest.raises(ObjectExistsError):
        open_object_store("answering://store").put("d/a", b"x")


def test_a_server_without_conditional_create_is_written_plainly_and_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(AnsweringFileSystem, "answer", ServerAnswer("NotImplemented"))
    store = open_object_store(f"answering://{uuid4().hex}")
    store.put("d/a", b"x")
    store.put("d/b", b"y")
    assert (store.get("d/a"), store.get("d/b"), caplog.text.count(store.url)) == (b"x", b"y", 1)


def test_of_many_creators_on_a_local_disk_one_wins(tmp_path: Path) -> None:
    store = open_object_store(str(tmp_path))

    def create(number: int) -> bool:
        try:
            store.put("d/one", str(number).encode() * 1000)
        except ObjectExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(create, range(8))) == 1


def test_creation_outlasts_the_deletion_of_its_directory(tmp_path: Path) -> None:
    store = open_object_store(str(tmp_path))

    def put_and_delete(number: int) -> None:
        for turn in range(30):
            store.put(f"d/{number}-{turn}", b"x")
            store.delete([f"d/{number}-{turn}"])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put_and_delete, range(4)))
    assert list(store.list("d")) == []


def fails(error: OSError) -> Callable[..., None]:
    def call(*arguments: object, **options: object) -> None:
        raise error

    return call


@pytest.mark.parametrize("step", ["open", "write", "fsync", "link"])
def test_a_local_write_that_fails_leaves_no_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store = open_object_store(str(tmp_path))
    store.put("d/other", b"x")
    with monkeypatch.context() as patched:
        patched.setattr(os, step, fails(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space left"):
            store.put("d/a", b"x")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["other"]
    store.put("d/a", b"x")


class TestAFailedPutBesideAnotherWriter:
    """After a failed put, a writer deletes only its own file."""

    @pytest.mark.parametrize("step", ["write", "fsync", "link"])
    def test_an_object_that_another_one_put_meanwhile_stays(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        store, other = open_object_store(str(tmp_path)), open_object_store(str(tmp_path))
        real = getattr(os, step)

        def fails_after_another_put(*arguments: object) -> None:
            monkeypatch.setattr(os, step, real)
            other.put("versions/1.json", b"committed")
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, step, fails_after_another_put)
        with pytest.raises(OSError, match="Input/output error"):
            store.put("versions/1.json", b"mine")
        assert store.get("versions/1.json") == b"committed"
        with pytest.raises(ObjectExistsError):
            store.put("versions/1.json", b"mine")
        assert store.get("versions/1.json") == b"committed"

    def test_an_object_whose_directory_could_not_be_synced_is_found_by_the_next_try(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, failed = os.fsync, []

        def fails_for_the_directory(descriptor: int) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode) and not failed:
                failed.append(descriptor)
                raise OSError(5, "Input/output error")
            real(descriptor)

        store = open_object_store(str(tmp_path))
        store.put("d/other", b"x")
        monkeypatch.setattr(os, "fsync", fails_for_the_directory)
        RetryingObjectStore(store, sleep=lambda _: None).put("d/a", b"mine")
        assert (len(failed), store.get("d/a")) == (1, b"mine")

    def test_a_link_whose_answer_was_lost_is_its_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = os.link

        def asks_twice(*arguments: Any) -> None:
            real(*arguments)
            real(*arguments)

        monkeypatch.setattr(os, "link", asks_twice)
        store = open_object_store(str(tmp_path))
        store.put("d/a", b"mine")
        assert store.get("d/a") == b"mine"
        with pytest.raises(ObjectExistsError):
            store.put("d/a", b"other")


@pytest.mark.parametrize("code", ["EPERM", "ENOTSUP", "ENOSYS", "EXDEV", "EMLINK"])
def test_a_file_system_without_hard_links_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    store = open_object_store(str(tmp_path))
    error = OSError(getattr(errno, code), "no links here")
    monkeypatch.setattr(os, "link", fails(error))
    with pytest.raises(StoreAccessError, match=r"no links here.*needs hard links.*s3://") as caught:
        store.put("d/a", b"x")
    assert caught.value.url == store.url
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_is_not_published_yet_is_in_no_listing(tmp_path: Path) -> None:
    store = open_object_store(str(tmp_path))
    store.put("d/a", b"x")
    left = tmp_path / UNPUBLISHED / "0123"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"begun")
    assert (list(store.list("")), list(store.list_directories(""))) == ([], ["/d"])
    above = open_object_store(str(tmp_path.parent))
    assert list(above.list_directories(tmp_path.name)) == [f"{tmp_path.name}/d"]
    # The sweep asks for this file by name.
    assert [info.name for info in store.list(UNPUBLISHED)] == [f"{UNPUBLISHED}/0123"]
    store.delete([f"{UNPUBLISHED}/0123"])
    assert not left.parent.exists()
    store.put("d/b", b"x")


def test_an_object_and_its_path_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real_fsync = os.fsync

    def recording(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recording)
    open_object_store(str(tmp_path / "store")).put("epochs/1/a", b"x")
    root = tmp_path / "store"
    (own,) = (path for path in synced if path.startswith(f"{root}/{UNPUBLISHED}/"))
    # The file is synced before its name appears, and the directories before the put returns.
    directories = [str(path) for path in (root, root / "epochs", root / "epochs/1")]
    assert synced == [str(tmp_path), str(root), own, *directories]


def test_storage_options_are_not_shown() -> None:
    store = FsspecObjectStore("s3://bucket", {"secret": "hunter2"})
    assert "hunter2" not in repr(store)
