"""A run's claim on a directory of an object store is granted and checked at the right moments."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.support.provider.provider_jvm import ProviderJvm
from tests.support.stores.misbehaving_gateway import end_gateways

pytestmark = pytest.mark.spark
RUNS_WITH_CLAIMS = 100


class ClaimedDirectory:
    """A directory of a store, and claims of runs of one checkpoint."""

    def __init__(self, provider_jvm: ProviderJvm, folder: Path) -> None:
        self._jvm = provider_jvm
        self.checkpoint = folder / "checkpoint"
        self.runs = folder / "store" / "runs"

    def held(self, run: str, retry_seconds: int = 5, version: int = 1) -> Any:
        store = self.runs.parent.as_uri()
        claim = self._jvm.new("ClaimScript", str(self.checkpoint), store, "{}", run, retry_seconds)
        claim.hold(version)
        return claim

    def commit(self, batch: int) -> None:
        """Note a batch as Spark's commit log does."""
        log = self.checkpoint / "commits"
        log.mkdir(exist_ok=True)
        (log / str(batch)).write_text("v1\n{}")
        (log / f".{batch}.crc").write_bytes(b"")


@pytest.fixture
def directory(provider_jvm: ProviderJvm, tmp_path: Path) -> ClaimedDirectory:
    return ClaimedDirectory(provider_jvm, tmp_path)


def test_a_commit_soon_after_a_look_does_not_look(directory: ClaimedDirectory) -> None:
    claim = directory.held("first")
    directory.held("second")
    claim.waitSeconds(4)
    assert claim.refusal() == ""


def test_a_commit_after_a_long_batch_looks_first(directory: ClaimedDirectory) -> None:
    claim = directory.held("first")
    claim.waitSeconds(31)
    assert claim.refusal() == ""
    directory.held("second")
    claim.waitSeconds(31)
    told = claim.refusal()
    assert "CowStateFencedException: Run first does not write" in told
    assert "run second has taken over" in told


def test_a_commit_after_some_seconds_lets_a_look_run_beside_it(directory: ClaimedDirectory) -> None:
    claim = directory.held("first")
    directory.held("second")
    claim.waitSeconds(6)
    assert claim.refusal() == ""
    # The clock stands still, so no second look begins.
    while not (told := claim.refusal()):
        time.sleep(0.01)
    assert "run second has taken over" in told


def test_a_look_that_the_store_does_not_answer_puts_none_off(directory: ClaimedDirectory) -> None:
    claim = directory.held("first", retry_seconds=1)
    directory.held("second")
    away = directory.runs.rename(directory.runs.with_name("away"))
    directory.runs.symlink_to(directory.runs)
    for _ in range(5):
        claim.waitSeconds(6)
        assert claim.refusal() == ""
    claim.waitSeconds(1)
    assert "ObjectStoreException" in claim.refusal()
    directory.runs.unlink()
    away.rename(directory.runs)
    assert "run second has taken over" in claim.refusal()


def test_a_run_of_long_ago_that_begins_anew_somewhere_takes_no_claim_over(
    directory: ClaimedDirectory,
) -> None:
    """More runs followed than claims are kept, and the log no longer has the first commits."""
    directory.held("first")
    for number in range(2, RUNS_WITH_CLAIMS + 3):
        directory.commit(number - 2)
        last = directory.held(f"run-{number}", version=number)
    assert not list(directory.runs.glob("*-first.json"))
    for old in (0, 1, 2):
        (directory.checkpoint / "commits" / str(old)).unlink()
    with pytest.raises(Py4JJavaError) as error:
        directory.held("first")
    assert "CowStateFencedException: Run first does not write" in str(error.value)
    assert "has a commit of batch 0, so a later run has gone on" in str(error.value)
    last.waitSeconds(31)
    assert last.refusal() == ""


def test_a_run_that_goes_on_behind_the_last_commit_claims_with_any_later_batch(
    directory: ClaimedDirectory,
) -> None:
    """Another executor of the run needs no claim, even when a batch is committed."""
    directory.held("first")
    directory.commit(0)
    claim = directory.held("second", version=2)
    directory.commit(1)
    directory.held("second", version=2)
    claim.waitSeconds(31)
    assert claim.refusal() == ""


def test_a_store_that_is_down_is_waited_for_once_by_tasks_that_come_at_once(
    provider_jvm: ProviderJvm, tmp_path: Path
) -> None:
    options = '{"endpoint_url": "http://127.0.0.1:9", "anon": true}'
    claim = provider_jvm.new(
        "ClaimScript", str(tmp_path / "checkpoint"), "s3://nowhere/state", options, "run", 2
    )
    try:
        for _ in range(2):
            count, *messages = claim.failuresOf(8).splitlines()
            assert count == "1"
            assert "s3://nowhere/state" in messages[0]
    finally:
        end_gateways()
