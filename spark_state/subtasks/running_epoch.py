"""Describes the running epoch of a subtask, for an attempt that waits for the subtask."""

from __future__ import annotations

import gc
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from types import FrameType

from spark_state.processor.epoch_steps import RunningCall
from spark_state.subtasks.epoch_request import EpochRequest
from spark_state.subtasks.subtask_backends import Backend
from spark_state.subtasks.unnamed_files import UnnamedFiles


@dataclass(slots=True)
class RunningEpoch:
    """A running attempt, from the moment when the attempt's thread begins to work.

    `processor`: name of the processor's class, and `backend`: the keyed states, both set when the
    processor begins; `call`: the running method of the processor; `unnamed`: the attempt's files,
    set when the processor has ended.
    """

    request: EpochRequest
    processor: str = ""
    backend: Backend | None = None
    call: RunningCall = field(default_factory=RunningCall)
    unnamed: UnnamedFiles | None = None
    _thread: int = field(default_factory=threading.get_ident)
    _begun: float = field(default_factory=time.monotonic)

    def described(self) -> str:
        """Describe the call that has not returned: key, and current line of Python in the
        thread."""
        task, method = self.request.task, self.call.method
        since = f"for {time.monotonic() - self._begun:.0f} s"
        attempt = f"attempt {task.attempt} of epoch {task.epoch} has been running {since}"
        if method is None:
            # RocksDB gets the changes of an epoch after the epoch's barrier, so nothing may end
            # this wait.
            delayed = self.request.spec.backend.kind == "rocksdb"
            slow = ", or RocksDB delays its writes because the disk is slow" if delayed else ""
            return f"{attempt}; it waits for its store or restores state{slow}{self._place()}"
        key = ""
        if self.call.has_key and self.backend is not None:
            key = f" with key {self.backend.current_key!r}"
        return f"{attempt}; {self.processor}.{method}{key} does not return{self._place()}"

    def _place(self) -> str:
        frame = _frames_of_threads().get(self._thread)
        if frame is None:
            return ""
        last = traceback.extract_stack(frame, limit=1)[-1]
        return f" (at {last.filename}:{last.lineno} in {last.name})"


def _frames_of_threads() -> dict[int, FrameType]:
    """Return the current frame of each thread, with garbage collection off.

    Python before 3.11.9 holds a lock of the interpreter while it collects the frames. A garbage
    collection in that time lets other threads run. If such a thread begins or ends, the thread
    waits for the lock for ever, and so does the whole process (CPython's issue 106883).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if was_enabled:
            gc.enable()
