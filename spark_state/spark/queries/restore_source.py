"""Finds the epoch that gives a new query its first state. The epoch comes from another query: the
setting `spark.cowstate.restoreFrom` names the other query's directory, or the store of an operator.
The epoch is found when the operators of the new query are planned.

The driver chooses the epoch once, so all subtasks begin with the same epoch, even if the other
query goes on. The epoch counts only while the operator's own store has no epoch.

A query's directory may have the stores of several operators. The states of the operators fit
together only after the same epoch. So the driver chooses the newest epoch that all operators have,
as for a savepoint.

The operators of a new query are planned one after another, while the other query goes on. So the
later operators get the epoch that was chosen for the first operator. An operator is the first
operator of a new query in two cases: a query was started since the last operator was planned; or an
operator of the same name is already planned, because the operators of one query have different
names. `check_one_epoch` compares the operators of a query when the query starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from checkpoint_store.epochs.store_metadata import StoreMetadata
from checkpoint_store.errors import CheckpointStoreError, NotAStoreError
from checkpoint_store.files.schema_columns import are_same_types
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.objects.remembered import Remembered
from checkpoint_store.operator_stores import operators_at
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.schema_text import schema_text
from spark_state.errors import ConfigurationError
from spark_state.savepoints.shared_epoch import (
    directory_name,
    epochs_of,
    shared_epoch,
)
from spark_state.spark.session.connect_sessions import called_in_task, is_connect
from spark_state.spark.session.operator_configuration import RESTORE_KEY, OperatorConfiguration
from spark_state.spark.session.setting_values import PREFIX, RestoreFrom
from spark_state.subtasks.epoch_request import RestoreSource

_REMEMBERED_DIRECTORIES = 64


@dataclass(frozen=True, slots=True)
class _BegunRestore:
    """The operators of a new query that are already planned, and the epoch that they begin
    with."""

    epoch: int
    operators: frozenset[str]


# The operators that are planned and not started yet, by the URL of the directory.
_begun: Remembered[str, _BegunRestore] = Remembered(_REMEMBERED_DIRECTORIES)


def restore_source(
    spark: SparkSession, configuration: OperatorConfiguration, operator: str, key_schema_json: str
) -> RestoreSource | None:
    """The store and the epoch that an operator of this name begins with; None if the setting is
    empty. With Spark Connect a task reads the store. Raises ConfigurationError if the store or
    epoch does not exist, or has another key or another number of key groups."""
    chosen = configuration.restore_from
    if chosen is None:
        return None
    begun = _begun.get(chosen.url)
    if begun is not None and operator in begun.operators:
        begun = None  # the operator is the first of its query
    asked = chosen, None if begun is None else begun.epoch, configuration, operator, key_schema_json
    if is_connect(spark):
        source = RestoreSource(*called_in_task(spark, _found, *asked))
    else:
        source = RestoreSource(*_found(*asked))
    if source.directory is not None:
        goes_on = begun is not None and begun.epoch == source.epoch
        others = begun.operators if begun is not None and goes_on else frozenset[str]()
        _begun.put(source.directory, _BegunRestore(source.epoch, others | {operator}))
    return source


def check_one_epoch(operators: Iterable[tuple[str, RestoreSource | None]]) -> None:
    """Raise ConfigurationError if the operators of a query would begin with different epochs of a
    directory. Otherwise forget the chosen epoch, so that a later query begins with the newest
    epoch. `operators`: the names of the operators, with their sources."""
    begun: dict[str, tuple[str, int]] = {}
    for operator, source in operators:
        if source is None or source.directory is None:
            continue
        other, epoch = begun.setdefault(source.directory, (operator, source.epoch))
        if epoch != source.epoch:
            raise ConfigurationError(
                f"{RESTORE_KEY} is {source.directory!r}: {other} was planned to begin with epoch "
                f"{epoch} of it, and {operator} with epoch {source.epoch}, because another query "
                "was planned or started in between. Define the whole query again, or name one "
                f"epoch: {source.directory}@{min(epoch, source.epoch)}"
            )
    for directory in begun:
        _begun.forget(directory)


def _found(
    chosen: RestoreFrom,
    before: int | None,
    configuration: OperatorConfiguration,
    operator: str,
    key_schema_json: str,
) -> tuple[str, int, str | None]:
    """The fields of a RestoreSource, as plain values for the return from a task. `before`: the
    epoch chosen for the operators planned earlier in the same query, None for the first
    operator."""
    try:
        options = configuration.checkpoints.store_options
        histories = operators_at(chosen.url, options, configuration.checkpoints.store_retry_seconds)
        own = open_object_store(chosen.url, options).url.rstrip("/")
        is_directory = histories[0].url.rstrip("/") != own
        history = _of_name(operator, chosen, histories) if is_directory else histories[0]
        _check_same(history.url, history.metadata, configuration, key_schema_json)
        epoch = chosen.epoch
        if epoch is None:
            epoch = _newest_epoch(chosen, histories, before)
        history.checkpoint_at(epoch)
    except NotAStoreError as error:
        raise _not_there(chosen, operator, error.below) from error
    except CheckpointStoreError as error:
        raise ConfigurationError(f"{RESTORE_KEY} is {chosen.url!r}: {error}") from error
    return history.url, epoch, chosen.url if is_directory and chosen.epoch is None else None


def _of_name(
    operator: str, chosen: RestoreFrom, histories: Sequence[OperatorHistory]
) -> OperatorHistory:
    by_name = {directory_name(history): history for history in histories}
    if operator not in by_name:
        raise _not_there(chosen, operator, tuple(by_name))
    return by_name[operator]


def _not_there(chosen: RestoreFrom, operator: str, below: Sequence[str]) -> ConfigurationError:
    there = f"; there are {', '.join(below[:10])}" if below else ""
    return ConfigurationError(
        f"{RESTORE_KEY} is {chosen.url!r}, but neither this nor {operator} below it is the store "
        f"of an operator{there}: set it to <spark.cowstate.store>/<query id>, or to "
        "<spark.cowstate.store>/<query id>/<operator>, with or without @<number of an epoch>"
    )


def _newest_epoch(
    chosen: RestoreFrom, histories: Sequence[OperatorHistory], before: int | None
) -> int:
    """The epoch to begin with: `before` if all operators of `histories` have this epoch, otherwise
    the newest epoch that all these operators have. `before`: the epoch chosen for the operators
    planned earlier in the same query, None for the first operator."""
    held = epochs_of(histories)
    if before is not None and all(before in versions for versions in held.values()):
        return before
    way_out = (
        f"Name an epoch that those of the new query have: {chosen.url}@<epoch>; or the store of "
        "one operator"
    )
    return shared_epoch(chosen.url, histories, held, way_out)


def _check_same(
    url: str, metadata: StoreMetadata, configuration: OperatorConfiguration, key_schema_json: str
) -> None:
    if metadata.max_parallelism != configuration.max_parallelism:
        raise ConfigurationError(
            f"{RESTORE_KEY}: {url} has {metadata.max_parallelism} key groups, and "
            f"{PREFIX}maxParallelism is {configuration.max_parallelism}: set it to "
            f"{metadata.max_parallelism}"
        )
    if not are_same_types(metadata.key_schema_json, key_schema_json):
        raise ConfigurationError(
            f"{RESTORE_KEY}: {url} has the key ({schema_text(metadata.key_schema_json)}), and the "
            f"operator the key ({schema_text(key_schema_json)}): group by the same columns"
        )
