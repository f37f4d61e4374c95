"""Description of a subtask's running epoch, for another attempt that waits for the subtask."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from spark_state.processor.epoch_steps import RunningCall
from spark_state.subtasks.epoch_request import EpochRequest
from spark_state.subtasks.subtask_backends import Backend
from spark_state.subtasks.unnamed_files import UnnamedFiles


@dataclass(slots=True)
class RunningEpoch:
    """A running attempt, from the moment when the attempt's thread begins to work.

    `processor`: name of the processor's class, set when the processor begins; `backend`: the keyed
    states, set when the processor begins; `call`: the running method of the processor; `unnamed`:
    the attempt's files, set when the processor has ended; `is_durable`: True when the barrier is
    published.
    """

    request: EpochRequest
    processor: str = ""
    backend: Backend | None = None
    call: RunningCall = field(default_factory=RunningCall)
    unnamed: UnnamedFiles | None = None
    is_durable: bool = False
    _begun: float = field(default_factory=time.monotonic)

    def described(self) -> str:
        """Describe the call that has not returned, with the key."""
        task, method = self.request.task, self.call.method
        since = f"for {time.monotonic() - self._begun:.0f} s"
        attempt = f"attempt {task.attempt} of epoch {task.epoch} has been running {since}"
        if method is None:
            # RocksDB gets the changes of an epoch after the epoch's barrier, so nothing may end
            # this wait.
            return f"{attempt}; it waits for its store or the local disk, or restores state"
        key = ""
        if self.call.has_key and self.backend is not None:
            key = f" with key {self.backend.current_key!r}"
        return f"{attempt}; {self.processor}.{method}{key} does not return"
