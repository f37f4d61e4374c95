"""A moved checkpoint goes on with its stores after a user ran `cowstate attach`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from checkpoint_store.runs.run_errors import StoreOfOtherCheckpointError
from cowstate.cli import attach_run
from cowstate.cli.command_line import main
from tests.support.applications.streams import Stream, random_rows, totals_of

pytestmark = pytest.mark.spark


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    """A stream with two batches."""
    stream = Stream(spark, tmp_path)
    for seed in range(2):
        feed(stream, seed)
    stream.run()
    return stream


def feed(stream: Stream, seed: int) -> None:
    stream.feed(random_rows(seed, count=60, keys=20))


def attach(stream: Stream, *options: str) -> int:
    """Run `cowstate attach` and return its exit code. The store's root is above the directories of
    the query and the operator."""
    root = stream.store().parent.parent
    return main(["attach", str(stream.checkpoint), "--store", str(root), *options])


def report(stream: Stream, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capsys.readouterr()
    assert attach(stream, "--json", *options) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_a_moved_checkpoint_goes_on_and_its_old_location_is_refused(
    stream: Stream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = stream.checkpoint, tmp_path / "moved"
    old.rename(new)
    stream.checkpoint = new
    feed(stream, 2)
    with pytest.raises(StoreOfOtherCheckpointError, match=r"cowstate attach .*moved --store"):
        stream.run()

    (planned,) = report(stream, capsys)["operators"]
    assert (planned["epoch"], planned["needed"], planned["attached_as"]) == (1, True, None)
    assert planned["belongs_to"] == old.as_uri().replace("///", "/")
    with pytest.raises(StoreOfOtherCheckpointError):
        stream.run()

    (attached,) = report(stream, capsys, "--apply")["operators"]
    assert attached["attached_as"]["run_id"].startswith("attached-")
    stream.run()
    assert stream.totals() == stream.stored() == totals_of(stream.fed)
    (again,) = report(stream, capsys, "--apply")["operators"]
    assert (again["epoch"], again["needed"], again["attached_as"]) == (2, False, None)

    shutil.copytree(new, old)
    stream.checkpoint = old
    feed(stream, 3)
    with pytest.raises(StoreOfOtherCheckpointError, match=r"belongs to .*moved"):
        stream.run()
    stream.checkpoint = new
    stream.run()
    assert stream.totals() == stream.stored() == totals_of(stream.fed)


def test_what_cannot_be_attached_is_refused(
    stream: Stream,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refusal(checkpoint: Path, store: Path, *options: str) -> str:
        arguments = ["attach", str(checkpoint), "--store", str(store), "--apply", *options]
        assert main(arguments) == 2
        return capsys.readouterr().err

    root = stream.store().parent.parent
    before = sorted(path.name for path in (stream.store() / "begun").iterdir())
    assert "is not the checkpoint of a query" in refusal(tmp_path / "nowhere", root)
    assert "spark.cowstate.store with --store" in refusal(stream.checkpoint, tmp_path / "empty")
    told = refusal(stream.checkpoint, root, "--run", "7")
    assert "there is no run 7" in told
    assert "run 1 (" in told
    with monkeypatch.context() as patched:

        def while_it_commits(_store: object, _runs: object) -> None:
            shutil.copy(stream.checkpoint / "commits" / "1", stream.checkpoint / "commits" / "2")

        patched.setattr(attach_run, "owner_location", while_it_commits)
        assert "the query is running" in refusal(stream.checkpoint, root)
    assert sorted(path.name for path in (stream.store() / "begun").iterdir()) == before


def test_a_query_without_a_committed_batch_begins_with_nothing(
    stream: Stream, capsys: pytest.CaptureFixture[str]
) -> None:
    root = stream.store().parent.parent
    before = sorted(path.name for path in (stream.store() / "begun").iterdir())
    shutil.rmtree(stream.checkpoint / "commits")
    assert main(["attach", str(stream.checkpoint), "--store", str(root)]) == 0
    told = capsys.readouterr().out
    assert "Spark has committed no batch" in told
    assert "begins with nothing" in told
    assert sorted(path.name for path in (stream.store() / "begun").iterdir()) == before
