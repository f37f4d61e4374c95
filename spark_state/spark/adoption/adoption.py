"""Lets a stopped query continue from its checkpoint with another state store provider.

The folder of the adoption (see checkpoint_change) has, beside its record and copies:

    converted/         new state for the other provider while being written; deleted at the end

New state is written below `converted`, read back and compared. Then the state is moved to the
stores, where the present provider ignores the new files. The newest entry of the offset log is
edited last: until this edit the query continues as before, and after this edit with the other
provider. An adoption that fails undoes itself; `revert` undoes a killed adoption.

State that moves to an object store is written at once to a new directory of the store, which no
file names yet. If the provider stays the same, the last edit is that of state/cowstate-store.json,
which names the directory.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from checkpoint_store.object_names import STATE_PLACE
from checkpoint_store.objects.unique_names import unique_of_uuid
from checkpoint_store.provider.state_place import StatePlace
from spark_state.errors import CowstateError
from spark_state.spark.adoption.adoption_plan import (
    CHECKPOINT_FORMAT,
    HDFS_CLASS,
    IN_CHECKPOINT,
    AdoptionPlan,
    plan_adoption,
)
from spark_state.spark.adoption.adoption_record import (
    AdoptionError,
    AdoptionRecord,
    note_place,
    noted_place,
)
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.placed_state import PlacedState, store_url
from spark_state.spark.provider.provider_class import short_name
from spark_state.spark.provider.query_checkpoint import QueryCheckpoint, read_checkpoint
from spark_state.spark.stopped_query.checkpoint_change import (
    ADOPTION,
    ChangeFolder,
    Progress,
    check_edited,
    check_finished,
    check_not_run_since,
    check_unchanged,
    digest,
    finish_last,
    put_back_edited,
)
from spark_state.spark.stopped_query.next_batch import (
    check_not_started,
    note_as_left,
    take_next_batch,
)
from spark_state.spark.stopped_query.store_job import run_store_job

_CONVERTED = "converted"


@dataclass(frozen=True, slots=True)
class AppliedAdoption:
    """An applied adoption. `folder`: its backup; `rows`: number of rows of all converted stores."""

    plan: AdoptionPlan
    folder: str
    rows: int
    created: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RevertedAdoption:
    """A reverted adoption. `record`: None if the adoption had not changed anything yet; `left`: see
    `_forget`."""

    url: str
    folder: str
    record: AdoptionRecord | None
    left: str | None = None


@dataclass(frozen=True, slots=True)
class _Converted:
    """State written for the other provider.

    `moves`: by path in the checkpoint, the URL of the new file; empty for an object store, where
    files are written in place; `ids`: for checkpoint format 2, the new id of each old id.
    """

    rows: int = 0
    moves: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdoptionTarget:
    """The provider and place with which a query is to continue. `to`: a key of TARGETS; `store`:
    see `plan_adoption`."""

    to: str
    store: str | None = None

    def plan(self, checkpoint: QueryCheckpoint) -> AdoptionPlan:
        """The plan for a checkpoint. Raises the errors of `plan_adoption` and of `store_url`."""
        if self.store in (None, IN_CHECKPOINT):
            return plan_adoption(checkpoint, self.to, self.store)
        return plan_adoption(checkpoint, self.to, store_url(str(self.store)), unique_of_uuid()[:8])


def apply(
    spark: SparkSession,
    location: str,
    target: AdoptionTarget,
    progress: Progress,
    *,
    force: bool = False,
) -> AppliedAdoption:
    """Let the query continue on `target`.

    Unless `force` says that the query is stopped, first takes the next batch away from the query,
    see next_batch. Raises the errors of `plan_adoption` and `take_next_batch`, ConfigurationError
    if another change is not finished, and AdoptionError. After an error the query continues as
    before.
    """
    files = CheckpointFiles(spark, location)
    finish_last(files)
    adoption = target.plan(read_checkpoint(files))
    check_finished(files, adoption.checkpoint)
    if not force:
        take_next_batch(files, adoption.checkpoint)
        adoption = target.plan(read_checkpoint(files))
    folder = ChangeFolder.new(files, ADOPTION)
    try:
        if adoption.place is not None:
            note_place(folder, adoption.place)
        converted = _convert(folder, adoption, progress)
        texts = _new_texts(adoption, converted.ids)
        record = _record_of(adoption, texts, converted)
        folder.back_up((*record.replaced, *record.removed))
        folder.write_record(record.content())
        check_unchanged(adoption.checkpoint, folder)
    except BaseException as error:
        _note_left(error, _forget(folder))
        raise
    try:
        _change(files, adoption, converted, texts)
        note_as_left(folder)
    except BaseException as error:
        _note_left(error, _restore(folder, record))
        raise
    files.delete(f"{folder.path}/{_CONVERTED}")
    return AppliedAdoption(adoption, folder.path, converted.rows, record.created)


def _change(
    files: CheckpointFiles, adoption: AdoptionPlan, converted: _Converted, texts: dict[str, str]
) -> None:
    """Make the changes that the query sees."""
    for file in adoption.removals:
        files.delete(file.path)
    for path, url in converted.moves.items():
        files.move(url, path)
    for path, text in texts.items():
        files.write_text(path, text)
    if adoption.leaves_store:
        files.delete(STATE_PLACE)


def revert(folder: ChangeFolder, *, force: bool = False) -> RevertedAdoption:
    """Undo the last adoption, even a killed adoption. `force` says that the query is stopped.

    Raises ConfigurationError if the query has run since the adoption, or may have been started.
    """
    files = folder.files
    record = AdoptionRecord.of(folder)
    if record is None:
        return RevertedAdoption(files.url, folder.path, None, _forget(folder))
    checkpoint = read_checkpoint(files)
    check_not_run_since(
        checkpoint, record.content(), _after_later_batches(checkpoint, folder, record)
    )
    check_edited(folder, record.replaced, {})
    if not force:
        check_not_started(folder)
    return RevertedAdoption(files.url, folder.path, record, _restore(folder, record))


def _after_later_batches(
    checkpoint: QueryCheckpoint, folder: ChangeFolder, record: AdoptionRecord
) -> str:
    url = checkpoint.url
    if not _went_on_there(checkpoint, record, noted_place(folder)):
        return (
            f"{url} is on {short_name(record.source)} already, so there is nothing to "
            f"revert: the query ran during the adoption {folder.path}, and went on with its former "
            f"provider to batch {checkpoint.planned}. To adopt it, stop the query and run "
            "cowstate adopt again"
        )
    return (
        f"{url} has gone on to batch {checkpoint.planned} since {folder.path}: going back to "
        f"batch {record.planned} would lose state. Run cowstate adopt{_way_back(record)} instead"
    )


def _went_on_there(
    checkpoint: QueryCheckpoint, record: AdoptionRecord, place: StatePlace | None
) -> bool:
    """Return True if a query that ran after an adoption uses the adoption's provider or place."""
    if record.source == record.target:
        return checkpoint.place == place
    return checkpoint.provider != record.source


