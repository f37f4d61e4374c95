"""The metrics of a subtask for one epoch: rows, entries, bytes and times. A part of the barrier."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """The report of a subtask about one epoch.

    `rows_in`, `rows_out`: rows into and out of the processor. `changed`, `removed`: entries put and
    deleted by the changelog. `entries`: entries of the state after the epoch. `written_bytes`:
    bytes of the state files named by the epoch's barrier and not by the preceding barrier.
    `late_rows`: rows that did not reach the processor because the watermark had passed the rows;
    None if the operator drops no rows.

    Times in milliseconds. `restore_ms`: find the epoch's base and bring the state to the base.
    `process_ms`: run the processor. `write_ms`: write files, and wait for a part of a snapshot.
    `last_publish_ms`: publish the barrier of the preceding epoch, and complete the preceding epoch;
    a barrier cannot report the time of its own publication. None in the first epoch of a host.

    `states_deleted`: states deleted by `init` with deleteIfExists. A deleted state is counted if an
    earlier epoch had the state, or if `init` had declared it; no other field counts the entries of
    a deleted state.

    `failed_snapshots`: number of snapshots in a row, up to this epoch, that failed: the files could
    not be written, or took so long that no barrier may name the files any more. `timers`: number of
    timers registered after the epoch. `memory_bytes`: estimated memory of the entries in bytes; see
    heap_memory. `timers` and `memory_bytes` are None in reports of
    `cowstate adopt`. `memory_bytes` is also None for backends that do not know their memory.
    """

    rows_in: int
    rows_out: int
    changed: int
    removed: int
    entries: int
    written_bytes: int
    restore_ms: int
    process_ms: int
    write_ms: int
    states_deleted: int
    failed_snapshots: int
    late_rows: int | None = None
    timers: int | None = None
    memory_bytes: int | None = None
    last_publish_ms: int | None = None
