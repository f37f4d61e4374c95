"""What a batch of a stream reads: the plan that is made on the driver.

offsets         start and end of the batch
stretches       by key groups, from which version to which; see channel_positions
runs            of each stretch, what can be read of it; see readable_changes
parts           of each run, ranges of key groups; tasks are dealt them out
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from checkpoint_store.errors import VersionNotRetainedError
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.operators.completed_checkpoint import CompletedCheckpoint
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.operators.operator_layout import EpochDirectory
from checkpoint_store.states.state_history import StateHistory
from datasources.channel_history import Ahead, ChannelHistory, barriers_ahead
from datasources.channel_positions import (
    ChannelPosition,
    Positions,
    Reached,
    Stretch,
    holds,
    still_counts,
    stretches,
    was_begun_again,
)
from datasources.key_group_partitions import key_group_ranges, partition_count
from datasources.lost_changes import ChangesLostError
from datasources.readable_changes import ReadableChanges, nearest_versions, readable_changes
from datasources.source_state import Part
from datasources.stream_offset import Offset, positions_in
from datasources.table_options import StreamOptions
from datasources.version_choice import version_at

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """What is read of `history` from offset `start` to offset `end`."""

    options: StreamOptions
    history: StateHistory
    start: Offset
    end: Offset

    def parts(self) -> list[Part]:
        """What is to be read. Raises ChangesLostError if some of it is gone, unless failOnDataLoss
        is false: then the log says what."""
        versions = self.history.versions()
        if self.start["after"] == "snapshot":
            return self._parts_of_state(versions)
        if self.start["after"] == "version" and self.options.fail_on_data_loss:
            check_retained(self.history, versions, self.start["version"])
        ahead = self._ahead(versions)
        positions = positions_in(self.end)
        wanted = self.stretches({subtask: positions[subtask] for subtask in ahead})
        changes = self._changes(wanted, ahead, versions)
        self._tell_lost(changes.values())
        whole = {
            run for stretch in wanted if stretch.channel is None for run in changes[stretch].runs
        }
        cuts = {run: self._ranges(run.size_bytes) for run in whole}
        parts: list[Part] = []
        for stretch in wanted:
            barriers = {} if stretch.channel is None else ahead[stretch.channel]
            for run in changes[stretch].runs:
                for cut in cuts[run] if stretch.channel is None else [stretch.key_groups]:
                    common = stretch.key_groups.intersection(cut)
                    if common is not None:
                        parts.append(Part(common, run.start, run.end, False, barriers))
        return parts

    def stretches(self, ahead: Positions) -> list[Stretch]:
        """What lies between the offsets, by key groups, when the channels in `ahead` are read
        further than the whole versions."""
        start, end = self.start, self.end
        last = Reached(end["version"] if end["version"] >= 0 else None, ahead)
        # Positions are mostly of one epoch.
        checkpoint_at = cache(self._checkpoint_at)
        counted = {
            subtask: position
            for subtask, position in positions_in(start).items()
            if still_counts(position, last, checkpoint_at)
        }
        first = Reached(None if start["after"] == "nothing" else start["version"], counted)
        return stretches(first, last, self.history.max_parallelism)

    def _parts_of_state(self, versions: Sequence[int]) -> list[Part]:
        """The state at the end. Without failOnDataLoss, a version that is gone is replaced by the
        next one there is, which has its changes and later ones, or else by the last one before.

        The next batch goes on after the end all the same, and the changes that a later state has
        may come again. Without preimages they are update_postimages of the same rows, and deletes
        of keys that the state does not have. With preimages they are passed over, because what was
        before them is gone. Only an epoch that was built upon an older one than the end has its
        inserts and updates once more; their rows are the same.
        """
        planned: int = self.end["version"]
        lenient = not self.options.fail_on_data_loss
        candidates = nearest_versions(versions, planned) if lenient else [planned]
        states = (version_at(self.history, candidate) for candidate in candidates)
        state = next((state for state in states if state is not None), None)
        if state is None:
            raise _lost(self.history, planned)
        version = state.info.version
        if version != planned:
            _tell_other_state(self.history.url, planned, version)
        size_bytes = sum({file.name: file.length for file in state.state}.values())
        return [Part(key_groups, None, version, True) for key_groups in self._ranges(size_bytes)]

    def _ahead(self, versions: Sequence[int]) -> dict[int, Ahead]:
        """The barriers of the channels that are ahead at the end; none of a channel that is read
        from whole versions, because its barrier is gone and the whole epoch has it. A channel that
        cannot be read that far is left out: the next batch reads its changes if the epoch was run
        again."""
        positions = positions_in(self.end)
        if not positions:
            return {}
        operator = self._operator()
        ahead = barriers_ahead(operator, positions, self.end["version"])
        gone = [position for subtask, position in positions.items() if subtask not in ahead]
        directories = operator.published.epoch_directories() if gone else []
        for position in gone:
            if self._is_in_whole_epoch(position, versions, directories):
                ahead[position.subtask] = {}
        return ahead

    def _is_in_whole_epoch(
        self,
        position: ChannelPosition,
        versions: Sequence[int],
        directories: Sequence[EpochDirectory],
    ) -> bool:
        """Whether the whole epoch has the barrier of a channel, which itself is gone. Raises
        ChangesLostError if the changes are gone with it, unless failOnDataLoss is false."""
        url, epoch = self.history.url, position.epoch
        whole = self._checkpoint_at(epoch) if epoch in versions else None
        is_whole = whole is not None and holds(whole, position)
        if is_whole:
            instead = "its changes are read from the whole epoch"
        elif whole is not None or was_begun_again(position, directories):
            instead = "the epoch was run again, and a later batch has its changes"
        else:
            instead = "its changes are passed over unless the epoch is run again"
            if self.options.fail_on_data_loss:
                raise _lost_barrier(url, position, versions)
        message = "%s: the barrier of subtask %d in epoch %d is gone; %s"
        _log.warning(message, url, position.subtask, epoch, instead)
        return is_whole

    def _changes(
        self, wanted: Iterable[Stretch], ahead: Mapping[int, Ahead], versions: Sequence[int]
    ) -> dict[Stretch, ReadableChanges]:
        """What can be read of each stretch, of a history that has these `versions`."""

        # Stretches differ by their key groups, and mostly by nothing else.
        @cache
        def readable(start: int | None, end: int, channel: int | None) -> ReadableChanges:
            barriers = {} if channel is None else ahead[channel]
            return self._readable(start, end, barriers, versions)

        return {
            stretch: readable(stretch.start, stretch.end, stretch.channel) for stretch in wanted
        }

    def _readable(
        self, start: int | None, end: int, barriers: Ahead, versions: Sequence[int]
    ) -> ReadableChanges:
        history = self.history
        if barriers:
            history = ChannelHistory(self._operator(), barriers)
            versions = history.versions_with(versions)
        preimages = self.options.preimages
        changes = readable_changes(history, versions, start, end, preimages=preimages)
        if changes.gaps and self.options.fail_on_data_loss:
            raise _lost(history, changes.gaps[0].missing)
        return changes

    def _tell_lost(self, changes: Iterable[ReadableChanges]) -> None:
        # Stretches of several channels mostly have the same.
        for gap in dict.fromkeys(gap for readable in changes for gap in readable.gaps):
            _log.warning("%s: passed over are %s", self.history.url, gap)

    def _operator(self) -> OperatorHistory:
        assert isinstance(self.history, OperatorHistory), "a table has no channels"
        return self.history

    def _checkpoint_at(self, version: int) -> CompletedCheckpoint | None:
        try:
            return self._operator().checkpoint_at(version)
        except VersionNotRetainedError:
            return None

    def _ranges(self, size_bytes: int) -> list[KeyGroupRange]:
        """The key groups of each partition of a read of so many bytes."""
        count = self.options.num_partitions or partition_count(size_bytes)
        return key_group_ranges(self.history.max_parallelism, count)


def _tell_other_state(url: str, planned: int, version: int) -> None:
    if version > planned:
        lost = f"with the changes of versions {planned} to {version} in it"
    else:
        lost = f"and the changes after version {version} up to version {planned} are lost"
    message = "%s: the state at version %d is gone; that at version %d is read instead, %s"
    _log.warning(message, url, planned, version, lost)


def _lost(history: StateHistory, missing: int) -> ChangesLostError:
    # It may have been deleted since the versions were listed.
    there = [version for version in history.versions() if version != missing]
    return ChangesLostError.of(history.absent(missing, there), was_read=False)


def _lost_barrier(url: str, position: ChannelPosition, versions: Sequence[int]) -> ChangesLostError:
    barrier = (
        f"the barrier of subtask {position.subtask} in epoch {position.epoch} (run "
        f"{position.run}, attempt {position.attempt})"
    )
    oldest, newest = min(versions, default=None), max(versions, default=None)
    return ChangesLostError(url, position.epoch, oldest, newest, barrier, was_read=False)


def check_retained(history: StateHistory, versions: Sequence[int], version: int) -> None:
    """Raises ChangesLostError if a version up to which a stream has read is not among `versions`,
    those that there are."""
    if version not in versions:
        raise ChangesLostError.of(history.absent(version, versions), was_read=True)
