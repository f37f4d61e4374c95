"""The options of `format("cowstate")`, parsed once: for sinks, batch reads and streams.

The names of options are in camel case; a user may write a name in upper or lower case, as in Spark.
Unknown options, bad values and contradictory options raise a ConfigurationError that lists the
allowed names or values. option_values parses the values.

Fields of all three classes:

    url                    the table's URL, from option `path`
    storage_options        the options for fsspec
    store_retry_seconds    for so many seconds a failing call to the store is tried again
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from checkpoint_store.objects.store_outages import RETRY_SECONDS
from checkpoint_store.provider.provider_store import ProviderStore
from checkpoint_store.tables.unnamed_files import LEAST_GRACE_SECONDS
from datasources.options.catalog_tables import IN_CATALOG, NO_CATALOG, OF_CATALOG, are_of_catalog
from datasources.options.option_values import (
    a_boolean,
    a_column,
    a_duration,
    a_first_version,
    a_json_object,
    a_table_url,
    a_text,
    a_time,
    choice,
    column_list,
    integer,
    size,
)
from spark_state.errors import ConfigurationError
from spark_state.spark.session.setting_values import MAX_PARALLELISM_LIMIT

OnDuplicate = Literal["error", "first", "last"]
OnNullKey = Literal["error", "drop", "keep"]
CheckpointingMode = Literal["exactly_once", "at_least_once"]

_Parse = Callable[[str, str], Any]
_PARSE = "parse"
_MEBIBYTE = 1 << 20
# A look for new versions takes a request or two, and an idle query looks 100 times a second.
_REMOTE_POLL_SECONDS = 1.0


def _option(parse: _Parse, default: Any = None) -> Any:
    """A field with the value of an option. `parse`: see option_values."""
    return field(default=default, metadata={_PARSE: parse})


def _storage_options() -> Any:
    metadata = {_PARSE: a_json_object}
    return field(default_factory=dict, repr=False, hash=False, metadata=metadata)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of `df.write` and `df.writeStream`.

    keys: the key columns, in order; empty: the key columns of the table.
    sequence_by: the column whose greatest value wins.
    delete_when: a boolean column, or a predicate; a row with value true deletes its key.
    ignore_null_updates: True if a null in a row does not overwrite the value in the table.
    max_parallelism: number of key groups; fixed when a table is created.
    merge_schema: True if rows may bring new columns.
    on_duplicate: the winner among several rows of a key in one batch, if there is no sequence_by.
    on_null_key: the treatment of a row with a null in its key.
    take_over: True if this query replaces another query as the table's writer.
    min_versions_to_retain: at least this many newest versions stay readable.
    auto_compact_bytes: most bytes of files that the query folds into one file before a commit; 0:
    the query folds no files.
    orphan_grace_seconds: files that no version names are kept until the newest file of their batch
    is this many seconds old.
    given: the fields that the user has set; the other fields have their defaults.
    """

    url: str = field(metadata={_PARSE: a_table_url})
    keys: tuple[str, ...] = _option(column_list, ())
    sequence_by: str | None = _option(a_column)
    delete_when: str | None = _option(a_text)
    ignore_null_updates: bool = _option(a_boolean, False)
    max_parallelism: int = _option(integer(1, MAX_PARALLELISM_LIMIT), 128)
    merge_schema: bool = _option(a_boolean, False)
    on_duplicate: OnDuplicate = _option(choice("error", "first", "last"), "error")
    on_null_key: OnNullKey = _option(choice("error", "drop", "keep"), "error")
    take_over: bool = _option(a_boolean, False)
    min_versions_to_retain: int = _option(integer(2), 100)
    auto_compact_bytes: int = _option(size(0), 64 * _MEBIBYTE)
    orphan_grace_seconds: int = _option(integer(LEAST_GRACE_SECONDS), 86_400)
    storage_options: Mapping[str, Any] = _storage_options()
    store_retry_seconds: int = _option(integer(1), RETRY_SECONDS)
    given: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """The options of `spark.read`.

    version_as_of: the version to read.
    timestamp_as_of: read the version that was the newest at this time (ms since 1970). Without
    version_as_of and timestamp_as_of, the newest version is read.
    read_change_feed: read changes instead of state, from starting_version or starting_timestamp to
    ending_version or ending_timestamp, inclusive.
    preimages: True if an update or a delete comes with the row before the change.
    state: for an operator in Python, the name of a state; None: the only state. For a query's
    checkpoint, the operator and its store; None: the only store of operator 0.
    columns: the columns to read; empty: all.
    flatten_collection_types: a row for each element of a list state or entry of a map state.
    push_filters: True if filters limit the key groups and files to read; see table_source.
    num_partitions: the greatest number of partitions.
    """

    url: str = field(metadata={_PARSE: a_table_url})
    version_as_of: int | None = _option(integer(0))
    timestamp_as_of: int | None = _option(a_time)
    read_change_feed: bool = _option(a_boolean, False)
    preimages: bool = _option(a_boolean, True)
    starting_version: int | None = _option(integer(0))
    ending_version: int | None = _option(integer(0))
    starting_timestamp: int | None = _option(a_time)
    ending_timestamp: int | None = _option(a_time)
    state: str | ProviderStore | None = None
    columns: tuple[str, ...] = _option(column_list, ())
    flatten_collection_types: bool = _option(a_boolean, False)
    push_filters: bool = _option(a_boolean, False)
    num_partitions: int | None = _option(integer(1, MAX_PARALLELISM_LIMIT))
    storage_options: Mapping[str, Any] = _storage_options()
    store_retry_seconds: int = _option(integer(1), RETRY_SECONDS)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of `spark.readStream`.

    starting_version, starting_timestamp: the first changes to read, inclusive; both None: first
    the state as inserts, then all later changes.
    max_versions_per_trigger, max_bytes_per_trigger, max_files_per_trigger: the most in one batch.
    fail_on_data_loss: True if the stream fails when changes that it has not read were deleted.
    checkpointing_mode: exactly_once waits for all channels of an epoch, at_least_once does not.
    read_change_feed: True if rows have the columns that describe the change.
    preimages: True if an update or a delete comes with the row before the change.
    poll_interval_seconds: the least time between two looks for new versions.
    state_cache_bytes: a worker keeps states of up to this size for preimages of later batches.
    state, num_partitions: the same as in ReaderOptions.
    """

    url: str = field(metadata={_PARSE: a_table_url})
    starting_version: int | Literal["earliest", "latest"] | None = _option(a_first_version)
    starting_timestamp: int | None = _option(a_time)
    max_versions_per_trigger: int | None = _option(integer(1))
    max_bytes_per_trigger: int | None = _option(size(1))
    max_files_per_trigger: int | None = _option(integer(1))
    fail_on_data_loss: bool = _option(a_boolean, True)
    checkpointing_mode: CheckpointingMode = _option(
        choice("exactly_once", "at_least_once"), "exactly_once"
    )
    read_change_feed: bool = _option(a_boolean, False)
    preimages: bool = _option(a_boolean, True)
    poll_interval_seconds: float = _option(a_duration, 0.0)
    state_cache_bytes: int = _option(size(0), 128 * _MEBIBYTE)
    state: str | ProviderStore | None = None
    num_partitions: int | None = _option(integer(1, MAX_PARALLELISM_LIMIT))
    storage_options: Mapping[str, Any] = _storage_options()
    store_retry_seconds: int = _option(integer(1), RETRY_SECONDS)


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parse the options of a write. Raises ConfigurationError."""
    values = _parsed(options, "writes")
    if are_of_catalog(options):
        # Spark itself refuses columns that the catalog does not have.
        values.setdefault("mergeSchema", True)
    _refuse_both(values, "sequenceBy", "onDuplicate", "the row with the greatest value wins")
    parsed = SinkOptions(**_as_fields(values), given=frozenset(_as_fields(values)) - {"url"})
    if parsed.sequence_by in parsed.keys:
        raise ConfigurationError(
            f"option sequenceBy is {parsed.sequence_by!r}, which is also a key column, so all rows "
            "of a key have the same value; name a column that grows with every change"
        )
    return parsed


