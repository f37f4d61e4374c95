"""Roll back an operator to an earlier epoch, as a query's driver does before its first batch.

See take_back_in_store: the user has deleted the last batches from the checkpoint's logs.
"""

from __future__ import annotations

from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.operators.attachment import attach, stored_runs
from checkpoint_store.runs.attachment_plan import attachments_of
from checkpoint_store.runs.checkpoint_location import digest_of

CHECKPOINT = "file:/checkpoint"


def take_back(store: ObjectStore, epoch: int) -> None:
    """Roll back the operator after all runs that have begun, so that `epoch` is the next epoch."""
    runs, checkpoint = stored_runs(store), digest_of(CHECKPOINT)
    (attachment,) = attachments_of([runs], checkpoint, epoch - 1, is_under_way=False)
    attach(store, attachment, f"back-{len(runs.begun)}", CHECKPOINT)
