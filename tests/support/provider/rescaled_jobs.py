"""Stateful queries that get other numbers of partitions while they are stopped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cowstate.cli.command_line import main
from tests.support.provider.provider_jobs import Options, ProviderRun, configured, run_together

StateRows = dict[int, list[str]]
"""Rows as text by the place of their store, wherever their partition is."""


def rescale(checkpoint: Path, partitions: int, *arguments: str) -> int:
    """The exit code of the command."""
    return main(["rescale", str(checkpoint), "--partitions", str(partitions), *arguments])


def rescaled(checkpoint: Path, partitions: int) -> None:
    assert rescale(checkpoint, partitions, "--apply", "--force") == 0


def revert(checkpoint: Path) -> None:
    assert main(["rescale", str(checkpoint), "--revert", "--force"]) == 0


def rows_of_state(run: ProviderRun, batch: int) -> StateRows:
    """What Spark's reader finds in each store after a batch."""
    rows: StateRows = {place: [] for place in range(len(run.job.stores))}
    with configured(run.spark, run.settings):
        for entry in run.states([batch])[batch]:
            rows[entry.store].append(entry.content)
    return {place: sorted(contents) for place, contents in rows.items()}


def partitions_of_state(run: ProviderRun, store: Options) -> set[int]:
    """The partitions that have rows after the last batch."""
    rows = run.read_state({"batchId": str(run.batches[-1]), **store}).select("partition_id")
    return {row.partition_id for row in rows.distinct().collect()}


@dataclass
class RescaledRun:
    """A job on cowstate, which is rescaled, and the same job on another provider, which is not."""

    rescaled: ProviderRun
    expected: ProviderRun
    left: list[Path]
    right: list[Path]
    done: int = 0

    def go_on(self, batches: int) -> None:
        """Both process so many more files of each side."""
        part = slice(self.done, self.done + batches)
        self.done += batches
        run_together([self.rescaled, self.expected], self.left[part], self.right[part])

    def assert_agrees(self) -> None:
        """All rows that were put out, and what the stores hold in the end."""
        assert {**self.rescaled.outputs} == {**self.expected.outputs}
        last = self.expected.batches[-1]
        assert rows_of_state(self.rescaled, last) == rows_of_state(self.expected, last)
