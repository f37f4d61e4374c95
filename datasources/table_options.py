"""What users say to `format("cowstate")`, parsed once: sink, batch reader and stream reader.

Option names are camel case and, as Spark's, of any case; `path` is the table's. Unknown options,
bad values and options that contradict each other are ConfigurationErrors that say what is allowed.

What a value may be, see option_values. `storeRetrySeconds` is how long a call to the store is tried
again that fails.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from checkpoint_store.objects.store_outages import RETRY_SECONDS
from datasources.catalog_tables import IN_CATALOG, NO_CATALOG, OF_CATALOG, are_of_catalog
from datasources.option_values import (
    Choice,
    Integer,
    IntegerOrChoice,
    a_boolean,
    a_duration,
    a_json_object,
    a_positive_size,
    a_size,
    a_table_url,
    a_text,
    a_time,
    column_list,
)
from spark_state.errors import ConfigurationError
from spark_state.spark.operator.operator_configuration import MAX_PARALLELISM_LIMIT

OnDuplicate = Literal["error", "first", "last"]
OnNullKey = Literal["error", "drop", "keep"]
CheckpointingMode = Literal["exactly_once", "at_least_once"]

_MEBIBYTE = 1 << 20
# Each look is a request or two, and Spark asks a hundred times a second while nothing comes.
_REMOTE_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of `df.write` and `df.writeStream`.

    keys: the key columns, in order; empty: the table's.
    sequence_by: the column whose greatest value wins.
    delete_when: a boolean column, or a predicate; rows for which it is true delete their key.
    ignore_null_updates: a null keeps what the key has.
    max_parallelism: number of key groups; fixed when a table is created.
    merge_schema: whether rows may bring new columns.
    on_duplicate: what several rows of a key in one batch are, without sequence_by.
    on_null_key: what a row with a null in its key is.
    take_over: whether the table's writer, another query, is replaced by this one.
    min_epochs_to_retain: at least this many newest versions stay readable.
    auto_compact_bytes: a state of up to this many bytes is compacted by the query itself.
    given: the fields that the user has set; the others have their defaults.
    """

    url: str
    keys: tuple[str, ...] = ()
    sequence_by: str | None = None
    delete_when: str | None = None
    ignore_null_updates: bool = False
    max_parallelism: int = 128
    merge_schema: bool = False
    on_duplicate: OnDuplicate = "error"
    on_null_key: OnNullKey = "error"
    take_over: bool = False
    min_epochs_to_retain: int = 100
    auto_compact_bytes: int = 64 * _MEBIBYTE
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    store_retry_seconds: int = RETRY_SECONDS
    given: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """The options of `spark.read`.

    version_as_of, timestamp_as_of: the version to read, itself or as the newest that is not
    younger than a time (ms since 1970); neither: the newest.
    read_change_feed: changes instead of state, between versions or times, both inclusive.
    preimages: whether changes say what a key was before.
    state_var_name: the state to read of an operator that has several.
    columns: the columns to read; empty: all.
    flatten_collection_types: a row for each element of a list state or entry of a map state.
    push_filters: whether filters leave out key groups and files, see datasources.table_source.
    num_partitions: at most this many partitions.
    """

    url: str
    version_as_of: int | None = None
    timestamp_as_of: int | None = None
    read_change_feed: bool = False
    preimages: bool = True
    starting_version: int | None = None
    ending_version: int | None = None
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    state_var_name: str | None = None
    columns: tuple[str, ...] = ()
    flatten_collection_types: bool = False
    push_filters: bool = False
    num_partitions: int | None = None
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    store_retry_seconds: int = RETRY_SECONDS


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of `spark.readStream`.

    starting_version, starting_timestamp: the first changes to read, inclusive; neither: the state
    as inserts, then all changes after it.
    max_epochs_per_trigger, max_bytes_per_trigger, max_files_per_trigger: at most so much a batch.
    fail_on_data_loss: whether changes that are gone before they were read are an error.
    checkpointing_mode: exactly_once waits for all channels of an epoch, at_least_once does not.
    read_change_feed: whether the columns that say what a change is are read.
    preimages: whether changes say what a key was before.
    poll_interval_seconds: the least time between two looks for new versions.
    state_cache_bytes: a worker keeps states up to so many bytes for the preimages of later batches.
    """

    url: str
    starting_version: int | Literal["earliest", "latest"] | None = None
    starting_timestamp: int | None = None
    max_epochs_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    max_files_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    checkpointing_mode: CheckpointingMode = "exactly_once"
    read_change_feed: bool = False
    preimages: bool = True
    poll_interval_seconds: float = 0.0
    state_cache_bytes: int = 128 * _MEBIBYTE
    state_var_name: str | None = None
    num_partitions: int | None = None
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    store_retry_seconds: int = RETRY_SECONDS


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Raises ConfigurationError."""
    values = _parsed(options, "writes")
    if are_of_catalog(options):
        # Spark lets rows have only columns that the catalog knows.
        values.setdefault("mergeSchema", True)
    _refuse_both(values, "sequenceBy", "onDuplicate", "the row with the greatest value wins")
    parsed = SinkOptions(**_as_fields(values), given=frozenset(_as_fields(values)) - {"url"})
    if parsed.sequence_by in parsed.keys:
        raise ConfigurationError(
            f"option sequenceBy is {parsed.sequence_by!r}, which is also a key column: all rows of "
            "a key have the same value; name a column that grows with every change"
        )
    return parsed


