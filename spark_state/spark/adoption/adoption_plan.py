"""Plans the adoption of a checkpoint, and refuses checkpoints that cannot be adopted. Pure.

From HDFSBackedStateStoreProvider to cowstate no state is converted: cowstate reads the files. In
all other cases the state from which the next batch starts is written for the other provider, and
older states do not change. The newest entry of the offset log names the provider of a query, so the
adoption edits this entry. If the other provider also has the state for the second newest entry, the
adoption edits the second newest entry, too.

With `--store` the state of cowstate moves to an object store, or back into the checkpoint. The
state is then always written again, whichever provider wrote the state. Each move uses a new
directory, so a copied checkpoint may use the same object store as its original.
"""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_store.object_names import STATE_PLACE
from checkpoint_store.provider.state_place import StatePlace
from spark_state.errors import ConfigurationError, UnsupportedOperationError
from spark_state.spark.provider.checkpoint_files import CheckpointFile
from spark_state.spark.provider.provider_class import (
    PROVIDER_CLASS,
    PROVIDER_KEY,
    ROCKSDB_CLASS,
    short_name,
)
from spark_state.spark.provider.query_checkpoint import (
    LogEntry,
    QueryCheckpoint,
    StoreDirectory,
    check_encoding,
)

HDFS_CLASS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
TARGETS = {"cowstate": PROVIDER_CLASS, "hdfs": HDFS_CLASS}
_OTHER_WAYS = " --to hdfs; to move its state to an object store, name its URL with --store"
CHECKPOINT_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
IN_CHECKPOINT = "checkpoint"
"""The value of `--store` that moves the state of a query back into its checkpoint."""


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """The steps of an adoption.

    - `target`: the class of the other provider.
    - `conversions`: stores whose state is written for `target`.
    - `edits`: log entries that will name `target`.
    - `removals`: files that `target` left in the checkpoint when the query was on `target` earlier.
      Only files of the version from which the query continues, and of later versions, are removed.
    - `place`: the object store for the state, None for the checkpoint.
    """

    checkpoint: QueryCheckpoint
    target: str
    conversions: tuple[StoreDirectory, ...]
    edits: tuple[LogEntry, ...]
    removals: tuple[CheckpointFile, ...]
    place: StatePlace | None = None

    @property
    def leaves_store(self) -> bool:
        """True if the state leaves an object store: the checkpoint names an object store now, and
        the state lies in the checkpoint after the adoption."""
        return self.place is None and self.checkpoint.place is not None

    @property
    def needed_until_edited(self) -> set[str]:
        """Paths of the files that the adoption removes last, after all edits: STATE_PLACE, and the
        deltas of the present version in `removals`. Until then the query is on cowstate, which may
        read these files. Empty if the query is on another provider.

        The deltas are from HDFSBackedStateStoreProvider, and do no harm after the edits:
        HDFSBackedStateStoreProvider does not read the delta of a version that has a snapshot.
        """
        if self.checkpoint.provider != PROVIDER_CLASS:
            return set()
        version = self.checkpoint.version
        changes = {file.path for file in self.removals if file.name == f"{version}.delta"}
        return {STATE_PLACE} | changes

    def edited(self, entry: LogEntry) -> str:
        """The text of an offset log entry with the other provider's name, otherwise unchanged."""
        return entry.changed({"conf": {**entry.settings, PROVIDER_KEY: self.target}})


def plan_adoption(
    checkpoint: QueryCheckpoint, to: str, store: str | None = None, attempt: str = ""
) -> AdoptionPlan:
    """The plan for continuing this checkpoint on `to`, a key of TARGETS.

    `store`: the URL of the object store for the state. If `store` is None or IN_CHECKPOINT, the
    state is in the checkpoint after the adoption. If `store` is None, a query that is on `to`
    already is refused. `attempt`: makes the name of the directory in the object store unique.

    Raises UnsupportedOperationError or ConfigurationError with the reason and the way out.
    """
    target = TARGETS[to]
    if store is None:
        _check_providers(checkpoint, target)
    else:
        _check_store(checkpoint, target, store)
    _check_operators(checkpoint)
    _check_settings(checkpoint, target)
    to_store = store not in (None, IN_CHECKPOINT)
    reads_files = checkpoint.provider == HDFS_CLASS and not to_store
    if reads_files:
        for directory in checkpoint.directories:
            _check_hdfs_files(checkpoint, directory.path)
    converts = not reads_files and checkpoint.version > 0
    oldest_edit = checkpoint.planned - 1 if reads_files else checkpoint.version - 1
    edits = [entry for number, entry in sorted(checkpoint.offsets.items()) if number >= oldest_edit]
    return AdoptionPlan(
        checkpoint,
        target,
        checkpoint.directories if converts else (),
        tuple(e for e in edits if e.settings[PROVIDER_KEY] == checkpoint.provider != target),
        () if to_store else tuple(_left_behind(checkpoint, target)),
        StatePlace(str(store), f"{checkpoint.query_id}-{attempt}") if to_store else None,
    )


