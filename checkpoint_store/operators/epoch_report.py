"""What an epoch of a subtask did, as its barrier says it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EpochReport:
    """`rows_in`, `rows_out`: rows that the processor got and gave. `changed`, `removed`: entries
    that the changelog puts and deletes. `entries`: how many the state has afterwards.
    `written_bytes`: bytes of the state files that the epoch's barrier names and the one before did
    not. `late_rows`: rows that did not reach the processor because the watermark had passed them;
    None if the operator drops no rows.

    Milliseconds: `restore_ms` to find the epoch's base and bring the state there, `process_ms` in
    the processor, `write_ms` to write files, and to wait for a part of a snapshot; `publish_ms` to
    publish the barrier and what comes after it. The barrier itself does not have that;
    `last_publish_ms` is what it was in the epoch before, None in the first one of a host.

    `timers`: how many are registered afterwards. `memory_bytes`: about what the entries take in
    memory, an estimate; see heap_memory. `states_deleted`: states that `init` deleted with
    deleteIfExists. A state counts if an earlier epoch had it, or if `init` had declared it; what it
    held is in no other number. `failed_snapshots`: how many snapshots in a row could not be
    written or named, until this epoch. These four are None if an earlier release wrote the barrier.
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
    publish_ms: int | None = None
    late_rows: int | None = None
    timers: int | None = None
    memory_bytes: int | None = None
    last_publish_ms: int | None = None
    states_deleted: int | None = None
    failed_snapshots: int | None = None
