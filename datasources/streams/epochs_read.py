"""Checks that the epochs that a stream has handed out still count.

An offset has the number of the run that wrote the stream's last epoch. The live timeline may have
left this run's epoch behind (see run_lineage):

    another run wrote the epoch anew from the same base, with the same changes    go on
    no run has written the epoch anew yet                                         wait
    anything else                                                                 an error
"""

from __future__ import annotations

from checkpoint_store.epochs.operator_layout import EpochDirectory
from checkpoint_store.operators.operator_history import OperatorHistory
from datasources.errors import EpochsTakenBackError
from datasources.streams.stream_offset import Offset


def check_epochs_read(history: OperatorHistory, read: Offset) -> None:
    """Check that all epochs up to the offset `read` still count. Raises EpochsTakenBackError."""
    if "run" not in read:
        return
    last = EpochDirectory(read["version"], read["run"])
    versions = history.versions()
    left = history.left_behind(last)
    if not left:
        return
    if left == (last,):
        if not versions or versions[-1] < last.epoch:
            return
        if last.epoch in versions:
            run = history.checkpoint_at(last.epoch).run.number
            if history.are_same(EpochDirectory(last.epoch, run), last):
                return
    raise EpochsTakenBackError(history.url, left[0].epoch, last.epoch, last.run_number)
