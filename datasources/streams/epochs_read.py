"""Whether the epochs of an operator that a stream has handed out still count.

An offset has the number of the run that wrote the epoch up to which the stream has read. The live
timeline may have left this run's epoch behind (see run_lineage):

    another run wrote the epoch anew from the same base, with the same changes    go on
    the epoch was not written anew yet                                            wait for it
    anything else                                                                 an error
"""

from __future__ import annotations

from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.operators.operator_layout import EpochDirectory
from datasources.errors import EpochsTakenBackError
from datasources.streams.stream_offset import Offset


def check_epochs_read(history: OperatorHistory, read: Offset) -> None:
    """Raises EpochsTakenBackError if epochs up to the offset `read` do not count any more."""
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