def _way_back(record: AdoptionRecord) -> str:
    if record.source == record.target:
        return " --store"
    return "" if record.target == HDFS_CLASS else " --to hdfs"


def _convert(folder: ChangeFolder, adoption: AdoptionPlan, progress: Progress) -> _Converted:
    """Write the state for the other provider, below `folder`. Raises AdoptionError."""
    if not adoption.conversions:
        return _Converted()
    files = folder.files
    order = _order(files, adoption, f"{folder.path}/{_CONVERTED}")
    stores = run_store_job(lambda: files.start_conversion(order), progress, AdoptionError)
    moves: dict[str, str] = {}
    ids: dict[str, str] = {}
    for store in stores:
        if store["rowsRead"] != store["rowsWritten"] or not store["files"]:
            raise AdoptionError(f"the conversion of {store} is not whole. Nothing was changed")
        if adoption.place is None:
            moves.update({files.relative(file["to"]): file["from"] for file in store["files"]})
        if "unique" in store:
            ids[store["store"]["unique"]] = store["unique"]
    assert len(stores) == len(adoption.conversions)
    if adoption.place is not None:
        written = {file["to"] for store in stores for file in store["files"]}
        _keep_only(PlacedState(files, adoption.place), written)
    return _Converted(sum(store["rowsRead"] for store in stores), moves, ids)


