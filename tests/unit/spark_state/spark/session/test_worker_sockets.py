"""Unix domain sockets are chosen where Spark can create them, unless the user has chosen."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from spark_state.spark.session.worker_sockets import (
    DIRECTORY_KEY,
    SOCKETS_KEY,
    hint_at_sockets,
    socket_settings,
)

LOCAL, CLUSTER = {"spark.master": "local[2]"}, {"spark.master": "yarn"}
ON = {SOCKETS_KEY: "true"}
IN_TMP = {**ON, DIRECTORY_KEY: "/tmp"}
LONGEST = 61
"""The greatest length of a directory that Spark accepts for sockets."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A temporary directory with a short path."""
    with TemporaryDirectory(dir="/tmp") as path:
        yield Path(path)


def directory(folder: Path, length: int) -> str:
    """Create a directory with a path of this length."""
    path = folder / ("d" * (length - len(f"{folder}/")))
    path.mkdir(exist_ok=True)
    return str(path)


def test_a_short_temporary_directory_of_the_driver_has_the_sockets_of_a_local_master(
    folder: Path,
) -> None:
    assert socket_settings(LOCAL, directory(folder, LONGEST)) == ON
    assert socket_settings(LOCAL, directory(folder, LONGEST + 1)) == IN_TMP
    assert socket_settings(LOCAL, "/no/such/directory") == IN_TMP


def test_executors_of_a_cluster_have_their_sockets_in_tmp() -> None:
    assert socket_settings(CLUSTER, "/tmp") == IN_TMP


def test_a_directory_of_the_user_is_kept_and_must_be_short(folder: Path) -> None:
    for settings in LOCAL, CLUSTER:
        short = {**settings, DIRECTORY_KEY: directory(folder, LONGEST)}
        long = {**settings, DIRECTORY_KEY: directory(folder, LONGEST + 1)}
        assert socket_settings(short, "/tmp") == ON
        assert socket_settings(long, "/tmp") == {}


@pytest.mark.parametrize("chosen", ["true", "false"])
def test_a_choice_of_the_user_holds(chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert socket_settings({**LOCAL, SOCKETS_KEY: chosen}, "/tmp") == {}
    monkeypatch.setenv("PYSPARK_UDS_MODE", chosen)
    assert socket_settings(LOCAL, "/tmp") == {}


def session(**settings: str) -> Any:
    """A session, for code that reads the settings of the context only."""
    return SimpleNamespace(sparkContext=SimpleNamespace(_conf=settings))


def test_each_application_without_sockets_gets_a_single_hint() -> None:
    for application in ("hinted-1", "hinted-2"):
        with pytest.warns(UserWarning, match=f"Set {SOCKETS_KEY}=true before the session starts"):
            hint_at_sockets(session(**{"spark.app.id": application}))
        with warnings.catch_warnings(action="error"):
            hint_at_sockets(session(**{"spark.app.id": application}))


@pytest.mark.parametrize("chosen", ["true", "false"])
def test_a_user_who_has_chosen_gets_no_hint(chosen: str) -> None:
    with warnings.catch_warnings(action="error"):
        hint_at_sockets(session(**{"spark.app.id": "hinted-3", SOCKETS_KEY: chosen}))
