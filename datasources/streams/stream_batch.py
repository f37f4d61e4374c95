"""Plans, on the driver, the reads of a stream's batch.

offsets         start and end of the batch
stretches       key groups with their first and last version; see channel_positions
runs            changes of a stretch that can be read, without a gap; see VersionRun
parts           ranges of key groups of a run, spread over the tasks; see Part
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from checkpoint_store.epochs.completed_checkpoint import CompletedCheckpoint
from checkpoint_store.epochs.operator_layout import EpochDirectory
from checkpoint_store.errors import VersionNotRetainedError
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.states.state_history import StateHistory
from datasources.options.table_options import StreamOptions
from datasources.options.version_choice import version_at
from datasources.reads.key_group_partitions import (
    key_group_ranges,
    partition_count,
    ranges_to_read,
)
from datasources.streams.channel_history import Ahead, ChannelHistory, barriers_ahead
from datasources.streams.channel_positions import (
    ChannelPosition,
    Positions,
    StreamProgress,
    Stretch,
    holds,
    still_counts,
    stretches,
    was_begun_again,
)
from datasources.streams.lost_changes import ChangesLostError
from datasources.streams.readable_changes import ReadableChanges, nearest_versions, readable_changes
from datasources.streams.stream_offset import Offset, positions_in

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Part:
    """Read of some key groups: the changes after version `start` (None: all changes) up to version
    `end`. If `is_snapshot`, the state at version `end` is read instead. `partitions`: the number of
    the query's partitions when the key groups were chosen; None if the number never changes.
    `ahead`: the barriers of epochs that are not whole; see ChannelHistory."""

    key_groups: KeyGroupRange
    start: int | None
    end: int
    is_snapshot: bool
    partitions: int | None = None
    ahead: Ahead = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A batch of a stream that reads `history` from offset `start` to offset `end`."""

    options: StreamOptions
    history: StateHistory
    start: Offset
    end: Offset

    def parts(self) -> list[Part]:
        """The parts to read. If changes are gone, raises ChangesLostError, or, if failOnDataLoss is
        false, logs the lost changes."""
        versions = self.history.versions()
        if self.start["after"] == "snapshot":
            return self._parts_of_state(versions)
        if self.start["after"] == "version" and self.options.fail_on_data_loss:
            check_retained(self.history, versions, self.start["version"])
        ahead = self._ahead(versions)
        positions = positions_in(self.end)
        wanted = self.stretches({subtask: positions[subtask] for subtask in ahead})
        changes = self._changes(wanted, ahead, versions)
        whole = {
            run for stretch in wanted if stretch.channel is None for run in changes[stretch].runs
        }
        most, count = self.history.max_parallelism, self.options.num_partitions
        cuts = {
            run: key_group_ranges(most, count or partition_count(run.size_bytes)) for run in whole
        }
        # Changes from the beginning contain a whole state, and a rescale moves the rows of a state.
        partitions = {
            run: self.history.at(run.end).partitions for run in whole if run.start is None
        }
        parts: list[Part] = []
        for stretch in wanted:
            barriers = {} if stretch.channel is None else ahead[stretch.channel]
            for run in changes[stretch].runs:
                for cut in cuts[run] if stretch.channel is None else [stretch.key_groups]:
                    common = stretch.key_groups.intersection(cut)
                    if common is not None:
                        then = partitions.get(run)
                        parts.append(Part(common, run.start, run.end, False, then, barriers))
        return parts

    def stretches(self, ahead: Positions) -> list[Stretch]:
        """The stretches to read between the offsets, see Stretch. `ahead`: by subtask, the
        positions of the channels that the batch reads beyond the version of offset `end`."""
        start, end = self.start, self.end
        last = StreamProgress(end["version"] if end["version"] >= 0 else None, ahead)
        # Most positions have the same epoch.
        checkpoint_at = cache(self._checkpoint_at)
        counted = {
            subtask: position
            for subtask, position in positions_in(start).items()
            if still_counts(position, last, checkpoint_at)
        }
        first = StreamProgress(None if start["after"] == "nothing" else start["version"], counted)
        return stretches(first, last, self.history.max_parallelism)

    def _parts_of_state(self, versions: Sequence[int]) -> list[Part]:
        """The parts of the state at the version where the batch ends. Raises ChangesLostError if
        this version is gone.

        If failOnDataLoss is false, the next later version is read instead. If there is no later
        version, the last earlier version is read. Only a history without any version raises
        ChangesLostError.

        The next batch begins after the version that is gone. For example, version 5 is gone, and
        the state at version 6 is read instead. Then the next batch begins with the changes of
        version 6, although the state that was read contains these changes:

        - Without preimages, the changes of version 6 come again: as update_postimages of the same
          rows, and as deletes of keys that the state does not have.
        - With preimages, the changes of version 6 are left out, because the preimages would come
          from the state at version 5. If version 6 was built on version 4, the changes come again.
        - The same holds without preimages if the effect of a change depends on the state before
          (`needs_state_before`).
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
        most, count = self.history.max_parallelism, self.options.num_partitions
        ranges = ranges_to_read(state.state, most, count)
        return [Part(key_groups, None, version, True, state.partitions) for key_groups in ranges]

    def _ahead(self, versions: Sequence[int]) -> dict[int, Ahead]:
        """The barriers of the channels that are ahead at the end, by subtask.

        The barrier of a channel may be gone, for example after retention:

        - If the epoch is whole and its manifest has the barrier, the channel's entry is empty, and
          the channel is read from whole versions.
        - Otherwise the channel has no entry. If the epoch was run again, a later batch reads the
          channel's changes.
        """
        positions = positions_in(self.end)
        if not positions:
            return {}
        operator = self._operator()
        ahead = barriers_ahead(operator, positions, self.end["version"])
        gone = [position for subtask, position in positions.items() if subtask not in ahead]
        for position in gone:
            if self._is_in_whole_epoch(position, versions, operator.timeline):
                ahead[position.subtask] = {}
        return ahead

    def _is_in_whole_epoch(
        self,
        position: ChannelPosition,
        versions: Sequence[int],
        timeline: Sequence[EpochDirectory],
    ) -> bool:
        """True if the manifest of the position's epoch has the position's barrier. Then the whole
        epoch has the channel's changes. `position`: a position whose barrier object is gone. Raises
        ChangesLostError if the changes are lost, unless failOnDataLoss is false."""
        url, epoch = self.history.url, position.epoch
        whole = self._checkpoint_at(epoch) if epoch in versions else None
        is_whole = whole is not None and holds(whole, position)
        if is_whole:
            instead = "its changes are read from the whole epoch"
        elif whole is not None or was_begun_again(position, timeline):
            instead = "the epoch was run again, and a later batch has its changes"
        else:
            instead = "its changes are passed over, unless the epoch is run again"
            if self.options.fail_on_data_loss:
                raise _lost_barrier(url, position, versions)
        message = "%s: the barrier of subtask %d in epoch %d is gone; %s"
        _log.warning(message, url, position.subtask, epoch, instead)
        return is_whole

    def _changes(
        self, wanted: Iterable[Stretch], ahead: Mapping[int, Ahead], versions: Sequence[int]
    ) -> dict[Stretch, ReadableChanges]:
        """The readable changes of each stretch, in a history with these `versions`. Logs gaps, or
        raises ChangesLostError."""
        preimages = self.options.preimages

        # Most stretches differ only by their key groups.
        @cache
        def readable(start: int | None, end: int, channel: int | None) -> ReadableChanges:
            history, there = self.history, versions
            if channel is not None and ahead[channel]:
                history = ChannelHistory(self._operator(), ahead[channel])
                there = history.versions_with(versions)
            changes = readable_changes(history, there, start, end, preimages=preimages)
            if changes.gaps and self.options.fail_on_data_loss:
                raise _lost(history, changes.gaps[0].missing)
            return changes

        changes = {each: readable(each.start, each.end, each.channel) for each in wanted}
        # Stretches of several channels mostly have the same gaps.
        for gap in dict.fromkeys(gap for each in changes.values() for gap in each.gaps):
            _log.warning("%s: the stream passes over %s", self.history.url, gap)
        return changes

    def _operator(self) -> OperatorHistory:
        assert isinstance(self.history, OperatorHistory), "a table has no channels"
        return self.history

    def _checkpoint_at(self, version: int) -> CompletedCheckpoint | None:
        try:
            return self._operator().checkpoint_at(version)
        except VersionNotRetainedError:
            return None


def _tell_other_state(url: str, planned: int, version: int) -> None:
    if version > planned:
        lost = f"with the changes of versions {planned} to {version} in it"
    else:
        lost = f"and the changes after version {version} up to version {planned} are lost"
    message = "%s: the state at version %d is gone; the state at version %d is read instead, %s"
    _log.warning(message, url, planned, version, lost)


def _lost(history: StateHistory, missing: int) -> ChangesLostError:
    # The version may have been deleted after the listing.
    retained = [version for version in history.versions() if version != missing]
    return ChangesLostError.of(history.absent(missing, retained), was_read=False)


def _lost_barrier(url: str, position: ChannelPosition, versions: Sequence[int]) -> ChangesLostError:
    barrier = (
        f"the barrier of subtask {position.subtask} in epoch {position.epoch} (run "
        f"{position.run}, attempt {position.attempt})"
    )
    oldest, newest = min(versions, default=None), max(versions, default=None)
    return ChangesLostError(url, position.epoch, oldest, newest, barrier, was_read=False)


def check_retained(history: StateHistory, versions: Sequence[int], version: int) -> None:
    """Check that `versions` has the version up to which a stream has read. Raises
    ChangesLostError."""
    if version not in versions:
        raise ChangesLostError.of(history.absent(version, versions), was_read=True)
