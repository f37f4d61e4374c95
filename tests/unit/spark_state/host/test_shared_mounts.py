"""On a cluster, a store in a directory whose listings may be old is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from checkpoint_store.errors import StoreAccessError
from spark_state.host.shared_mounts import check_mount


def mounted(mountpoint: str, opts: str, fstype: str = "nfs4") -> SimpleNamespace:
    return SimpleNamespace(mountpoint=mountpoint, opts=opts, fstype=fstype)


@pytest.fixture
def mounts(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    """The mounts of the system; a test adds mounts to the list."""
    shown = [mounted("/", "rw,relatime", "ext4")]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: shown)
    return shown


def test_a_mount_that_shows_old_listings_is_refused_by_its_name(
    tmp_path: Path, mounts: list[SimpleNamespace]
) -> None:
    mounts.append(mounted(str(tmp_path), "rw,nocto,vers=4.2,acdirmax=60"))
    for url in (tmp_path / "store", f"file://{tmp_path}/store"):
        with pytest.raises(StoreAccessError, match=f"{tmp_path} is mounted with nocto .nfs4."):
            check_mount(str(url))


@pytest.mark.parametrize("opts", ["rw,vers=4.2", "rw,nocto,actimeo=0", "rw,nocto,noac"])
def test_a_mount_that_asks_its_server_is_used(
    tmp_path: Path, mounts: list[SimpleNamespace], opts: str
) -> None:
    mounts.append(mounted(str(tmp_path), opts))
    check_mount(str(tmp_path / "store"))


def test_the_mount_that_is_seen_counts(tmp_path: Path, mounts: list[SimpleNamespace]) -> None:
    mounts.append(mounted(str(tmp_path), "rw,nocto"))
    mounts.append(mounted(f"{tmp_path}/on another server", "rw,nocto"))
    check_mount("s3://bucket/store")
    check_mount(f"{tmp_path}-beside/store")
    mounts.append(mounted(f"{tmp_path}/disk", "rw", "xfs"))
    check_mount(f"{tmp_path}/disk/store")
    mounts.append(mounted(str(tmp_path), "rw", "ext4"))
    check_mount(f"{tmp_path}/store")
