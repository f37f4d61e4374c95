"""The epoch that a subtask runs, described for an attempt that waits for it."""

from __future__ import annotations

import gc
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from types import FrameType

from spark_state.host.epoch_request import EpochRequest
from spark_state.host.subtask_backends import Backend
from spark_state.processor.running_call import RunningCall


@dataclass(slots=True)
class RunningEpoch:
    """An attempt, from the moment at which its thread begins to work. `processor`: the name of the
    processor's class, and `backend`: its states, once they are there; `call`: the method that
    runs."""

    request: EpochRequest
    processor: str = ""
    backend: Backend | None = None
    call: RunningCall = field(default_factory=RunningCall)
    _thread: int = field(default_factory=threading.get_ident)
    _begun: float = field(default_factory=time.monotonic)

    def described(self) -> str:
        """The call that has not returned, its key, and the line of Python where its thread is."""
        task, method = self.request.task, self.call.method
        since = f"for {time.monotonic() - self._begun:.0f} s"
        attempt = f"attempt {task.attempt} of epoch {task.epoch} has been running {since}"
        if method is None:
            # RocksDB gets the changes of an epoch behind its barrier: nothing may end that wait.
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
    """The current frame of each thread. Python before 3.11.9 holds a lock of the interpreter while
    it collects the frames. A garbage collection in that time lets other threads run, and a thread
    that begins or ends waits for the lock for ever, and the process with it (CPython's issue
    106883)."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if was_enabled:
            gc.enable()