def parse_reader_options(options: Mapping[str, str]) -> ReaderOptions:
    """Raises ConfigurationError."""
    values = _parsed(options, "batch reads")
    of_a_version = ("versionAsOf", "timestampAsOf")
    of_changes = ("startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp")
    _refuse_both(values, *of_a_version, "each names the version to read")
    _refuse_both(values, *of_changes[:2], "each names the first change to read")
    _refuse_both(values, *of_changes[2:], "each names the last change to read")
    if values.get("readChangeFeed"):
        for name in of_a_version:
            _refuse_both(
                values,
                "readChangeFeed",
                name,
                "changes are of several versions, and a stream always reads changes",
            )
        if values.get("flattenCollectionTypes"):
            raise ConfigurationError(
                "options readChangeFeed and flattenCollectionTypes are both true; a change is of a "
                "whole list or map: leave flattenCollectionTypes out, and explode the column"
            )
    else:
        _refuse_without_change_feed(values, (*of_changes, "preimages"))
    for unit in ("Version", "Timestamp"):
        start, end = values.get(f"starting{unit}"), values.get(f"ending{unit}")
        if start is not None and end is not None and start > end:
            raise ConfigurationError(
                f"option starting{unit} is after ending{unit} ({start} > {end}); exchange them"
            )
    return ReaderOptions(**_as_fields(values))


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Raises ConfigurationError."""
    values = _parsed(options, "streams")
    names = ("startingVersion", "startingTimestamp")
    _refuse_both(values, *names, "each names the first change to read")
    is_remote = "://" in values["path"] and not values["path"].startswith(("file:", "memory:"))
    values.setdefault("pollIntervalSeconds", _REMOTE_POLL_SECONDS if is_remote else 0.0)
    return StreamOptions(**_as_fields(values))


def parse_read_options(options: Mapping[str, str]) -> ReaderOptions | StreamOptions:
    """The options of a batch read or of a stream, whichever they are. Raises ConfigurationError:
    for a name that neither has, and else what a stream says if only a stream knows all of them."""
    try:
        return parse_reader_options(options)
    except ConfigurationError as error:
        try:
            return parse_stream_options(options)
        except ConfigurationError as of_stream:
            of_either = _unknown_to_reads(options)
            raise of_either or (of_stream if _are_of_a_stream(options) else error) from None


def _are_of_a_stream(options: Mapping[str, str]) -> bool:
    """Whether a stream knows the names of all options, and a batch read does not, or whether they
    are the change feed's of both, which is a stream's first."""
    given = {_ALIASES.get(name.lower(), name.lower()) for name in options} - _OF_SPARK
    names_of = {use: {name.lower() for name in names} for use, names in _OPTIONS.items()}
    return given <= names_of["streams"] and (
        not given <= names_of["batch reads"] or "readchangefeed" in given
    )


def has_other_columns(options: Mapping[str, str]) -> bool:
    """Whether a table of the catalog has other columns than its rows: nobody can write those."""
    if not are_of_catalog(options):
        return False
    return reads_other_columns(parse_read_options(options))


def reads_other_columns(options: ReaderOptions | StreamOptions) -> bool:
    """Whether a read has other columns than the rows of a table."""
    if options.read_change_feed:
        return True
    return isinstance(options, ReaderOptions) and bool(
        options.columns or options.flatten_collection_types
    )


def is_an_option(name: str) -> bool:
    """Whether reads or writes have an option of this name, of any case."""
    return name.lower() in _NAMES


def _unknown_to_reads(options: Mapping[str, str]) -> ConfigurationError | None:
    given = {_ALIASES.get(name.lower(), name.lower()): name for name in options}
    uses = ["batch reads", "streams"]
    if "readchangefeed" in given:
        # A session that `configure` built sets it for streams.
        uses.reverse()
    readable = {name.lower() for use in uses for name in _OPTIONS[use]} | _OF_SPARK
    if are_of_catalog(options):
        readable |= _NAMES
    unknown = [name for meant, name in given.items() if meant not in readable]
    return _unknown(unknown[0], *uses) if unknown else None


def missing_keys_error(url: str) -> ConfigurationError:
    """A table is about to be created, and nobody has said what its keys are."""
    return ConfigurationError(
        f"there is no table at {url} yet, and option keys is not set: name the columns that tell "
        'rows apart, as in option("keys", "id") or option("keys", "country,city"), or in OPTIONS '
        "(keys 'id') of CREATE TABLE"
    )


def column_named(name: str, columns: Sequence[str], where: str) -> str:
    """The column that a user means, of any case as in Spark. `where` begins the error's message."""
    if name in columns:
        return name
    meant = [column for column in columns if column.lower() == name.lower()]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise ConfigurationError(f"{where} {name!r}, which may be {' or '.join(meant)}")
    raise ConfigurationError(
        f"{where} {name!r}, which is not a column of the rows; {_near(name, columns)}columns are "
        f"{', '.join(columns)}"
    )


