"""`spark.cowstate.*` has the right defaults, and sessions with unsupported settings are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_state.errors import ConfigurationError
from spark_state.spark.session.misspelled_keys import check_keys
from spark_state.spark.session.operator_configuration import (
    OperatorConfiguration,
    SessionFacts,
    parse_configuration,
)
from spark_state.spark.session.setting_values import RestoreFrom
from spark_state.subtasks.epoch_request import CheckpointSettings

STORE = {"spark.cowstate.store": "s3://bucket/state"}


def facts(**changes: Any) -> SessionFacts:
    values = {
        "master": "local[4]",
        "default_parallelism": 4,
        "cores_per_executor": 4,
        "speculation": False,
    }
    return SessionFacts(**{**values, **changes})


def test_defaults_follow_the_session() -> None:
    parsed = parse_configuration({**STORE, "spark.other": "x"}, facts())
    assert (parsed.parallelism, parsed.hosts.per_executor, parsed.max_parallelism) == (4, 4, 128)
    assert (parsed.store, parsed.backend.kind) == ("s3://bucket/state", "heap")
    assert parsed.checkpoints == CheckpointSettings(100, 10, 86_400, 120, start_empty=False)


def test_a_large_cluster_gets_no_more_subtasks_than_key_groups() -> None:
    assert parse_configuration(STORE, facts(default_parallelism=500)).parallelism == 128


def test_given_values_win() -> None:
    given = {**STORE, "spark.cowstate.parallelism": "7", "spark.cowstate.outputMemoryMB": "1"}
    parsed = parse_configuration(given, facts())
    assert (parsed.parallelism, parsed.output_memory_mb) == (7, 1)


def test_how_long_a_store_may_be_away_is_whole_seconds() -> None:
    given = {**STORE, "spark.cowstate.storeRetrySeconds": "900"}
    assert parse_configuration(given, facts()).checkpoints.store_retry_seconds == 900
    for bad in ("0", "-1", "2.5", "2m"):
        given["spark.cowstate.storeRetrySeconds"] = bad
        with pytest.raises(ConfigurationError, match=rf"storeRetrySeconds is '{bad}'; allowed are"):
            parse_configuration(given, facts())


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("parallelism", "many", "'many'; allowed are whole numbers from 1"),
        ("parallelism", "129", "more than spark.cowstate.maxParallelism 128"),
        ("backend", "leveldb", "is 'leveldb'; allowed are heap, rocksdb"),
        ("minEpochsToRetain", "1", "allowed are whole numbers from 2"),
        ("store", " ", "spark.cowstate.store is empty"),
        ("store", "memory://s", "each process has a memory of its own"),
        ("store", "s3:/bucket/state", "one slash after s3:"),
        ("rocksdb.localDirectory", "here", "is 'here'; set it to the absolute path"),
    ],
)
def test_a_value_that_cannot_be_is_refused(key: str, value: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        parse_configuration({**STORE, f"spark.cowstate.{key}": value}, facts())


@pytest.mark.parametrize("key", ["store", "restoreFrom"])
def test_paths_for_a_server_of_spark_connect_are_absolute(key: str) -> None:
    connect = facts(is_connect=True)
    with pytest.raises(ConfigurationError, match=rf"{key} is './here', but a server .* absolute"):
        parse_configuration({**STORE, f"spark.cowstate.{key}": "./here"}, connect)
    for location in ("/there", "file:/there", "s3://bucket/there"):
        parse_configuration({**STORE, f"spark.cowstate.{key}": location}, connect)


def test_spark_connect_has_no_default_store() -> None:
    with pytest.raises(ConfigurationError, match=r"store is not set, .* not those of its client"):
        parse_configuration({}, facts(is_connect=True))


def test_a_relative_store_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parsed = parse_configuration({"spark.cowstate.store": "state"}, facts())
    assert parsed.store == str(tmp_path / "state")


def test_a_local_master_without_a_store_gets_one_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match=f"state is kept in {tmp_path}/cowstate-store"):
        parsed = parse_configuration({}, facts())
    assert parsed.store == str(tmp_path / "cowstate-store")


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "local-cluster[2,1,1024]"])
def test_a_cluster_without_a_store_is_refused(master: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"spark\.cowstate\.store is not set, and the executors"
    ):
        parse_configuration({}, facts(master=master))


def test_speculative_execution_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"set spark\.speculation to false"):
        parse_configuration(STORE, facts(speculation=True))


def test_a_limit_of_a_python_worker_is_refused_because_hosts_would_inherit_it() -> None:
    expected = r"spark\.executor\.pyspark\.memory is 2g: .*spark\.cowstate\.maxMemoryMB"
    with pytest.raises(ConfigurationError, match=expected):
        parse_configuration(STORE, facts(python_memory="2g"))
    for unlimited in (None, "0"):
        parse_configuration(STORE, facts(python_memory=unlimited))


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (
            "spark.cowstate.zzz",
            "is '1', and there is no such setting: the keys are spark.",
        ),
        ("spark.cowstate.paralelism", "did you mean spark.cowstate.parallelism?"),
        ("spark.cowstate.rocksdb.compresion", "did you mean spark.cowstate.rocksdb.compression?"),
        ("spark.cowstat.store", "'1', and there is no .*did you mean spark.cowstate.store?"),
        ("spark.cowstates.store", "did you mean spark.cowstate.store?"),
        ("spark.cowsatte.store", "did you mean spark.cowstate.store?"),
        ("spark.cowState.store", "did you mean spark.cowstate.store?"),
        ("sparc.cowstate.paralelism", "did you mean spark.cowstate.parallelism?"),
        ("spark.cowstate.storeTokens", "storeTokens is set, and there is no such setting"),
    ],
)
def test_a_key_that_nothing_reads_is_named_with_its_value_and_the_nearest_right_one(
    key: str, told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told) as refused:
        check_keys({**STORE, key: "1"})
    text = str(refused.value)
    assert text.startswith(f"{key} is ")
    assert "\n" not in text
    with pytest.raises(ConfigurationError, match=told):
        parse_configuration({**STORE, key: "1"}, facts())


@pytest.mark.parametrize(
    "key",
    ["spark.sql.cowstate.x", "spark.state.store", "spark.sql.catalog.cowstate", "spark.cow", "x"],
)
def test_keys_of_others_are_left_alone(key: str) -> None:
    check_keys({**STORE, key: "1"})


def test_a_store_to_restore_from_may_name_its_epoch(tmp_path: Path) -> None:
    def restore_from(text: str) -> RestoreFrom | None:
        given = {**STORE, "spark.cowstate.restoreFrom": text}
        return parse_configuration(given, facts()).restore_from

    assert parse_configuration(STORE, facts()).restore_from is None
    assert restore_from("s3://me@bucket/q") == RestoreFrom("s3://me@bucket/q", None)
    assert restore_from("s3://me@bucket/q@41") == RestoreFrom("s3://me@bucket/q", 41)
    assert restore_from(str(tmp_path)) == RestoreFrom(str(tmp_path), None)


class TestMemory:
    def parsed(self, **given: str) -> OperatorConfiguration:
        settings = {f"spark.cowstate.{key.replace('_', '.')}": text for key, text in given.items()}
        return parse_configuration({**STORE, **settings}, facts())

    def test_memory_has_no_limit_unless_one_is_set(self) -> None:
        assert self.parsed().max_memory_mb is None
        assert self.parsed(maxMemoryMB=" ").max_memory_mb is None
        assert self.parsed(maxMemoryMB="64").max_memory_mb == 64

    @pytest.mark.parametrize("bad", ["63", "0", "-512", "1.5", "512m", "none"])
    def test_a_limit_is_a_whole_number_that_leaves_room_for_something(self, bad: str) -> None:
        with pytest.raises(
            ConfigurationError, match=rf"maxMemoryMB is '{bad}'; allowed are whole numbers from 64"
        ):
            self.parsed(maxMemoryMB=bad)

    def test_a_limit_that_databases_use_up_is_refused_with_both_values(self) -> None:
        assert self.parsed(maxMemoryMB="64", rocksdb_maxMemoryMB="4096").max_memory_mb == 64
        for of_databases, limit, most, least in (("256", "256", 224, 288), ("70", "100", 68, 102)):
            with pytest.raises(ConfigurationError) as caught:
                self.parsed(backend="rocksdb", maxMemoryMB=limit, rocksdb_maxMemoryMB=of_databases)
            message = str(caught.value)
            assert f"spark.cowstate.rocksdb.maxMemoryMB is {of_databases}" in message
            assert f"of spark.cowstate.maxMemoryMB {limit}" in message
            assert f"the first to at most {most}, or the second to at least {least}" in message
        parsed = self.parsed(backend="rocksdb", maxMemoryMB="288")
        assert (parsed.max_memory_mb, parsed.backend.memory_mb) == (288, 256)

    def test_output_is_a_part_of_the_limit(self) -> None:
        assert self.parsed(maxMemoryMB="64").output_memory_mb == 64
        with pytest.raises(ConfigurationError) as caught:
            self.parsed(maxMemoryMB="100", outputMemoryMB="101")
        assert "outputMemoryMB is 101, more than spark.cowstate.maxMemoryMB 100" in str(
            caught.value
        )
