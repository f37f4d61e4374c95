"""Reports for barriers that no engine wrote."""

from __future__ import annotations

from checkpoint_store.epochs.epoch_report import EpochReport

NOTHING_DONE = EpochReport(
    rows_in=0,
    rows_out=0,
    changed=0,
    removed=0,
    entries=0,
    written_bytes=0,
    restore_ms=0,
    process_ms=0,
    write_ms=0,
    states_deleted=0,
    failed_snapshots=0,
)
"""The report of an epoch without rows, state and work."""
