"""Takes an operator back to an earlier epoch, as the driver of a query does before its first batch.

See take_back_in_store: the user has deleted the last batches from the checkpoint's logs.
"""

from __future__ import annotations

from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.operators.attachment import attach, stored_runs
from checkpoint_store.operators.attachment_plan import attachments_of
from checkpoint_store.operators.run_starts import digest_of

CHECKPOINT = "file:/checkpoint"


def take_back(store: ObjectStore, epoch: int) -> None:
    """Take the operator back, so that `epoch` is its next epoch, after all runs that have begun."""
    runs, checkpoint = stored_runs(store), digest_of(CHECKPOINT)
    (attachment,) = attachments_of([runs], checkpoint, epoch - 1, is_under_way=False)
    attach(store, attachment, f"back-{len(runs.begun)}", CHECKPOINT)
