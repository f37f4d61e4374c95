"""Lets a stopped query go on from its checkpoint with another state store provider.

The folder of the adoption, see checkpoint_change, has beside its record and copies:

    converted/         state that is being written for the other provider; deleted at the end

New state is written below `converted`, read back and compared. Only then it is moved to the stores,
where the present provider ignores it. The newest entry of the offset log is edited last: until then
the query goes on as before, and from then on with the other provider. An adoption that fails undoes
itself; `revert` undoes one that was killed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from spark_state.spark.adoption.adoption_plan import (
    CHECKPOINT_FORMAT,
    HDFS_CLASS,
    AdoptionPlan,
    plan_adoption,
)
from spark_state.spark.adoption.adoption_record import AdoptionError, AdoptionRecord
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.provider_class import short_name
from spark_state.spark.provider.query_checkpoint import QueryCheckpoint, read_checkpoint
from spark_state.spark.stopped_query.checkpoint_change import (
    ADOPTION,
    ChangeFolder,
    Progress,
    check_edited,
    check_finished,
    check_not_run_since,
    check_quiet,
    check_unchanged,
    digest,
    finish_last,
    put_back_edited,
)
from spark_state.spark.stopped_query.store_job import run_store_job

_CONVERTED = "converted"


@dataclass(frozen=True, slots=True)
class AppliedAdoption:
    """An applied adoption. folder: its backup. rows: number of rows of all converted stores."""

    plan: AdoptionPlan
    folder: str
    rows: int
    created: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RevertedAdoption:
    """A reverted adoption. record: None if the adoption had not changed anything yet."""

    url: str
    folder: str
    record: AdoptionRecord | None


@dataclass(frozen=True, slots=True)
class _Converted:
    """State written for the other provider.

    moves: by path in the checkpoint, the URL at which the file is now. ids: for checkpoint format
    2, the new id of each old one.
    """

    rows: int
    moves: dict[str, str]
    ids: dict[str, str]


def apply(
    spark: SparkSession, location: str, to: str, progress: Progress, *, force: bool = False
) -> AppliedAdoption:
    """Let the query continue on `to`, a key of TARGETS.

    `force` skips the check whether the query is running. Raises the errors of `plan_adoption`,
    ConfigurationError if the query seems to be running or another adoption is not finished, and
    AdoptionError. After an error the checkpoint is as it was.
    """
    files = CheckpointFiles(spark, location)
    finish_last(files)
    adoption = plan_adoption(read_checkpoint(files), to)
    check_finished(files, adoption.checkpoint)
    folder = ChangeFolder.new(files, ADOPTION)
    try:
        if not force:
            check_quiet(adoption.checkpoint, folder)
        converted = _convert(folder, adoption, progress)
        texts = _new_texts(adoption, converted.ids)
        record = _record_of(adoption, texts, converted)
        folder.back_up((*record.edited, *record.removed))
        folder.write_record(record.content())
        check_unchanged(adoption.checkpoint, folder)
    except BaseException:
        folder.forget()
        raise
    try:
        for path in record.removed:
            files.delete(path)
        for path, url in converted.moves.items():
            files.move(url, path)
        for path, text in texts.items():
            files.write_text(path, text)
    except BaseException:
        _restore(folder, record)
        raise
    files.delete(f"{folder.path}/{_CONVERTED}")
    return AppliedAdoption(adoption, folder.path, converted.rows, record.created)


def revert(folder: ChangeFolder, *, force: bool = False) -> RevertedAdoption:
    """Undo the last adoption, even one that was killed. `force` is as in `apply`.

    Raises ConfigurationError if the query has run since, or if it seems to be running.
    """
    files = folder.files
    record = AdoptionRecord.of(folder)
    if record is None:
        folder.forget()
        return RevertedAdoption(files.url, folder.path, None)
    checkpoint = read_checkpoint(files)
    check_not_run_since(
        checkpoint, record.content(), _after_later_batches(checkpoint, folder, record)
    )
    check_edited(folder, record.edited, {})
    if not force:
        check_quiet(checkpoint, folder)
    _restore(folder, record)
    return RevertedAdoption(files.url, folder.path, record)


def _after_later_batches(
    checkpoint: QueryCheckpoint, folder: ChangeFolder, record: AdoptionRecord
) -> str:
    url = checkpoint.url
    if checkpoint.provider == record.source:
        return (
            f"{url} is on {short_name(record.source)} already, so there is nothing to "
            f"revert: the query ran during the adoption {folder.path}, and went on with its former "
            f"provider to batch {checkpoint.planned}. To adopt it, stop the query and run "
            "cowstate adopt again"
        )
    way = "" if record.target == HDFS_CLASS else " --to hdfs"
    return (
        f"{url} has gone on to batch {checkpoint.planned} since {folder.path}: going back to "
        f"batch {record.planned} would lose state. Run cowstate adopt{way} instead"
    )


def _convert(folder: ChangeFolder, adoption: AdoptionPlan, progress: Progress) -> _Converted:
    """Write the state for the other provider, below `folder`. Raises AdoptionError."""
    if not adoption.conversions:
        return _Converted(0, {}, {})
    files = folder.files
    order = _order(files, adoption, f"{folder.path}/{_CONVERTED}")
    stores = run_store_job(lambda: files.start_conversion(order), progress, AdoptionError)
    moves: dict[str, str] = {}
    ids: dict[str, str] = {}
    for store in stores:
        if store["rowsRead"] != store["rowsWritten"] or not store["files"]:
            raise AdoptionError(f"the conversion of {store} is not whole. Nothing was changed")
        moves.update({files.relative(file["to"]): file["from"] for file in store["files"]})
        if "unique" in store:
            ids[store["store"]["unique"]] = store["unique"]
    assert len(stores) == len(adoption.conversions)
    return _Converted(sum(store["rowsRead"] for store in stores), moves, ids)


def _order(files: CheckpointFiles, adoption: AdoptionPlan, scratch: str) -> dict[str, Any]:
    checkpoint = adoption.checkpoint
    return {
        "checkpoint": checkpoint.url,
        "scratch": files.url_of(scratch),
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
        tuple(file.path for file in adoption.removals),
        tuple(converted.moves),
    )


def _restore(folder: ChangeFolder, record: AdoptionRecord) -> None:
    """Put back all files, the newest entry of the offset log first. May be called again."""
    put_back_edited(folder, record.edited)
    for path in record.created:
        folder.files.delete(path)
    for path in record.removed:
        folder.files.copy(folder.saved(path), path)
    folder.forget()
