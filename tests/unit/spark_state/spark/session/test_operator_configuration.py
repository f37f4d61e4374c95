"""`spark.cowstate.*` has the right defaults, and sessions with unsupported settings are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_state.errors import ConfigurationError
from spark_state.spark.session.operator_configuration import (
    OperatorConfiguration,
    SessionFacts,
    parse_configuration,
)
from spark_state.spark.session.operator_settings import check_keys
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
    assert (parsed.store_root, parsed.backend.kind) == ("s3://bucket/state", "heap")
    assert parsed.checkpoints == CheckpointSettings()


def test_a_large_cluster_gets_no_more_subtasks_than_key_groups() -> None:
    assert parse_configuration(STORE, facts(default_parallelism=500)).parallelism == 128


def test_given_values_win() -> None:
    given = {"parallelism": "7", "outputMemoryMB": "1", "storeRetrySeconds": "900"}
    settings = {f"spark.cowstate.{key}": text for key, text in given.items()}
    parsed = parse_configuration({**STORE, **settings}, facts())
    assert (parsed.parallelism, parsed.output_memory_mb) == (7, 1)
    assert parsed.checkpoints.store_retry_seconds == 900


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("parallelism", "many", "'many'; allowed are whole numbers from 1"),
        ("parallelism", "129", "more than spark.cowstate.maxParallelism 128"),
        ("backend", "leveldb", "is 'leveldb'; allowed are heap, rocksdb"),
        ("minEpochsToRetain", "1", "allowed are whole numbers from 2"),
        ("storeRetrySeconds", "2.5", "storeRetrySeconds is '2.5'; allowed are"),
        ("storeRetrySeconds", "0", "storeRetrySeconds is '0'; allowed are"),
        ("maxMemoryMB", "63", "maxMemoryMB is '63'; allowed are whole numbers from 64"),
        ("maxMemoryMB", "none", "maxMemoryMB is 'none'; allowed are whole numbers from 64"),
        ("store", " ", "spark.cowstate.store is empty"),
        ("store", "memory://s", "each process has a memory of its own"),
        ("store", "s3:/bucket/state", "write s3://bucket/state"),
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


def test_a_relative_store_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parsed = parse_configuration({"spark.cowstate.store": "state"}, facts())
    assert parsed.store_root == str(tmp_path / "state")


def test_a_local_master_without_a_store_gets_one_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match=f"state is kept in {tmp_path}/cowstate-store"):
        parsed = parse_configuration({}, facts())
    assert parsed.store_root == str(tmp_path / "cowstate-store")


@pytest.mark.parametrize(
    ("settings", "changes", "message"),
    [
        ({}, {"is_connect": True}, "store is not set, .* need a common store"),
        *(
            ({}, {"master": master}, r"spark\.cowstate\.store is not set, and the executors")
            for master in ("spark://host:7077", "yarn", "local-cluster[2,1,1024]")
        ),
        (STORE, {"speculation": True}, r"set spark\.speculation to false"),
        (
            STORE,
            {"python_memory": "2g"},
            r"spark\.executor\.pyspark\.memory is 2g: .*spark\.cowstate\.maxMemoryMB",
        ),
    ],
)
def test_a_session_that_cannot_have_operators_is_refused(
    settings: dict[str, str], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_configuration(settings, facts(**changes))


def test_python_workers_without_a_limit_are_allowed() -> None:
    parse_configuration(STORE, facts(python_memory="0"))


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("spark.cowstate.zzz", "store"),
        ("spark.cowstate.rocksdb.compresion", "rocksdb.compression"),
        ("spark.cowstat.store", "store"),
        ("spark.cowstates.store", "store"),
        ("spark.cowsatte.store", "store"),
        ("spark.cowState.store", "store"),
        ("sparc.cowstate.paralelism", "parallelism"),
    ],
)
def test_a_key_that_nothing_reads_is_named_with_the_nearest_keys(key: str, near: str) -> None:
    told = f"{key} is set, and there is no such setting: did you mean spark.cowstate.{near}[ ,]"
    with pytest.raises(ConfigurationError, match=told):
        check_keys({**STORE, key: "1"})
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
        assert self.parsed().hosts.max_memory_mb is None
        assert self.parsed(maxMemoryMB=" ").hosts.max_memory_mb is None
        assert self.parsed(maxMemoryMB="64").hosts.max_memory_mb == 64

    def test_a_limit_that_databases_use_up_is_refused_with_both_values(self) -> None:
        self.parsed(maxMemoryMB="64", rocksdb_maxMemoryMB="4096")
        for of_databases, limit, most, least in (("256", "256", 224, 288), ("70", "100", 68, 102)):
            with pytest.raises(ConfigurationError) as caught:
                self.parsed(backend="rocksdb", maxMemoryMB=limit, rocksdb_maxMemoryMB=of_databases)
            message = str(caught.value)
            assert f"spark.cowstate.rocksdb.maxMemoryMB is {of_databases}" in message
            assert f"of spark.cowstate.maxMemoryMB {limit}" in message
            assert f"the first to at most {most}, or the second to at least {least}" in message
        parsed = self.parsed(backend="rocksdb", maxMemoryMB="288")
        assert (parsed.hosts.max_memory_mb, parsed.backend.memory_mb) == (288, 256)

    def test_output_is_a_part_of_the_limit(self) -> None:
        assert self.parsed(maxMemoryMB="64").output_memory_mb == 64
        with pytest.raises(ConfigurationError) as caught:
            self.parsed(maxMemoryMB="100", outputMemoryMB="101")
        assert "outputMemoryMB is 101, more than spark.cowstate.maxMemoryMB 100" in str(
            caught.value
        )
