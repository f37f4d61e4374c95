"""The contract of directories of state files for the provider, run against each kind.

The kinds are: the Java API of files, Spark's checkpoint file manager, and the gateway in a
directory and on S3.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.provider.provider_jvm import ProviderJvm
from tests.support.provider.state_directories import Directory
from tests.support.stores.moto_s3 import S3Server, moto_s3

pytestmark = pytest.mark.spark

KINDS = ("local", "managed", "gateway on a directory", "gateway on S3")
# A file of LARGE bytes or more is read in ranges. A file of SPOOLED bytes or more is spooled to
# disk.
LARGE, SPOOLED = (1 << 20) + 17, (4 << 20) + 17


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with moto_s3() as server:
        yield server


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def directory(
    provider_jvm: ProviderJvm, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Directory:
    if kind == "gateway on S3":
        server: S3Server = request.getfixturevalue("s3")
        options: dict[str, object] = {"endpoint_url": server.endpoint}
        root = f"{server.new_bucket()}/state-of/query"
        return Directory(provider_jvm, "gateway", root, options)
    return Directory(provider_jvm, kind.split()[0], tmp_path.as_uri(), {})


def test_a_file_is_there_when_it_is_committed_and_not_before(directory: Directory) -> None:
    assert directory.run("list", "begin a.arrow text", "list") == ["", "", ""]
    assert directory.run("commit a.arrow", "list", "read a.arrow 0 4") == ["", "a.arrow", "text"]


def test_a_file_that_is_cancelled_leaves_nothing(directory: Directory) -> None:
    assert directory.run("begin a.arrow text", "cancel a.arrow", "list") == ["", "", ""]


def test_any_part_of_a_file_can_be_read(directory: Directory) -> None:
    directory.run("begin a.arrow 0123456789", "commit a.arrow")
    lines = ("length a.arrow", "read a.arrow 3 4", "read a.arrow 0 10", "read a.arrow 9 1")
    assert directory.run(*lines) == ["10", "3456", "0123456789", "9"]


@pytest.mark.parametrize("size", [0, LARGE, SPOOLED])
def test_a_file_of_any_length_is_read_as_it_was_written(directory: Directory, size: int) -> None:
    assert directory.run(f"put a.arrow {size}", f"whole a.arrow {size}") == ["", "true"]
    assert directory.result("lengths a.arrow") == f"a.arrow={size}"


@pytest.mark.parametrize(("size", "start"), [(10, 5), (LARGE, LARGE - 5), (LARGE, 3)])
def test_a_read_beyond_the_end_is_an_error(directory: Directory, size: int, start: int) -> None:
    directory.run(f"put a.arrow {size}")
    assert directory.result(f"read a.arrow {start} {size}").startswith("error EOFException")


def test_a_missing_file_is_named(directory: Directory) -> None:
    name = f"{1:019d}-{1:010d}-{'a' * 16}-0.changelog.arrow"
    directory.run("begin a.arrow text", "commit a.arrow")
    result = directory.result(f"read {name} 0 1")
    assert result.startswith(f"error CowStateMissingException {directory.result('url')}/{name} is")
    assert "restart the query from batch 0" in result


def test_a_file_that_was_deleted_is_missing_and_may_be_deleted_again(directory: Directory) -> None:
    directory.run("put a.arrow 10", "put b.arrow 20")
    assert directory.run("delete a.arrow,c.arrow", "delete a.arrow", "list") == ["", "", "b.arrow"]
    assert directory.result("read a.arrow 0 1").startswith("error CowStateMissingException")
    assert directory.result("lengths b.arrow") == "b.arrow=20"


def test_lengths_are_of_the_files_that_are_there(directory: Directory) -> None:
    directory.run("put a.arrow 10", "put b.arrow 20")
    assert directory.result("lengths a.arrow,missing.arrow,b.arrow") == "a.arrow=10 b.arrow=20"


def test_many_threads_write_at_once(directory: Directory) -> None:
    assert directory.result("put-at-once 64 20000") == "64"
    assert directory.result("whole file-63 20000") == "true"


def test_a_sweep_passes_over_a_file_that_is_gone(provider_jvm: ProviderJvm, tmp_path: Path) -> None:
    """A dangling link appears in the listing, and is missing when the sweep asks for its time."""
    directory = Directory(provider_jvm, "local", tmp_path.as_uri())
    directory.run("put b.arrow 10")
    (published,) = tmp_path.rglob("b.arrow")
    (published.parent / ".a.arrow.tmp").symlink_to("renamed")
    killed = published.parent / ".c.arrow.tmp"
    killed.touch()
    os.utime(killed, (0, 0))
    assert directory.result("sweep") == ""
    assert not killed.exists()


def test_a_sweep_leaves_what_is_published_and_what_is_young(directory: Directory) -> None:
    directory.run("begin a.arrow text", "put b.arrow 10", "sweep")
    assert directory.run("commit a.arrow", "list") == ["", "a.arrow b.arrow"]