def _check_store(checkpoint: QueryCheckpoint, target: str, store: str) -> None:
    url = checkpoint.url
    if target != PROVIDER_CLASS:
        raise ConfigurationError(
            f"--store {store} says where cowstate keeps its state, but --to hdfs goes on with "
            f"{short_name(target)}, whose files are in the checkpoint: leave --store out"
        )
    if checkpoint.provider != target:
        _check_providers(checkpoint, target)
    elif store == IN_CHECKPOINT and checkpoint.place is None:
        raise ConfigurationError(
            f"the state of {url} is in the checkpoint already: start the query. To move it to an "
            "object store, name its URL with --store"
        )


def _check_providers(checkpoint: QueryCheckpoint, target: str) -> None:
    provider, url = checkpoint.provider, checkpoint.url
    if provider == target:
        raise ConfigurationError(
            f"{url} is on {short_name(target)} already: start the query. To go the other way, run "
            f"cowstate adopt{_OTHER_WAYS if target == PROVIDER_CLASS else ' without --to'}"
        )
    supported_providers = (HDFS_CLASS, ROCKSDB_CLASS, PROVIDER_CLASS)
    if provider not in supported_providers:
        raise UnsupportedOperationError(
            f"{url} is on the provider {provider}, which adopt does not know; it knows "
            f"{', '.join(map(short_name, supported_providers))}. Start the query with a new "
            "checkpoint"
        )
    if target == HDFS_CLASS and provider != PROVIDER_CLASS:
        raise UnsupportedOperationError(
            f"{url} is on {short_name(provider)}, but --to hdfs only goes back from cowstate. Run "
            "cowstate adopt without --to first"
        )


def _check_operators(checkpoint: QueryCheckpoint) -> None:
    for operator in checkpoint.operators:
        if operator.name.startswith("transformWithState"):
            raise UnsupportedOperationError(
                f"operator {operator.number} of {checkpoint.url} is {operator.name}, whose state "
                "only RocksDBStateStoreProvider keeps. spark_state.transform_with_state runs it on "
                "cowstate, with a new checkpoint"
            )
        join_format = checkpoint.settings.get(_JOIN_FORMAT, "2")
        if operator.name == "symmetricHashJoin" and join_format not in ("1", "2"):
            raise UnsupportedOperationError(
                f"operator {operator.number} of {checkpoint.url} is a join with "
                f"{_JOIN_FORMAT} = {join_format}, which only RocksDBStateStoreProvider keeps. "
                f"Start the query with a new checkpoint and {_JOIN_FORMAT} = 2"
            )


def _check_settings(checkpoint: QueryCheckpoint, target: str) -> None:
    check_encoding(checkpoint)
    if target == HDFS_CLASS and checkpoint.state_ids is not None:
        raise UnsupportedOperationError(
            f"{checkpoint.url} has checkpoint format 2, but {short_name(HDFS_CLASS)} supports only "
            f"format 1: stay on cowstate, or start with a new checkpoint and {CHECKPOINT_FORMAT} "
            "= 1"
        )


def _check_hdfs_files(checkpoint: QueryCheckpoint, directory: str) -> None:
    """Raise UnsupportedOperationError if the state of the next batch is incomplete.

    A complete state has all deltas back to a snapshot, or all deltas.
    """
    names = {file.name for file in checkpoint.files_of_version(directory, hdfs=True)}
    for version in range(checkpoint.version, 0, -1):
        if f"{version}.snapshot" in names:
            return
        if f"{version}.delta" not in names:
            raise UnsupportedOperationError(
                f"{checkpoint.url}/{directory}/{version}.delta is missing, and no later snapshot "
                f"replaces it: the state of version {checkpoint.version}, from which the next "
                "batch starts, is incomplete. Restore the file from a copy"
            )


def _left_behind(checkpoint: QueryCheckpoint, target: str) -> list[CheckpointFile]:
    return [
        file
        for directory in checkpoint.directories
        for file, version in checkpoint.files_of_version(
            directory.path, hdfs=target == HDFS_CLASS
        ).items()
        if version >= checkpoint.version
        and not (
            file.name.startswith(f"{checkpoint.version}.snapshot")
            and _reads_hdfs_files(checkpoint, directory)
        )
    ]


def _reads_hdfs_files(checkpoint: QueryCheckpoint, directory: StoreDirectory) -> bool:
    """Return True if cowstate reads the present version of this store from files of
    HDFSBackedStateStoreProvider: the query is on cowstate, but cowstate has not written the
    version. Then the adoption must not remove a snapshot of the version."""
    if checkpoint.provider != PROVIDER_CLASS or checkpoint.place is not None:
        return False
    own = checkpoint.files_of_version(directory.path, hdfs=False)
    return checkpoint.version not in own.values()