def _keep_only(stored: PlacedState, written: set[str]) -> None:
    """Delete the files of killed attempts of tasks. Raises AdoptionError if a written file is
    missing."""
    stored.delete_all_but(written)
    missing = sorted(written - stored.lengths().keys())
    if missing:
        raise AdoptionError(f"{missing[0]} is missing in {stored.url}. Nothing was changed")


def _order(files: CheckpointFiles, adoption: AdoptionPlan, scratch: str) -> dict[str, Any]:
    checkpoint = adoption.checkpoint
    return {
        "checkpoint": checkpoint.url,
        "scratch": files.url_of(scratch),
        **({} if adoption.place is None else {"place": asdict(adoption.place)}),
        "sourceClass": checkpoint.provider,
        "targetClass": adoption.target,
        "version": checkpoint.version,
        "settings": {
            **checkpoint.settings,
            CHECKPOINT_FORMAT: "1" if checkpoint.state_ids is None else "2",
        },
        "stores": [
            {
                "operator": directory.operator,
                "partition": directory.partition,
                "store": directory.store,
                "prefixColumns": directory.prefix_columns,
                "unique": checkpoint.state_id(directory),
            }
            for directory in adoption.conversions
        ],
    }


def _new_texts(adoption: AdoptionPlan, ids: dict[str, str]) -> dict[str, str]:
    """The new texts of log entries, by path. The newest entry of the offset log comes last."""
    texts = {}
    if ids:
        assert adoption.checkpoint.commit is not None
        text = adoption.checkpoint.commit.text
        for old, new in ids.items():
            text = text.replace(f'"{old}"', f'"{new}"')
        texts[adoption.checkpoint.commit.path] = text
    if adoption.place is not None:
        texts[STATE_PLACE] = adoption.place.encode().decode()
    return {**texts, **{entry.path: adoption.edited(entry) for entry in adoption.edits}}


def _record_of(
    adoption: AdoptionPlan, texts: dict[str, str], converted: _Converted
) -> AdoptionRecord:
    return AdoptionRecord(
        adoption.checkpoint.provider,
        adoption.target,
        adoption.checkpoint.planned,
        adoption.checkpoint.committed,
        {path: digest(text) for path, text in texts.items()},
        (
            *(file.path for file in adoption.removals),
            *([STATE_PLACE] if adoption.leaves_store else []),
        ),
        (
            *converted.moves,
            *([STATE_PLACE] if STATE_PLACE in texts and not adoption.checkpoint.place else []),
        ),
    )


def _forget(folder: ChangeFolder) -> str | None:
    """Delete the new files in the object store, which no checkpoint names, and the folder of the
    adoption. If the store cannot be used, return its URL: files may be left there, but the
    checkpoint is free for other changes."""
    place = noted_place(folder)
    left = None
    if place is not None:
        try:
            PlacedState(folder.files, place).delete_all_but(())
        except (CowstateError, OSError):
            left = place.root
    folder.forget()
    return left


def _note_left(error: BaseException, left: str | None) -> None:
    if left is not None:
        error.add_note(left_files(left))


def left_files(place: str) -> str:
    """The advice about files that could not be deleted."""
    return (
        f"Files may be left in {place}, which could not be emptied. Nothing names them: delete them"
    )


def _restore(folder: ChangeFolder, record: AdoptionRecord) -> str | None:
    """Put back all files, the newest entry of the offset log first. Safe to call again. Returns the
    result of `_forget`."""
    put_back_edited(folder, record.edited, record.created)
    for path in record.created:
        folder.files.delete(path)
    for path in record.removed:
        folder.files.copy(folder.saved(path), path)
    return _forget(folder)