def _parsed(options: Mapping[str, str], use: str) -> dict[str, Any]:
    """The values of the options that are set, by their names as we spell them."""
    spelled = {name.lower(): name for name in _OPTIONS[use]}
    ignored = set(_OF_SPARK)
    if are_of_catalog(options):
        # OPTIONS of CREATE TABLE are for reads and for writes.
        ignored |= _NAMES - set(spelled)
    values: dict[str, Any] = {}
    for given, text in options.items():
        name = _ALIASES.get(given.lower(), given.lower())
        if name in ignored:
            continue
        if name not in spelled:
            raise _unknown(given, use)
        name = spelled[name]
        value = _OPTIONS[use][name](name, text)
        if values.get(name, value) != value:
            raise ConfigurationError(
                f"options {name} and batchId are one, but are {values[name]} and {value}; set one"
            )
        values[name] = value
    if "path" not in values:
        raise ConfigurationError(
            "the table's path is missing: pass it to load, save or start, or set option path. "
            + NO_CATALOG
        )
    return values


def _as_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    snake = {re.sub(r"[A-Z]", lambda upper: f"_{upper[0].lower()}", key): key for key in values}
    return {("url" if name == "path" else name): values[key] for name, key in snake.items()}


def _unknown(name: str, *uses: str) -> ConfigurationError:
    if name.lower() in OF_CATALOG:
        return ConfigurationError(NO_CATALOG)
    if name.lower() == "paths":
        return ConfigurationError("several paths are given; a table has one")
    of_uses = [
        f"{f'of {use} ' if len(uses) > 1 else ''}are {', '.join(_OPTIONS[use])}" for use in uses
    ]
    return ConfigurationError(
        f"unknown option {name} of {' and '.join(uses)}; {_meant(name, uses)}"
        f"options {'; '.join(of_uses)}"
    )


