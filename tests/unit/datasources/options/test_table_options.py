"""Valid options are parsed, and an error about a bad option tells the way out."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from checkpoint_store import ProviderStore
from datasources.options.table_options import (
    _MEANT,
    ReaderOptions,
    SinkOptions,
    StreamOptions,
    column_named,
    is_an_option,
    parse_read_options,
    parse_reader_options,
    parse_sink_options,
    parse_stream_options,
)
from spark_state.errors import ConfigurationError

ROOT = Path(__file__).parents[4]
PARSERS = {
    "writes": parse_sink_options,
    "batch reads": parse_reader_options,
    "streams": parse_stream_options,
}


def test_only_the_path_is_needed() -> None:
    path = {"path": "/data/t"}
    assert parse_sink_options(path) == SinkOptions("/data/t")
    assert parse_reader_options(path) == ReaderOptions("/data/t")
    assert parse_stream_options(path) == StreamOptions("/data/t")


# Options by use: name, text, field and value.
PARSED: dict[str, list[tuple[str, str, str, object]]] = {
    "writes": [
        ("keys", " country , city", "keys", ("country", "city")),
        ("sequenceBy", "at", "sequence_by", "at"),
        ("deleteWhen", "op = 'D'", "delete_when", "op = 'D'"),
        ("ignoreNullUpdates", "true", "ignore_null_updates", True),
        ("maxParallelism", "32768", "max_parallelism", 32768),
        ("mergeSchema", "TRUE", "merge_schema", True),
        ("onNullKey", "Drop", "on_null_key", "drop"),
        ("takeOver", "true", "take_over", True),
        ("minVersionsToRetain", "2", "min_versions_to_retain", 2),
        ("autoCompactBytes", "1g", "auto_compact_bytes", 1 << 30),
        ("orphanGraceSeconds", "7200", "orphan_grace_seconds", 7200),
        ("storageOptions", '{"key": "secret"}', "storage_options", {"key": "secret"}),
        ("storeRetrySeconds", "30", "store_retry_seconds", 30),
        ("checkpointLocation", "/checkpoints", "url", "/t"),
        ("queryName", "upserts", "url", "/t"),
    ],
    "batch reads": [
        ("readChangeFeed", "true", "read_change_feed", True),
        ("preimages", "False", "preimages", False),
        ("startingVersion", "3", "starting_version", 3),
        ("endingTimestamp", "1970-01-02", "ending_timestamp", 86_400_000),
        ("stateVarName", "count", "state", "count"),
        ("columns", "id, total", "columns", ("id", "total")),
        ("flattenCollectionTypes", "false", "flatten_collection_types", False),
        ("numPartitions", "8", "num_partitions", 8),
        ("storageOptions", "{}", "storage_options", {}),
        ("storeRetrySeconds", "1", "store_retry_seconds", 1),
    ],
    "streams": [
        ("startingVersion", "Latest", "starting_version", "latest"),
        ("maxVersionsPerTrigger", "5", "max_versions_per_trigger", 5),
        ("maxBytesPerTrigger", "64m", "max_bytes_per_trigger", 64 << 20),
        ("maxFilesPerTrigger", "10", "max_files_per_trigger", 10),
        ("failOnDataLoss", "false", "fail_on_data_loss", False),
        ("checkpointingMode", "at_least_once", "checkpointing_mode", "at_least_once"),
        ("readChangeFeed", "true", "read_change_feed", True),
        ("preimages", "false", "preimages", False),
        ("pollIntervalSeconds", "2.5", "poll_interval_seconds", 2.5),
        ("stateCacheBytes", "1m", "state_cache_bytes", 1 << 20),
        ("stateVarName", "count", "state", "count"),
        ("numPartitions", "4", "num_partitions", 4),
    ],
}


@pytest.mark.parametrize("spelled", [str, str.lower, str.upper])
@pytest.mark.parametrize("use", PARSED)
def test_every_option_is_parsed_whatever_its_case(use: str, spelled: Callable[[str], str]) -> None:
    texts = {spelled(name): text for name, text, _, _ in PARSED[use]}
    parsed = PARSERS[use]({"path": "/t", **texts})
    values = {field: value for _, _, field, value in PARSED[use]}
    if isinstance(parsed, SinkOptions):
        values["given"] = parsed.given
        assert "max_parallelism" in parsed.given
        assert parsed.given.isdisjoint({"on_duplicate", "url"})
        assert "secret" not in repr(parsed)
        assert pickle.loads(pickle.dumps(parsed)) == parsed
        assert hash(parsed) == hash(PARSERS[use]({"path": "/t", **texts}))
    assert parsed == replace(PARSERS[use]({"path": "/t"}), **values)


def test_a_read_may_flatten_collections_and_a_stream_begin_at_a_number_or_a_time() -> None:
    flattened = parse_reader_options({"path": "/t", "flattenCollectionTypes": "true"})
    assert flattened.flatten_collection_types
    assert parse_stream_options({"path": "/t", "startingVersion": "7"}).starting_version == 7
    assert parse_stream_options({"path": "/t", "startingTimestamp": "5"}).starting_timestamp == 5


@pytest.mark.parametrize("parse", [parse_reader_options, parse_stream_options])
def test_a_store_of_a_checkpoint_is_chosen_as_with_sparks_reader(
    parse: Callable[[Mapping[str, str]], ReaderOptions | StreamOptions],
) -> None:
    chosen = {
        ("operatorId=2",): ProviderStore(2),
        ("operatorid=2", "storeName=left-keyToNumValues"): ProviderStore(2, "left-keyToNumValues"),
        ("joinSide=Left",): ProviderStore(join_side="left"),
        (): None,
    }
    for options, state in chosen.items():
        given = dict(option.split("=") for option in options)
        assert parse({"path": "/t", **given}).state == state


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"operatorId": "-1"}, "option operatorId is '-1'; allowed are whole numbers from 0"),
        ({"joinSide": "both"}, "option joinSide is 'both'; allowed are left, right"),
        ({"storeName": " "}, "option storeName is empty"),
        ({"storeName": "x", "joinSide": "left"}, "options storeName and joinSide are both set"),
        ({"stateVarName": "x", "joinSide": "left"}, "stateVarName and joinSide are both set"),
        ({"stateVarName": "x", "operatorId": "0"}, "stateVarName and operatorId are both set"),
    ],
)
def test_meaningless_choices_of_a_store_are_refused(options: dict[str, str], problem: str) -> None:
    for parse in (parse_reader_options, parse_stream_options):
        with pytest.raises(ConfigurationError, match=problem):
            parse({"path": "/t", **options})


@pytest.mark.parametrize(
    ("path", "seconds"),
    [("/t", 0), ("t", 0), ("file:///t", 0), ("file:/t", 0), ("s3://t", 1), ("gs://b/t", 1)],
)
def test_remote_stores_are_polled_once_a_second_and_local_always(path: str, seconds: float) -> None:
    assert parse_stream_options({"path": path}).poll_interval_seconds == seconds
    for text, asked in (("0", 0), ("0.25", 0.25), ("60", 60)):
        given = parse_stream_options({"path": path, "pollIntervalSeconds": text})
        assert given.poll_interval_seconds == asked


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("-1", -1),
        ("1769860800000", 1769860800000),
        ("20260131", 20260131),
        ("2026-01-31", 1769817600000),
        ("2026-01-31 12:00:00", 1769860800000),
        ("2026-01-31T12:00:00Z", 1769860800000),
        ("2026-01-31T13:00:00.123456+01:00", 1769860800123),
    ],
)
def test_times_are_milliseconds_or_iso_8601_in_utc(text: str, milliseconds: int) -> None:
    parsed = parse_reader_options({"path": "/t", "timestampAsOf": text})
    assert parsed.timestamp_as_of == milliseconds


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("10", 10), ("2k", 2048), ("1MB", 1 << 20), ("1T", 1 << 40)]
)
def test_sizes_may_have_a_unit(text: str, size: int) -> None:
    assert parse_sink_options({"path": "/t", "autoCompactBytes": text}).auto_compact_bytes == size


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("relative/t", str(Path("relative/t").absolute())),
        ("file:/data/t", "/data/t"),
        ("file:///data/t", "file:///data/t"),
        (" s3a://bucket/t ", "s3a://bucket/t"),
    ],
)
def test_a_path_becomes_a_url_or_an_absolute_path(path: str, url: str) -> None:
    assert parse_reader_options({"path": path}).url == url


def test_an_alias_means_what_the_option_means() -> None:
    parsed = parse_reader_options({"path": "/t", "versionAsOf": "3"})
    assert parsed != parse_reader_options({"path": "/t"})
    for given in ({"batchId": "3"}, {"batchid": "3"}, {"batchId": "3", "versionAsOf": "3"}):
        assert parse_reader_options({"path": "/t", **given}) == parsed
    assert is_an_option("batchId"), "no property of a table"


@pytest.mark.parametrize("use", PARSERS)
def test_an_unknown_option_is_refused_with_near_ones_and_all(use: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        PARSERS[use]({"path": "/t", "storageoption": "{}"})
    message = str(caught.value)
    assert message.startswith(
        f"unknown option storageoption of {use}; did you mean storageOptions? options are path, "
    )
    with pytest.raises(ConfigurationError, match=f"option zzz of {use}; options are path, "):
        PARSERS[use]({"path": "/t", "zzz": "1"})


@pytest.mark.parametrize(
    ("options", "start"),
    [
        (
            {"readChangeFeed": "true", "maxFilePerTrigger": "1"},
            "maxFilePerTrigger of streams; did you mean maxFilesPerTrigger",
        ),
        (
            {"maxFilePerTrigger": "1", "failOnDataLoss": "false"},
            "maxFilePerTrigger of streams; did you mean maxFilesPerTrigger",
        ),
        ({"versionOf": "1"}, "versionOf of batch reads; did you mean versionAsOf"),
        (
            {"readChangeFeed": "true", "keys": "id"},
            "keys of streams; keys is an option of writes; options are path, startingVersion",
        ),
    ],
)
def test_an_option_of_neither_use_is_refused_for_the_likelier_use(
    options: dict[str, str], start: str
) -> None:
    """Spark does not say if a stream or a batch read asks."""
    with pytest.raises(ConfigurationError) as caught:
        parse_read_options({"path": "/t", **options})
    assert str(caught.value).startswith(f"unknown option {start}")


def test_options_of_a_stream_alone_are_a_stream_s() -> None:
    of_stream = {"path": "/t", "readChangeFeed": "true", "failOnDataLoss": "maybe"}
    with pytest.raises(ConfigurationError, match="failOnDataLoss is 'maybe'; allowed are"):
        parse_read_options(of_stream)
    assert isinstance(parse_read_options({"path": "/t"}), ReaderOptions)
    mixed = {"path": "/t", "versionAsOf": "1", "failOnDataLoss": "true"}
    with pytest.raises(ConfigurationError, match="failOnDataLoss is an option of streams"):
        parse_read_options(mixed)


BAD: list[tuple[str, dict[str, str], str]] = [
    ("writes", {"path": " "}, "option path is empty"),
    ("writes", {"path": "memory://t"}, "each process has a memory of its own"),
    ("writes", {"path": "dbfs:/tables/t"}, "write dbfs://tables/t, or ./dbfs:/tables/t"),
    ("batch reads", {"path": "s3:/bucket/t"}, "write s3://bucket/t"),
    ("batch reads", {"provider": "cowstate"}, "session that spark_state.configure built"),
    ("writes", {"keys": "a,,b"}, "option keys is 'a,,b'; allowed are names of columns"),
    ("writes", {"keys": ""}, "option keys is ''"),
    ("writes", {"keys": "`a,b"}, "quote a comma as in `a,b`"),
    ("writes", {"keys": "a, b, a"}, "option keys names 'a' twice"),
    ("writes", {"sequenceBy": ""}, "option sequenceBy is empty"),
    ("writes", {"mergeSchema": "yes"}, "mergeSchema is 'yes'; allowed are true, false"),
    ("writes", {"maxParallelism": "0"}, "allowed are whole numbers from 1 to 32768"),
    ("writes", {"maxParallelism": "many"}, "maxParallelism is 'many'"),
    ("writes", {"minVersionsToRetain": "1"}, "whole numbers from 2"),
    ("writes", {"orphanGraceSeconds": "60"}, "whole numbers from 3600 to"),
    ("writes", {"autoCompactBytes": "-1"}, "a whole number that may end in k, m, g or t"),
    ("writes", {"autoCompactBytes": "9" * 30}, "a whole number that may end in k, m, g or t"),
    ("writes", {"onDuplicate": "newest"}, "allowed are error, first, last"),
    ("writes", {"sequenceBy": "at", "onDuplicate": "last"}, "sequenceBy and onDuplicate are both"),
    ("writes", {"keys": "id,at", "sequenceBy": "at"}, "sequenceBy is 'at', which is also a key"),
    ("batch reads", {"versionAsOf": "-1"}, "whole numbers from 0"),
    ("batch reads", {"timestampAsOf": "yesterday"}, "milliseconds since 1970 and ISO 8601"),
    ("batch reads", {"timestampAsOf": "2026-13-01"}, "milliseconds since 1970 and ISO 8601"),
    ("batch reads", {"versionAsOf": "1", "timestampAsOf": "1"}, "are both set"),
    ("batch reads", {"versionAsOf": "3", "batchId": "4"}, "versionAsOf and batchId are one"),
    ("batch reads", {"batchid": "4", "versionasof": "3"}, "are one, but are 3 and 4; set one"),
    ("batch reads", {"batchId": "-1"}, "option versionAsOf is '-1'; allowed are"),
    ("batch reads", {"failondataloss": "true"}, "failOnDataLoss is an option of streams"),
    ("writes", {"batchId": "3"}, "versionAsOf is an option of batch reads; "),
    ("streams", {"versionasof": "1"}, "versionAsOf is an option of batch reads"),
    ("streams", {"batchid": "1"}, "batchid of streams; versionAsOf is an option"),
    ("batch reads", {"startingVersion": "1"}, "set readChangeFeed to true as well"),
    ("batch reads", {"readChangeFeed": "false", "endingVersion": "1"}, "set readChangeFeed"),
    ("batch reads", {"preimages": "false"}, "preimages is for the change feed: set readChangeFeed"),
    ("batch reads", {"readChangeFeed": "true", "preimages": "no"}, "allowed are true, false"),
    ("batch reads", {"readChangeFeed": "true", "versionAsOf": "1"}, "are both set"),
    (
        "batch reads",
        {"readChangeFeed": "true", "startingVersion": "1", "startingTimestamp": "1"},
        "options startingVersion and startingTimestamp are both set",
    ),
    (
        "batch reads",
        {"readChangeFeed": "true", "endingVersion": "1", "endingTimestamp": "1"},
        "options endingVersion and endingTimestamp are both set",
    ),
    (
        "batch reads",
        {"readChangeFeed": "true", "flattenCollectionTypes": "true"},
        "a change shows a whole list or map",
    ),
    ("streams", {"startingVersion": "first"}, "from 0 to [0-9]+, earliest, latest"),
    ("streams", {"startingVersion": "1", "startingTimestamp": "1"}, "are both set"),
    ("streams", {"maxBytesPerTrigger": "0"}, "from 1"),
    ("streams", {"maxVersionsPerTrigger": "0"}, "whole numbers from 1"),
    ("streams", {"pollIntervalSeconds": "-1"}, "numbers of seconds from 0"),
    ("streams", {"pollIntervalSeconds": "inf"}, "numbers of seconds from 0"),
    ("streams", {"pollIntervalSeconds": "nan"}, "numbers of seconds from 0"),
    ("streams", {"pollIntervalSeconds": "1 s"}, "numbers of seconds from 0"),
    ("streams", {"checkpointingMode": "maybe"}, "exactly_once, at_least_once"),
    (
        "streams",
        {"readChangeFeed": "upsert"},
        "readChangeFeed is 'upsert'; allowed are true, false",
    ),
]


@pytest.mark.parametrize(("use", "options", "message"), BAD)
def test_bad_options_are_refused(use: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        PARSERS[use]({"path": "/t", **options})


@pytest.mark.parametrize(
    ("start", "end"),
    [("startingVersion", "endingVersion"), ("startingTimestamp", "endingTimestamp")],
)
def test_a_change_feed_that_ends_before_it_starts_is_refused(start: str, end: str) -> None:
    feed = {"path": "/t", "readChangeFeed": "true"}
    assert parse_reader_options({**feed, start: "4", end: "4"}).read_change_feed
    with pytest.raises(ConfigurationError, match=rf"{start} is after {end} \(5 > 4\)"):
        parse_reader_options({**feed, start: "5", end: "4"})


def test_a_missing_path_and_several_paths_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="the table's path is missing: pass it to load"):
        parse_reader_options({})
    with pytest.raises(ConfigurationError, match="several paths are given; a table has one"):
        parse_reader_options({"paths": '["a","b"]'})


@pytest.mark.parametrize("text", ["password=hunter2", '["hunter2"]'])
def test_bad_storage_options_are_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ConfigurationError, match="storageOptions is not a JSON object") as caught:
        parse_sink_options({"path": "/t", "storageOptions": text})
    assert "hunter2" not in str(caught.value)


def test_columns_are_found_as_spark_finds_them() -> None:
    assert column_named("ID", ["id", "name"], "keys names") == "id"
    assert column_named("ID", ["id", "ID"], "keys names") == "ID"
    with pytest.raises(ConfigurationError, match=r"'Id', which is not .* are id, ID$"):
        column_named("Id", ["id", "ID"], "keys names")
    with pytest.raises(
        ConfigurationError, match=r"'nam', .* did you mean name\? the columns are id, n"
    ):
        column_named("nam", ["id", "name"], "keys names")


def test_the_jar_knows_the_same_aliases() -> None:
    catalog_options = (ROOT / "spark_state/jvm/tables/CatalogOptions.scala").read_text("utf-8")
    aliases = re.search(r"Aliases = Map\((.*?)\)", catalog_options, re.DOTALL)
    assert dict(re.findall(r'"(\w+)" -> "(\w+)"', aliases[1])) == _MEANT


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (" a , b c ", ("a", "b c")),
        ("`a,b`, c", ("a,b", "c")),
        ("`a``b`,` c `", ("a`b", " c ")),
        ("`[a]`", ("[a]",)),
    ],
)
def test_names_of_columns_may_be_quoted(text: str, names: tuple[str, ...]) -> None:
    assert parse_sink_options({"path": "/t", "keys": text}).keys == names
    assert parse_sink_options({"path": "/t", "sequenceBy": "`a,b`"}).sequence_by == "a,b"
