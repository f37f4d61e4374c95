"""Takes the next batch of a query away from a driver that may still run the query.

Spark creates the entry of a batch in `offsets/` only if the entry does not exist: a second driver
gets "Multiple streaming jobs detected". A command that changes a checkpoint uses the same lock.
Before any change, the command creates the entry of the next batch, with the offsets of the last
batch. If a driver still runs the query, Spark refuses the driver's next batch before any output
row, even if the trigger takes minutes or the process was paused. The query that starts after the
change runs this batch first, without rows.

The entry stays when a change is undone: a driver that was started meanwhile may be running the
batch.
"""

from __future__ import annotations

from spark_state.errors import ConfigurationError
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.query_checkpoint import (
    LogEntry,
    QueryCheckpoint,
    last_batches,
    list_files,
)
from spark_state.spark.stopped_query.change_folder import AS_LEFT, ChangeFolder, took_effect
from spark_state.spark.stopped_query.change_record import digest


def take_next_batch(files: CheckpointFiles, checkpoint: QueryCheckpoint) -> None:
    """Plan the batch after the last batch, without rows.

    Raises ConfigurationError if a batch is planned and not committed, because a running driver may
    still commit the batch; and if the query has planned the next batch meanwhile.
    """
    last, commit = checkpoint.planned, checkpoint.commit
    if commit is None or checkpoint.committed != last:
        raise ConfigurationError(
            f"batch {last} of {files.url} is planned and not committed: the query may be running "
            "it. Start the query as it was, stop it after the batch, and run the command again; or "
            "pass --force if the query is certainly stopped"
        )
    text = empty_batch(checkpoint.offsets[last], commit)
    if not files.create_text(f"offsets/{last + 1}", text):
        raise ConfigurationError(
            f"batch {last + 1} of {files.url} was planned meanwhile: the query is running. Nothing "
            "was changed; stop the query and run the command again"
        )


def empty_batch(last: LogEntry, commit: LogEntry) -> str:
    """The entry of the batch after `last`, without new rows. The watermark comes from `commit`."""
    next_ms = commit.content.get("nextBatchWatermarkMs", 0)
    watermark_ms = max(next_ms, last.content.get("batchWatermarkMs", 0))
    return last.changed({"batchWatermarkMs": watermark_ms})


def note_as_left(folder: ChangeFolder) -> None:
    """Write the digest of the checkpoint's listing at the end of a change."""
    folder.files.write_text(f"{folder.path}/{AS_LEFT}", _listing(folder.files))


def check_not_started(folder: ChangeFolder) -> None:
    """Raise ConfigurationError if the query may have been started since a change took effect. A
    query that was started since uses the new state, even before the query commits a batch."""
    files, record = folder.files, folder.record()
    if record is None or not took_effect(files, record):
        return
    path = f"{folder.path}/{AS_LEFT}"
    planned, committed = last_batches(files)
    if not folder.is_done:
        reason = "but the command was killed before it was done"
    elif files.read_text(path) != _listing(files):
        reason = "and files have changed since: the query seems to have been started"
    elif planned == committed:
        reason = "and a query that was started since may be waiting to plan its next batch"
    else:
        return
    raise ConfigurationError(
        f"{files.url_of(folder.path)} took effect, {reason}. Nothing was changed; stop the query, "
        "and pass --force once it is certainly stopped"
    )


def _listing(files: CheckpointFiles) -> str:
    lines = [f"{file.path}\t{file.length}\t{file.changed_ms}" for file in list_files(files)]
    return digest("\n".join(lines))