def _meant(name: str, uses: Sequence[str]) -> str:
    """What a user may have meant by an option that these uses do not have; ends in a space."""
    meant = _ALIASES.get(name.lower(), name.lower())
    for use, options in _OPTIONS.items():
        for option in options:
            if option.lower() == meant:
                return f"{option} is an option of {use}; "
    # A stream's options are first seen as those of a batch read.
    return _near(name, [option for use in uses for option in _OPTIONS[use]]) or _near(
        name, [option for options in _OPTIONS.values() for option in options]
    )


def _near(name: str, candidates: Sequence[str]) -> str:
    spelled = {candidate.lower(): candidate for candidate in candidates}
    near = difflib.get_close_matches(name.lower(), spelled)
    return f"did you mean {' or '.join(spelled[lower] for lower in near)}? " if near else ""


def _refuse_both(values: Mapping[str, Any], first: str, second: str, why: str) -> None:
    if first in values and second in values:
        raise ConfigurationError(
            f"options {first} and {second} are both set; {why}: set one of them"
        )


def _refuse_without_change_feed(values: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in names:
        if name in values:
            raise ConfigurationError(
                f"option {name} is of the change feed: set readChangeFeed to true as well, or "
                "name the version to read with versionAsOf or timestampAsOf"
            )


_Parse = Callable[[str, str], Any]
_ON_ALL: dict[str, _Parse] = {
    "path": a_table_url,
    "storageOptions": a_json_object,
    "storeRetrySeconds": Integer(1),
}
_ON_READS: dict[str, _Parse] = {
    **_ON_ALL,
    "stateVarName": a_text,
    "numPartitions": Integer(1, MAX_PARALLELISM_LIMIT),
}
_OPTIONS: dict[str, dict[str, _Parse]] = {
    "writes": {
        **_ON_ALL,
        "keys": column_list,
        "sequenceBy": a_text,
        "deleteWhen": a_text,
        "ignoreNullUpdates": a_boolean,
        "maxParallelism": Integer(1, MAX_PARALLELISM_LIMIT),
        "mergeSchema": a_boolean,
        "onDuplicate": Choice(("error", "first", "last")),
        "onNullKey": Choice(("error", "drop", "keep")),
        "takeOver": a_boolean,
        "minEpochsToRetain": Integer(2),
        "autoCompactBytes": a_size,
    },
    "batch reads": {
        **_ON_READS,
        "versionAsOf": Integer(0),
        "timestampAsOf": a_time,
        "readChangeFeed": a_boolean,
        "preimages": a_boolean,
        "startingVersion": Integer(0),
        "endingVersion": Integer(0),
        "startingTimestamp": a_time,
        "endingTimestamp": a_time,
        "columns": column_list,
        "flattenCollectionTypes": a_boolean,
        "pushFilters": a_boolean,
    },
    "streams": {
        **_ON_READS,
        "startingVersion": IntegerOrChoice(Integer(0), Choice(("earliest", "latest"))),
        "startingTimestamp": a_time,
        "maxEpochsPerTrigger": Integer(1),
        "maxBytesPerTrigger": a_positive_size,
        "maxFilesPerTrigger": Integer(1),
        "failOnDataLoss": a_boolean,
        "checkpointingMode": Choice(("exactly_once", "at_least_once")),
        "readChangeFeed": a_boolean,
        "preimages": a_boolean,
        "pollIntervalSeconds": a_duration,
        "stateCacheBytes": a_size,
    },
}
_NAMES = {name.lower() for names in _OPTIONS.values() for name in names}
_ALIASES = {"batchid": "versionasof"}
# What Spark sets for its own use when a query is started with it as an option, and the jar.
_OF_SPARK = {"checkpointlocation", "queryname", IN_CATALOG}
