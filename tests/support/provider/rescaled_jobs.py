"""Stateful queries whose number of partitions changes while the queries are stopped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cowstate.cli.command_line import main
from tests.support.provider.provider_jobs import Options, ProviderRun, configured, run_together

StateRows = dict[int, list[str]]
"""Rows as text, by the number of their store in the job. Partitions do not matter."""


def rescale(checkpoint: Path, partitions: int, *arguments: str) -> int:
    """Run the rescale command. Returns the exit code."""
    return main(["rescale", str(checkpoint), "--partitions", str(partitions), *arguments])


def rescaled(checkpoint: Path, partitions: int) -> None:
    assert rescale(checkpoint, partitions, "--apply", "--force") == 0


def revert(checkpoint: Path) -> None:
    assert main(["rescale", str(checkpoint), "--revert", "--force"]) == 0


def rows_of_state(run: ProviderRun, batch: int) -> StateRows:
    """The rows of each store after a batch, from Spark's reader."""
    rows: StateRows = {place: [] for place in range(len(run.job.stores))}
    with configured(run.spark, run.settings):
        for entry in run.states([batch])[batch]:
            rows[entry.store].append(entry.content)
    return {place: sorted(contents) for place, contents in rows.items()}


def partitions_of_state(run: ProviderRun, store: Options) -> set[int]:
    """The partitions with rows after the last batch."""
    rows = run.read_state({"batchId": str(run.batches[-1]), **store}).select("partition_id")
    return {row.partition_id for row in rows.distinct().collect()}


@dataclass
class RescaledRun:
    """A job on cowstate that is rescaled, and the same job on another provider that is not
    rescaled."""

    rescaled: ProviderRun
    expected: ProviderRun
    left: list[Path]
    right: list[Path]
    done: int = 0

    def go_on(self, batches: int) -> None:
        """Let both jobs process `batches` more files of each side."""
        part = slice(self.done, self.done + batches)
        self.done += batches
        run_together([self.rescaled, self.expected], self.left[part], self.right[part])

    def assert_agrees(self) -> None:
        """Compare all output rows, and the content of the stores after the last batch."""
        assert {**self.rescaled.outputs} == {**self.expected.outputs}
        last = self.expected.batches[-1]
        assert rows_of_state(self.rescaled, last) == rows_of_state(self.expected, last)
