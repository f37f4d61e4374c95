"""Divides spark.cowstate.maxMemoryMB, and measures the memory of state.

    limit  -  databases together (spark.cowstate.rocksdb.maxMemoryMB, with RocksDB only)
           =  rest:  4/8  state on the heap: the whole state, or with RocksDB the entries that
                          running epochs have read and changed
                     3/8  input of running epochs
                     1/8  output of running epochs

The shares do not depend on each other, so the size of a batch does not decide if a state fits. A
process serves several subtasks of several operators. Each operator compares the memory of all
operators with its own limit; the memory of an operator without a limit is not counted.

The memory of a state is estimated from some of its entries:

    very few entries    in each check
    512 entries         in every 16th check, or if the very few entries suggest clearly more memory
                        than the last measure, or more than the limit
    4,096 entries       before a check refuses the state, because an estimate from fewer entries is
                        uncertain if values have very different sizes
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from spark_state.errors import MemoryLimitError
from spark_state.keyed_state.keyed_state_backend import KeyedStateBackend
from spark_state.keyed_state.object_sizes import FEW
from spark_state.memory_share import MemoryShare, MemoryUse
from spark_state.subtasks.epoch_request import OperatorSpec

_STATE, _INPUT, _OUTPUT = 4, 3, 1
_EIGHTHS = 8
_CHECKS_BETWEEN = 16
_SOME, _MANY = 512, 4_096
_CLEARLY_MORE = 1.25
_CHECKS_OF_A_MEASURE = 16
_MIB = 1 << 20

Backend = KeyedStateBackend[Any]


@dataclass(frozen=True, slots=True)
class HostMemory:
    """The memory that a process holds for its subtasks: `state`, `input` and `output`.

    `let_go(fits)`: gives up state of ended queries until `fits()` is True or no ended query has
    state.
    """

    let_go: Callable[[Callable[[], bool]], None] = lambda fits: None
    state: MemoryUse = field(default_factory=MemoryUse)
    input: MemoryUse = field(default_factory=MemoryUse)
    output: MemoryUse = field(default_factory=MemoryUse)

    def share_of_input(self, spec: OperatorSpec) -> MemoryShare:
        """Return the share of the memory limit for the input of an epoch of the operator."""
        return _share(self.input, spec, _INPUT)

    def share_of_output(self, spec: OperatorSpec) -> MemoryShare:
        """Return the share of the memory limit for the output of an epoch of the operator."""
        return _share(self.output, spec, _OUTPUT)


class SubtaskMemory:
    """The memory of one subtask's state, counted in the process's `memory`. `bytes`: the bytes of
    the state by the last measure."""

    def __init__(self, memory: HostMemory) -> None:
        self._use = memory.state
        self._let_go = memory.let_go
        self.bytes = 0
        self._checks = 0

    def measure(self, backend: Backend, looked_at: int = _SOME) -> int:
        """Estimate the bytes of a backend from `looked_at` entries of each state. Note and return
        the estimate."""
        held = backend.bytes_on_heap(looked_at)
        self._use.add(held - self.bytes)
        self.bytes = held
        self._checks = 0
        return held

    def measure_again(self, backend: Backend) -> None:
        """Measure the backend again, if it seems to take clearly less than at the last measure."""
        if self.bytes and self.bytes > _CLEARLY_MORE * backend.bytes_on_heap(FEW):
            self.measure(backend)

    def release(self) -> None:
        """Forget the bytes: the backend is gone, or its operator has no limit any more."""
        self._use.add(-self.bytes)
        self.bytes = 0

    def check(self, backend: Backend, spec: OperatorSpec) -> None:
        """Raise MemoryLimitError if the state of all subtasks exceeds the operator's share."""
        most_bytes = _part(spec, _STATE)
        if most_bytes is None:
            self.release()
            return
        self._measure_if_due(backend, most_bytes)
        if self._use.bytes > most_bytes:
            backend.forget_what_was_read()
            self.measure(backend, _MANY)
            self._let_go(lambda: self._use.bytes <= most_bytes)
            if self._use.bytes > most_bytes:
                raise MemoryLimitError(self._message(spec, most_bytes))

    def _measure_if_due(self, backend: Backend, most_bytes: int) -> None:
        self._checks += 1
        held = backend.bytes_on_heap(FEW)
        if (
            held > _CLEARLY_MORE * self.bytes
            or self._use.bytes - self.bytes + held > most_bytes
            or self._checks >= _CHECKS_OF_A_MEASURE
        ):
            self.measure(backend)

    def now_and_then(self, backend: Backend, spec: OperatorSpec) -> Callable[[], None]:
        """Return a cheap form of `check` that may be called very often."""
        calls = 0

        def check() -> None:
            nonlocal calls
            calls += 1
            if not calls % _CHECKS_BETWEEN:
                self.check(backend, spec)

        return check

    def _message(self, spec: OperatorSpec, most_bytes: int) -> str:
        on_heap = spec.backend.kind == "heap"
        held = "the state" if on_heap else "what the epoch read and changed"
        limit_mb = spec.hosts.max_memory_mb
        way_out = _TO_ROCKSDB if on_heap else _SMALLER_EPOCHS
        return (
            f"{held} of a subtask of operator {spec.operator!r} takes about "
            f"{_mib(self.bytes)} MiB on the heap of its host, and that of all subtasks there "
            f"{_mib(self._use.bytes)} MiB; spark.cowstate.maxMemoryMB is {limit_mb}, of "
            f"which state may take {_mib(most_bytes)} MiB. The epoch was rolled back, and nothing "
            f"was written. {way_out}"
        )


_TO_ROCKSDB = (
    "Raise spark.cowstate.maxMemoryMB, or move the state to RocksDB, on the local disk: pip "
    "install 'cowstate[rocksdb]' on the driver and on all executors, set spark.cowstate.backend to "
    "rocksdb, and start the query again with the same checkpoint and store; it goes on with the "
    "state that it has"
)
_SMALLER_EPOCHS = (
    "Raise spark.cowstate.maxMemoryMB, or start the query again with more subtasks "
    "(spark.cowstate.parallelism) on more executors: Spark runs this batch again with the same "
    "rows. Later batches may have fewer rows (maxFilesPerTrigger, maxOffsetsPerTrigger and the "
    "like of the source)"
)


def _share(use: MemoryUse, spec: OperatorSpec, eighths: int) -> MemoryShare:
    most_bytes = _part(spec, eighths)
    return MemoryShare(MemoryUse() if most_bytes is None else use, most_bytes)


def _part(spec: OperatorSpec, eighths: int) -> int | None:
    limit_mb = spec.hosts.max_memory_mb
    if limit_mb is None:
        return None
    of_databases = spec.backend.memory_mb if spec.backend.kind == "rocksdb" else 0
    return (limit_mb - of_databases) * _MIB * eighths // _EIGHTHS


def _mib(size: int) -> str:
    return f"{size / _MIB:.1f}"
