"""What a task asks of a state host: run one epoch of one subtask of an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from spark_state.processor.processor_run import ProcessorSpec
from spark_state.rocksdb.database_settings import DatabaseSettings


@dataclass(frozen=True, slots=True)
class RestoreSource:
    """The epoch of another operator's store that an operator begins with. `url`: the store's;
    `directory`: that of a query, all of whose operators begin with this epoch, None if the store or
    the epoch was named."""

    url: str
    epoch: int
    directory: str | None = None


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """How an operator's checkpoints are kept.

    `min_epochs_to_retain`: at least this many newest epochs are retained;
    `min_epochs_for_snapshot`: changelogs before a snapshot may replace them;
    `orphan_grace_seconds`: age from which orphans are deleted;
    `store_retry_seconds`: a call to the store that fails is tried again for so long;
    `start_empty`: whether a query that has run epochs already may start with an empty store;
    `restore_from`: what an empty store begins with, None for nothing;
    `store_options`: for the clients of both stores, with secrets.
    """

    min_epochs_to_retain: int
    min_epochs_for_snapshot: int
    orphan_grace_seconds: int
    store_retry_seconds: int
    start_empty: bool
    restore_from: RestoreSource | None = None
    store_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """Where the state of a subtask is while it is in use.

    `kind`: on the Python heap, or in RocksDB; `local_directory`: below which RocksDB keeps its
    files, None for Spark's own local directory; `memory_mb`: how much memory the databases of a
    host use together, in MiB; `incremental`: whether a snapshot of RocksDB is its own files, and
    only those that the store does not have; `local_recovery`: whether the files of RocksDB that the
    store has are kept on the local disk for the next host, too; `database`: the options of RocksDB.
    """

    kind: Literal["heap", "rocksdb"] = "heap"
    local_directory: str | None = None
    memory_mb: int = 256
    incremental: bool = True
    local_recovery: bool = True
    database: DatabaseSettings = field(default_factory=DatabaseSettings)


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The number of host processes of an executor, and the time, in seconds, after which a host
    without work ends."""

    per_executor: int
    idle_seconds: int


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """An operator as it was planned on the driver. The same object serves every task of it.

    `plan_id`: unique to one call of `transform_with_state`; `store_root`: root URL, below which the
    operator's store is `<query id>/<operator>`; `max_memory_mb`: what a host may hold for all of
    its subtasks, in MiB, see host_memory; None for any amount.
    """

    operator: str
    plan_id: str
    store_root: str
    parallelism: int
    max_parallelism: int
    key_schema_json: str
    processor: ProcessorSpec
    checkpoints: CheckpointSettings
    backend: BackendSettings = field(default_factory=BackendSettings)
    max_memory_mb: int | None = None


NEVER_RUN = -1


@dataclass(frozen=True, slots=True)
class OperatorStart:
    """Facts that the driver of a run found in the query's checkpoint and in the operator's store
    when the query started.

    `checkpoint`: the checkpoint's location; `newest_epoch`: the newest epoch that the operator must
    have, because Spark committed its batch, NEVER_RUN if it has run in none, None if that is not
    known; `committed`: the last batch that Spark had committed, -1 if there was none.
    """

    checkpoint: str
    newest_epoch: int | None = None
    committed: int = -1

    def may_begin_with_nothing(self, epoch: int) -> bool:
        """True if the operator had never run before this epoch. Nothing is known of the epochs
        after the first one of the run."""
        return self.newest_epoch == NEVER_RUN and epoch == self.committed + 1


@dataclass(frozen=True, slots=True)
class EpochTask:
    """One task of one micro-batch.

    `epoch`: Spark's batch id; `attempt`: Spark's task attempt id, which grows over the life of the
    application; `run_id`: of the query's run; `subtask` in [0, parallelism);
    `in_unseen_function`: whether a function of foreachBatch runs it for which nobody completes
    epochs, because it was not set in Python; `ended_runs`: runs of queries that had ended when this
    one was started, as far as its driver knows; `start`: None if nobody looked at the checkpoint
    before the query started, because it was not started in Python.
    """

    query_id: str
    run_id: str
    epoch: int
    subtask: int
    attempt: int
    in_unseen_function: bool
    ended_runs: tuple[str, ...] = ()
    start: OperatorStart | None = None


@dataclass(frozen=True, slots=True)
class EpochRequest:
    """`module_path`: the entries of the worker's `sys.path`, where the processor's modules are;
    `local_directories`: where Spark keeps local files of the executor."""

    spec: OperatorSpec
    task: EpochTask
    module_path: tuple[str, ...]
    local_directories: tuple[str, ...] = ()

    @property
    def store_url(self) -> str:
        return operator_store_url(self.spec.store_root, self.task.query_id, self.spec.operator)


def operator_store_url(store_root: str, query_id: str, operator: str) -> str:
    """Where the state of an operator of a query is."""
    return f"{store_root.rstrip('/')}/{query_id}/{operator}"
