"""The subtasks of an operator as channels that deliver changes and barriers of each epoch.

A barrier object names the changes of its subtask, so the input gate gets each barrier object both
as a record and as a barrier. The gate says which epoch is aligned, and lets some records through
before the epoch is aligned.

    barriers_after      lists the barriers of the live timeline in the store
    OperatorChannels    finds the aligned epoch, and the channels that are ahead; pure

Only epochs of the live timeline have channels (see run_lineage): the barriers of a stray run are no
input. If channels have followed a run that proved to be a stray, the stream opens new channels.

If a later attempt publishes a barrier again, the gate gets the barrier as a record only, because
the epoch has counted the subtask's barrier already. A new run of the operator, maybe with another
parallelism, has new channels. The channels of the older run have ended. The older run's waiting
records are dropped, because the new run repeats the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, takewhile

from checkpoint_store.epochs.operator_layout import BarrierName, EpochDirectory
from checkpoint_store.epochs.published_objects import PublishedObjects
from spark_state.barriers.channel_event import ChannelBarrier, ChannelEvent, ChannelRecord
from spark_state.barriers.epoch_outcome import EpochAligned
from spark_state.barriers.input_gate import (
    CheckpointingMode,
    GateOutput,
    InputGate,
    open_input_gate,
)


def barriers_after(
    published: PublishedObjects, timeline: Sequence[EpochDirectory], aligned: EpochDirectory | None
) -> list[BarrierName]:
    """The barriers of the epochs after `aligned` on the live `timeline` (newest epoch first).

    Lists each epoch in the store, the newest epoch first. A subtask publishes its epochs in order.
    So once a listing shows a subtask's barrier, all later listings show the subtask's barriers of
    earlier epochs.
    """
    later = takewhile(lambda directory: directory != aligned, timeline)
    return [name for directory in later for name in published.barriers(directory)]


class OperatorChannels:
    """Progress of an operator's channels. `aligned`: the newest aligned epoch, None if there is
    none."""

    def __init__(self, mode: CheckpointingMode, aligned: EpochDirectory | None) -> None:
        self.aligned = aligned
        self._mode = mode
        self._writer = (-1, -1)
        self._gate: InputGate[BarrierName] | None = None
        self._arrived: set[BarrierName] = set()
        self._ahead: dict[int, BarrierName] = {}

    def arrive(self, barriers: Iterable[BarrierName]) -> None:
        """Add the new barriers of `barriers`; barriers that an earlier call has added are skipped.
        Raises CorruptStreamError if the epochs of a subtask arrive out of order, such as epoch 5
        after epoch 6."""
        new = [name for name in barriers if self._is_new(name)]
        new.sort(key=lambda name: (_writer(name), name.directory.epoch, name.subtask, str(name)))
        for writer, names in groupby(new, _writer):
            if writer > self._writer:
                self._open(writer)
            assert self._gate is not None, "no gate is open"
            for output in self._gate.process(self._events(names)):
                self._take(output)
        self._arrived = {name for name in self._arrived if self._is_pending(name)}

    def are_on(self, timeline: Sequence[EpochDirectory]) -> bool:
        """True if the live timeline still has all epochs that these channels have followed."""
        followed = {name.directory for name in self._arrived}
        if self.aligned is not None:
            followed.add(self.aligned)
        return followed <= {*timeline}

    def ahead(self) -> dict[int, BarrierName]:
        """By subtask, the newest barrier that the gate has let through, among epochs that are not
        aligned."""
        return dict(self._ahead)

    def _is_new(self, name: BarrierName) -> bool:
        is_of_old_run = _writer(name) < self._writer
        return self._is_pending(name) and name not in self._arrived and not is_of_old_run

    def _is_pending(self, name: BarrierName) -> bool:
        return self.aligned is None or _lineage(name.directory) > _lineage(self.aligned)

    def _open(self, writer: tuple[int, int]) -> None:
        self._writer = writer
        self._arrived.clear()
        self._ahead.clear()
        self._gate = open_input_gate(self._mode, writer[1])

    def _events(self, names: Iterable[BarrierName]) -> Iterator[ChannelEvent[BarrierName]]:
        delivered = {(name.subtask, name.directory.epoch) for name in self._arrived}
        for name in names:
            barrier = ChannelBarrier(name.subtask, name.directory.epoch)
            self._arrived.add(name)
            yield ChannelRecord(name.subtask, name)
            if (barrier.channel, barrier.epoch) not in delivered:
                delivered.add((barrier.channel, barrier.epoch))
                yield barrier

    def _take(self, output: GateOutput[BarrierName]) -> None:
        if isinstance(output, EpochAligned):
            self.aligned = EpochDirectory(output.epoch, self._writer[0])
            self._ahead = {
                subtask: name for subtask, name in self._ahead.items() if self._is_pending(name)
            }
        elif isinstance(output, ChannelRecord):
            name = output.value
            furthest = self._ahead.get(name.subtask, name)
            if self._is_pending(name):
                self._ahead[name.subtask] = max(furthest, name, key=str)


def _writer(name: BarrierName) -> tuple[int, int]:
    """The writer of a barrier: the number of the run, and the run's parallelism. A gate aligns only
    barriers of one writer."""
    return name.directory.run_number, name.parallelism


def _lineage(directory: EpochDirectory) -> tuple[int, int]:
    return directory.run_number, directory.epoch