def parse_reader_options(options: Mapping[str, str]) -> ReaderOptions:
    """Parse the options of a batch read. Raises ConfigurationError."""
    values = _parsed(options, "batch reads")
    state_names = ("versionAsOf", "timestampAsOf")
    feed_names = ("startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp")
    _refuse_both(values, *state_names, "each names the version to read")
    _refuse_both(values, *feed_names[:2], "each names the first change to read")
    _refuse_both(values, *feed_names[2:], "each names the last change to read")
    if values.get("readChangeFeed"):
        for name in state_names:
            _refuse_both(
                values,
                "readChangeFeed",
                name,
                "a change feed spans several versions, and a stream always reads changes",
            )
        if values.get("flattenCollectionTypes"):
            raise ConfigurationError(
                "options readChangeFeed and flattenCollectionTypes are both true; a change shows a "
                "whole list or map: leave flattenCollectionTypes out, and explode the column"
            )
    else:
        for name in (*feed_names, "preimages"):
            if name in values:
                raise ConfigurationError(
                    f"option {name} is for the change feed: set readChangeFeed to true as well, or "
                    "name the version to read with versionAsOf or timestampAsOf"
                )
    for unit in ("Version", "Timestamp"):
        start, end = values.get(f"starting{unit}"), values.get(f"ending{unit}")
        if start is not None and end is not None and start > end:
            raise ConfigurationError(
                f"option starting{unit} is after ending{unit} ({start} > {end}); swap the two"
            )
    return ReaderOptions(**_as_fields(_with_state(values)))


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Parse the options of a stream. Raises ConfigurationError."""
    values = _parsed(options, "streams")
    names = ("startingVersion", "startingTimestamp")
    _refuse_both(values, *names, "each names the first change to read")
    is_remote = "://" in values["path"] and not values["path"].startswith(("file:", "memory:"))
    values.setdefault("pollIntervalSeconds", _REMOTE_POLL_SECONDS if is_remote else 0.0)
    return StreamOptions(**_as_fields(_with_state(values)))


def parse_read_options(options: Mapping[str, str]) -> ReaderOptions | StreamOptions:
    """Parse the options of a batch read. If a batch read refuses the options, parse the options of
    a stream. If a stream refuses the options, too, raises the ConfigurationError of the stream or
    of the batch read; `_are_of_a_stream` chooses."""
    try:
        return parse_reader_options(options)
    except ConfigurationError as batch_error:
        try:
            return parse_stream_options(options)
        except ConfigurationError as stream_error:
            raise (stream_error if _are_of_a_stream(options) else batch_error) from None


def _are_of_a_stream(options: Mapping[str, str]) -> bool:
    """True if streams have more of the given options than batch reads have. If the numbers are
    equal, true if readChangeFeed is given, because `readStream` sets readChangeFeed in a session
    that `spark_state.configure` built."""
    given = {_meant_name(name) for name in options}
    names = {use: {name.lower() for name in parsers} for use, parsers in _OPTIONS.items()}
    of_stream, of_batch = (len(given & names[use]) for use in ("streams", "batch reads"))
    return of_stream > of_batch or (of_stream == of_batch and "readchangefeed" in given)


def has_other_columns(options: Mapping[str, str]) -> bool:
    """True if the options are of a table of Spark's catalog whose columns differ from the columns
    in the store, such as a change feed. Such a table can only be read."""
    if not are_of_catalog(options):
        return False
    return reads_other_columns(parse_read_options(options))


def reads_other_columns(options: ReaderOptions | StreamOptions) -> bool:
    """True if a read returns other columns than the rows in the store have: the columns of a change
    feed, chosen columns, or elements of lists and maps."""
    if options.read_change_feed:
        return True
    return isinstance(options, ReaderOptions) and bool(
        options.columns or options.flatten_collection_types
    )


def is_an_option(name: str) -> bool:
    """True if reads or writes have an option of this name, in upper or lower case."""
    return name.lower() in _NAMES


def column_named(name: str, columns: Sequence[str], where: str) -> str:
    """Find a column by the name that a user gives; upper and lower case are the same, as in Spark.
    Raises ConfigurationError, with a message that begins with `where`."""
    if name in columns:
        return name
    meant = [column for column in columns if column.lower() == name.lower()]
    if len(meant) == 1:
        return meant[0]
    raise ConfigurationError(
        f"{where} {name!r}, which is not a column of the rows; {_near(name, columns)}the columns "
        f"are {', '.join(columns)}"
    )


def _parsed(options: Mapping[str, str], use: str) -> dict[str, Any]:
    """The values of the options that are set, by the name of the option in camel case."""
    spelled = {name.lower(): name for name in _OPTIONS[use]}
    ignored = set(_SPARK_OPTIONS)
    if are_of_catalog(options):
        # OPTIONS of CREATE TABLE hold options of reads beside options of writes.
        ignored |= _NAMES - set(spelled)
    values: dict[str, Any] = {}
    # Aliases come last, so that the value of an alias meets the value of the option's own name.
    for given, text in sorted(options.items(), key=lambda option: option[0].lower() in _MEANT):
        name = _meant_name(given)
        if name in ignored:
            continue
        if name not in spelled:
            raise _unknown(given, use)
        name = spelled[name]
        value = _OPTIONS[use][name](name, text)
        if values.get(name, value) != value:
            raise ConfigurationError(
                f"options {name} and {given} are one, but are {values[name]} and {value}; set one"
            )
        values[name] = value
    if "path" not in values:
        raise ConfigurationError(
            "the table's path is missing: pass it to load, save or start, or set option path. "
            + NO_CATALOG
        )
    return values


def _meant_name(given: str) -> str:
    """The name of an option in lower case, for a user's spelling, which may be an alias."""
    return _MEANT.get(given.lower(), given.lower())


