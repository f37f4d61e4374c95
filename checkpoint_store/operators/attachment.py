"""Lets the operators of a query go on from an earlier epoch, or from another checkpoint location.

attachment_plan chooses the base, the epoch from which an operator goes on. Attaching changes no
existing object. Attaching registers a run without epochs, and writes an object under `begun/`,
which says that the run took the query back to the base. The object has these effects:

- The epochs after the base that other runs have written do not count any more.
- If a run of the query is still alive, the run has to stop (I9).
- Later runs have to name the new location.

An old driver of the same checkpoint may still be alive and write more epochs. These epochs compete
with the epochs of later runs, see run_lineage.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from checkpoint_store.epochs.checkpoint_reader import CheckpointReader
from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.errors import CheckpointStoreError
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.runs.attachment_plan import Attachment, StoredRuns
from checkpoint_store.runs.checkpoint_location import location_of, owner_of
from checkpoint_store.runs.rival_checkpoints import are_same
from checkpoint_store.runs.run_starts import RunStarts


def stored_runs(store: ObjectStore) -> StoredRuns:
    """The runs of an operator's store, as the store is now. Costs three listings. The checkpoint of
    a run at an epoch is read on demand."""
    published = PublishedObjects(store)
    reader = CheckpointReader(store, published)
    manifests = published.manifests()

    written = {*(name.directory for name in manifests), *published.epoch_directories()}
    return StoredRuns(
        url=store.url,
        begun=RunStarts(store).names(),
        written=frozenset(written),
        completed=lambda key: reader.whole_of(key, manifests),
        are_same=partial(are_same, store),
    )


def owner_location(store: ObjectStore, runs: StoredRuns) -> str | None:
    """The location of the checkpoint that owns the store; None if not known."""
    owner = owner_of(runs.begun)
    return None if owner is None else location_of(store, owner)


def attach_all(
    stores: Sequence[ObjectStore], attachments: Sequence[Attachment], run_id: str, checkpoint: str
) -> list[Run | None]:
    """Attach the operators of a query to the checkpoint at location `checkpoint`: each operator
    goes on from the base in its attachment. Return the new run of each operator, None for a store
    that needs no change.

    If the work stops between two operators, decide and attach all operators again: operators
    already attached need no change.
    """
    runs: list[Run | None] = []
    try:
        for store, attachment in zip(stores, attachments, strict=True):
            runs.append(attach(store, attachment, run_id, checkpoint))
    except CheckpointStoreError as error:
        error.add_note(
            f"{len(runs)} of {len(stores)} operators are attached. Run the command again: it goes "
            "on with the rest"
        )
        raise
    return runs


def attach(store: ObjectStore, attachment: Attachment, run_id: str, checkpoint: str) -> Run | None:
    """Attach one operator to the checkpoint at location `checkpoint`: the operator goes on from the
    base in `attachment`. Return the new run, None if the store needs no change."""
    if not attachment.is_needed:
        return None
    run = CompletedCheckpointStore(store).runs.register(run_id)
    starts, base = RunStarts(store), attachment.base
    first_epoch = 0 if base is None else base.epoch + 1
    starts.write_cuts(run, first_epoch, attachment.cuts)
    starts.write(run, first_epoch, base, checkpoint, "back")
    return run
