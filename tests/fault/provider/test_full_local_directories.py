"""The provider reports a local file system for mapped files that is full or cannot be written to.

A user with a namespace may mount file systems in the namespace. The tests are skipped on systems
without namespaces.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.applications.provider_drivers import BACKEND, LOCAL_DIRECTORY, command
from tests.support.applications.streams import Row, feed_rows, totals_in, totals_of
from tests.support.applications.whole_applications import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.fault]
MOUNT = 'mount -t tmpfs -o "$1" cowstate "$2" && shift 2 && exec "$@"'
EPOCHS = 4
KEYS_OF_EPOCH = 8_000


class MountedDirectory:
    """A directory with a mounted file system, visible to a single process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        if self.run("size=1m", ["true"]).returncode != 0:
            pytest.skip("no file system can be mounted in a namespace of a user here")

    def run(self, options: str, words: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command with a file system of these options mounted on the directory."""
        namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh"]
        return started([*namespace, options, str(self.path), *words])


def started(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


def fed_wide_rows(folder: Path) -> list[Row]:
    """Feed epochs with separate keys and long names: about 2 MB of records."""
    fed: list[Row] = []
    for epoch in range(EPOCHS):
        first = epoch * KEYS_OF_EPOCH
        rows = [(f"{key:0200d}", key % 97) for key in range(first, first + KEYS_OF_EPOCH)]
        feed_rows(folder, epoch, rows)
        fed += rows
    return fed


def test_a_full_file_system_or_one_that_cannot_be_written_to_fails_the_batch_and_loses_nothing(
    tmp_path: Path,
) -> None:
    local = MountedDirectory(tmp_path / "local")
    fed = fed_wide_rows(tmp_path)
    options = [f"{BACKEND}=disk", f"{LOCAL_DIRECTORY}={local.path}"]
    application = command(tmp_path, *(word for entry in options for word in ("--conf", entry)))
    for mounted, told, way, committed in [
        ("ro", "Read-only file system", "It has to be writable for the executors", range(1)),
        ("size=6m", "No space left on device", "Make room there", range(1, EPOCHS)),
    ]:
        run = local.run(mounted, application)
        assert run.returncode != 0
        assert re.search(f"the state cannot be kept in {local.path}: .*{told}", run.stderr)
        assert f"{way}, or set {LOCAL_DIRECTORY} to a directory" in run.stderr
        assert len([*tmp_path.glob("checkpoint/commits/[0-9]*")]) in committed
    run = started(application)
    assert run.returncode == 0, run.stderr[-5000:]
    assert totals_in(tmp_path) == totals_of(fed)
