"""The user's URL of a store for the state of a query is parsed or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoint_store.errors import StoreAccessError
from checkpoint_store.provider.state_place import StatePlace
from spark_state.errors import ConfigurationError
from spark_state.spark.provider.placed_state import (
    OPTIONS_KEY,
    RETRY_KEY,
    PlacedState,
    store_url,
)
from tests.support.provider.checkpoint_on_disk import FilesOnDisk


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("s3://bucket/states/", "s3://bucket/states"),
        ("/states", "file:///states"),
        ("file:///states", "file:///states"),
        ("file:/states", "file:///states"),
    ],
)
def test_it_is_as_checkpoints_have_it(text: str, url: str) -> None:
    assert store_url(text) == url


def test_a_path_is_the_same_in_every_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert store_url("states") == (tmp_path / "states").as_uri()


@pytest.mark.parametrize(
    "text",
    [
        "s3://me:hidden@bucket/states",
        "s3://me:hid/den@bucket/states",
        "https://host/states?sig=hidden",
    ],
)
def test_credentials_are_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigurationError, match="has credentials or a query") as raised:
        store_url(text)
    assert "hid" not in str(raised.value)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        (RETRY_KEY, "0", "storeRetrySeconds is '0'; allowed are whole"),
        (OPTIONS_KEY, '{} "hidden', "storeOptions is not a JSON object of options$"),
    ],
)
def test_a_wrong_setting_is_refused_and_options_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, text: str, message: str
) -> None:
    monkeypatch.setattr(FilesOnDisk, "settings", lambda _: {key: text})
    with pytest.raises(ConfigurationError, match=message):
        PlacedState(FilesOnDisk(tmp_path), StatePlace(str(tmp_path), "q"))


def test_an_account_before_the_host_is_no_credential() -> None:
    with pytest.raises(StoreAccessError, match="install the package it names"):
        store_url("abfs://container@account.dfs.core.windows.net/states")


def test_a_protocol_that_nobody_knows_is_refused() -> None:
    with pytest.raises(StoreAccessError, match="no file system is known for nowhere://"):
        store_url("nowhere://bucket/states")
