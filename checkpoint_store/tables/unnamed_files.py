"""Files of rows that no version names yet, and their protection from the orphan sweep (I8).

    sweep     takes a file to be as old as the newest object of the file's batch
    writer    puts a sign of life into the batch's directory while a task, or the commit, takes long
    commit    checks, before naming files, that files old enough for a sweep are still there

A writer does not know the grace of the sweeping writer, so all times here are fractions of the
shortest grace that can be set.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from checkpoint_store.errors import CheckpointStoreError
from checkpoint_store.files.sign_of_life import SignsOfLife
from checkpoint_store.objects.repeated_call import repeated

LEAST_GRACE_SECONDS = 3_600
LOOK_AFTER_SECONDS = LEAST_GRACE_SECONDS / 2
_SIGN_SECONDS = LEAST_GRACE_SECONDS / 4


@contextmanager
def shown_alive(
    signs: SignsOfLife,
    every_seconds: float = _SIGN_SECONDS,
    *,
    until_commit: bool = False,
    at_once: bool = False,
) -> Iterator[None]:
    """Put signs of life for the time of a `with`, and delete the signs at the end. `until_commit`:
    if a sign was needed, a last sign stays, so that the files are young when the commit begins. The
    orphan sweep deletes the last sign. `at_once`: put the first sign at the beginning."""
    if at_once:
        with suppress(CheckpointStoreError):  # the commit looks for its files
            signs.put()
    with repeated(signs.put, every_seconds, "to show that a batch is being written"):
        yield
    if until_commit and signs.were_needed:
        with suppress(CheckpointStoreError):
            signs.put()
    else:
        signs.delete()
