"""A task's request to a state host: run an epoch of a subtask of an operator.

    task    SentRequest -> host -> EpochRequest

Only the host unpickles the operator. A Python worker does not: the worker would have to import the
engine, which takes longer than an epoch of a few rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from checkpoint_store.objects.store_outages import RETRY_SECONDS
from spark_state.processor.pickles import dumps
from spark_state.rocksdb.database_settings import DatabaseSettings

if TYPE_CHECKING:
    from spark_state.executor import HostSettings
    from spark_state.processor.processor_run import ProcessorSpec

# Number of operators that a host keeps unpickled.
_UNPICKLED_OPERATORS = 8


@dataclass(frozen=True, slots=True)
class RestoreSource:
    """An operator's initial state, taken from another operator's store.

    `url`: URL of the other store; `epoch`: the epoch whose state is taken; `directory`: URL of the
    directory with the stores of another query, if the user named this directory without an epoch,
    else None. All operators of a query that have the same `directory` must have the same `epoch`.
    """

    url: str
    epoch: int
    directory: str | None = None


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """Settings for an operator's checkpoints.

    `min_epochs_to_retain`: retention keeps at least this many newest epochs;
    `min_epochs_for_snapshot`: number of changelogs before a snapshot may replace changelogs;
    `orphan_grace_seconds`: the orphan sweep deletes orphans of this age; `store_retry_seconds`: how
    long to repeat a failing call to the store, in seconds; `start_empty`: True if a query that has
    run epochs may start with an empty store; `restore_from`: source of the first state of an empty
    store, None to begin without state; `store_options`: options, with secrets, for the clients of
    the operator's store and of the store in `restore_from`.
    """

    min_epochs_to_retain: int = 100
    min_epochs_for_snapshot: int = 10
    orphan_grace_seconds: int = 86_400
    store_retry_seconds: int = RETRY_SECONDS
    start_empty: bool = False
    restore_from: RestoreSource | None = None
    store_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """Settings for the state of a subtask in use.

    `kind`: on the Python heap, or in RocksDB; `local_directory`: parent directory for RocksDB's
    files, None for Spark's own local directory; `memory_mb`: memory of all databases of a host
    together, in MiB; `incremental`: True if a RocksDB snapshot consists of RocksDB's own files, and
    uploads only files that the store lacks; `local_recovery`: True if the local disk keeps copies,
    for the next host, of the RocksDB files in the store; `database`: options of RocksDB.
    """

    kind: Literal["heap", "rocksdb"] = "heap"
    local_directory: str | None = None
    memory_mb: int = 256
    incremental: bool = True
    local_recovery: bool = True
    database: DatabaseSettings = field(default_factory=DatabaseSettings)


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """An operator as planned on the driver. All tasks of the operator get the same object.

    `operator`: the operator's name; `plan_id`: unique to a call of `transform_with_state`;
    `store_root`: root URL, the operator's store is `<store_root>/<query id>/<operator>`;
    `key_schema_json`: schema of the key columns, in Spark's JSON form. The settings of the session
    are in `checkpoints`, `backend` and `hosts`.
    """

    operator: str
    plan_id: str
    store_root: str
    parallelism: int
    max_parallelism: int
    key_schema_json: str
    processor: ProcessorSpec
    checkpoints: CheckpointSettings
    hosts: HostSettings
    backend: BackendSettings = field(default_factory=BackendSettings)


NEVER_RUN = -1


@dataclass(frozen=True, slots=True)
class OperatorStart:
    """Facts that a run's driver found in the query's checkpoint and in the operator's store at the
    start of the query.

    `checkpoint`: location of the checkpoint; `newest_epoch`: the operator's newest epoch that Spark
    committed (the operator's store must have this epoch), NEVER_RUN if the operator has never run,
    None if unknown; `committed`: the last batch that Spark had committed, -1 if none.
    """

    checkpoint: str
    newest_epoch: int | None = None
    committed: int = -1

    def may_begin_with_nothing(self, epoch: int) -> bool:
        """Return True if `epoch` is the first epoch of the run, and the operator had never run
        before the run. False for later epochs of the run: the operator may have run since."""
        return self.newest_epoch == NEVER_RUN and epoch == self.committed + 1


@dataclass(frozen=True, slots=True)
class EpochTask:
    """A task of a micro-batch.

    `epoch`: Spark's batch id; `attempt`: Spark's task attempt id, which grows over the life of the
    application; `run_id`: id of the query's run; `subtask`: number in [0, parallelism);
    `ended_runs`: runs of queries that had ended at the start of this run, as far as the driver
    knows; `start`: facts from the start of the query, None if the driver did not collect the facts,
    for example because the query was not started in Python.
    """

    query_id: str
    run_id: str
    epoch: int
    subtask: int
    attempt: int
    ended_runs: tuple[str, ...] = ()
    start: OperatorStart | None = None


@dataclass(frozen=True, slots=True)
class EpochRequest:
    """A request to run an epoch. `module_path`: entries of the worker's `sys.path`, for the
    processor's modules; `local_directories`: Spark's directories for local files of the executor.
    """

    spec: OperatorSpec
    task: EpochTask
    module_path: tuple[str, ...]
    local_directories: tuple[str, ...] = ()

    @property
    def store_url(self) -> str:
        return operator_store_url(self.spec.store_root, self.task.query_id, self.spec.operator)


@dataclass(frozen=True, slots=True)
class SentOperator:
    """The facts of an operator that a task needs, and the operator's pickle for the host.

    `name`: the operator's name; `key_group_index`: position of the column with the key group of a
    row; `pickled_spec`: pickle of the OperatorSpec; other fields: as in OperatorSpec.
    """

    name: str
    store_root: str
    parallelism: int
    max_parallelism: int
    hosts: HostSettings
    key_group_index: int
    pickled_spec: bytes = field(repr=False)

    @classmethod
    def of(cls, spec: OperatorSpec) -> SentOperator:
        """Return the operator of a spec, for tasks."""
        return cls(
            name=spec.operator,
            store_root=spec.store_root,
            parallelism=spec.parallelism,
            max_parallelism=spec.max_parallelism,
            # An executor needs no more hosts than the operator has subtasks.
            hosts=replace(spec.hosts, per_executor=min(spec.hosts.per_executor, spec.parallelism)),
            key_group_index=spec.processor.run_plan.inputs.layout.key_group_index,
            pickled_spec=dumps(spec),
        )


@dataclass(frozen=True, slots=True)
class SentRequest:
    """Message of a task to a host: an EpochRequest whose operator is still pickled."""

    operator: SentOperator
    task: EpochTask
    module_path: tuple[str, ...]
    local_directories: tuple[str, ...] = ()

    @property
    def store_url(self) -> str:
        operator = self.operator
        return operator_store_url(operator.store_root, self.task.query_id, operator.name)

    def received(self) -> EpochRequest:
        """Return the request with the unpickled operator."""
        spec = _unpickled(self.operator.pickled_spec)
        return EpochRequest(spec, self.task, self.module_path, self.local_directories)


@lru_cache(_UNPICKLED_OPERATORS)
def _unpickled(pickled_spec: bytes) -> OperatorSpec:
    spec: OperatorSpec = pickle.loads(pickled_spec)
    return spec


def forget_operators() -> None:
    """Drop all unpickled operators and their pickles from memory. A pickle contains the processor,
    so a pickle may be large."""
    _unpickled.cache_clear()


def operator_store_url(store_root: str, query_id: str, operator: str) -> str:
    """Return the URL of an operator's store."""
    return f"{store_root.rstrip('/')}/{query_id}/{operator}"
