"""Takes the next batch of a query away from a driver that may still run it.

Spark creates the entry of a batch in `offsets/` only if there is none: a second driver gets
"Multiple streaming jobs detected". A command that changes a checkpoint uses the same lock. It
creates the entry of the next batch, with the offsets of the last one, before it changes anything.
Then whoever still runs the query, even if its trigger takes minutes or its process was paused, is
refused by Spark when it plans its next batch, and has put no row out. The query that is started
afterwards runs this batch first, without rows.

The entry stays when a change is undone: a driver that was started meanwhile may be running it.
"""

from __future__ import annotations

import json
from typing import Any

from spark_state.errors import ConfigurationError
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.query_checkpoint import LogEntry, QueryCheckpoint, list_files
from spark_state.spark.stopped_query.checkpoint_change import (
    ChangeFolder,
    digest,
    last_batches_are_equal,
    took_effect,
)

_AS_LEFT = "as-left"


def take_next_batch(files: CheckpointFiles, checkpoint: QueryCheckpoint) -> None:
    """Plan the batch after the last one, without rows.

    Raises ConfigurationError if a batch is planned and not committed, for a driver that runs it may
    still commit it, and if the query plans the batch first.
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
    """The entry of the batch after `last`, whose `commit` has its watermark. No source has new
    rows in it."""
    metadata: dict[str, Any] = dict(last.content)
    watermark = commit.content.get("nextBatchWatermarkMs", 0)
    metadata["batchWatermarkMs"] = max(watermark, metadata.get("batchWatermarkMs", 0))
    lines = last.text.split("\n")
    lines[1] = json.dumps(metadata, separators=(",", ":"), ensure_ascii=False)
    return "\n".join(lines)


def note_as_left(folder: ChangeFolder) -> None:
    """Note which files the checkpoint has at the end of a change."""
    folder.files.write_text(f"{folder.path}/{_AS_LEFT}", _listing(folder.files))


def check_not_started(folder: ChangeFolder) -> None:
    """Raises ConfigurationError if the query may have been started since a change took effect: it
    runs with what the change made, also before it has committed a batch."""
    files, record = folder.files, folder.record()
    if record is None or not took_effect(files, record):
        return
    path = f"{folder.path}/{_AS_LEFT}"
    if not files.exists(path):
        reason = "but the command was killed before it was done"
    elif files.read_text(path) != _listing(files):
        reason = "and files have changed since: the query seems to have been started"
    elif last_batches_are_equal(files):
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