def _with_state(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the options that choose a state by one value `state`."""
    for name in _CHECKPOINT_CHOICES:
        why = f"stateVarName is for the store of a Python operator, {name} for a checkpoint"
        _refuse_both(values, "stateVarName", name, why)
    _refuse_both(values, "storeName", "joinSide", "each names a store of the operator")
    chosen = {name: values[name] for name in _CHECKPOINT_CHOICES if name in values}
    state = ProviderStore(**_as_fields(chosen)) if chosen else values.get("stateVarName")
    others = {name: values[name] for name in values if name not in _STATE_CHOICES}
    return {**others, "state": state}


def _as_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    snake = {re.sub(r"[A-Z]", lambda upper: f"_{upper[0].lower()}", key): key for key in values}
    return {("url" if name == "path" else name): values[key] for name, key in snake.items()}


def _unknown(name: str, use: str) -> ConfigurationError:
    if name.lower() in OF_CATALOG:
        return ConfigurationError(NO_CATALOG)
    if name.lower() == "paths":
        return ConfigurationError("several paths are given; a table has one")
    elsewhere = [
        f"{option} is an option of {other}; "
        for other, options in _OPTIONS.items()
        for option in options
        if option.lower() == _meant_name(name)
    ]
    hint = elsewhere[0] if elsewhere else _near(name, list(_OPTIONS[use]))
    return ConfigurationError(
        f"unknown option {name} of {use}; {hint}options are {', '.join(_OPTIONS[use])}"
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


def _options_of(options: type[SinkOptions | ReaderOptions | StreamOptions]) -> dict[str, _Parse]:
    """The parsers of the options that are fields of class `options`, by the option's name."""
    parsers = {each.name: each.metadata[_PARSE] for each in fields(options) if each.metadata}
    return {"path": parsers.pop("url"), **{_camel(name): parsers[name] for name in parsers}}


def _camel(name: str) -> str:
    return re.sub("_(.)", lambda after: after[1].upper(), name)


# Options that choose a state: the store of a Python operator, or a store of a checkpoint.
_CHECKPOINT_CHOICES: dict[str, _Parse] = {
    "operatorId": integer(0),
    "storeName": a_text,
    "joinSide": choice("left", "right"),
}
_STATE_CHOICES = {"stateVarName": a_text, **_CHECKPOINT_CHOICES}
_OPTIONS = {
    "writes": _options_of(SinkOptions),
    "batch reads": {**_options_of(ReaderOptions), **_STATE_CHOICES},
    "streams": {**_options_of(StreamOptions), **_STATE_CHOICES},
}
# In lower case: names of options in Spark's own state reader, with our names.
_MEANT = {"batchid": "versionasof"}
_NAMES = {name.lower() for names in _OPTIONS.values() for name in names} | set(_MEANT)
# Options that reach us but are for others: users set the first two for Spark, the jar sets the
# third to mark a table of the catalog.
_SPARK_OPTIONS = {"checkpointlocation", "queryname", IN_CATALOG}
