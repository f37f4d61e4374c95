"""Errors of an object store's client show no secret."""

from __future__ import annotations

import traceback

import pytest

from checkpoint_store.errors import StoreAccessError
from checkpoint_store.objects.client_errors import telling_client_errors
from checkpoint_store.objects.secret_options import secret_options, without_secrets


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("a bug"), RuntimeError),
        (RuntimeError("signed with hunter2"), StoreAccessError),
        (ConnectionError("signed with hunter2"), OSError),
        (PermissionError("signed with hunter2"), StoreAccessError),
    ],
)
def test_an_error_of_a_client_does_not_show_a_secret(error: Exception, told: type) -> None:
    options = {"endpoint_url": "http://here", "client_kwargs": {"sessionToken": "hunter2"}}
    with pytest.raises(told) as raised, telling_client_errors("s3://bucket", options, lambda: None):
        raise error
    shown = "".join(traceback.format_exception(raised.value, chain=True))
    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in repr(raised.value)
    assert ("a bug" in shown) or "signed with …" in shown
    assert raised.value is error or raised.value.__suppress_context__ == ("hunter2" in str(error))


def test_secrets_are_known_by_their_names_at_any_depth() -> None:
    options = {
        "key": "AKIA",
        "anon": False,
        "endpoint_url": "http://me:hunter2@here",
        "client_kwargs": {"region_name": "eu", "config": {"proxyPassword": "x"}},
        "kms_key_id": "1234",
        "sas": None,
    }
    assert secret_options(options) == ("key", "endpoint_url", "proxyPassword")
    assert without_secrets("AKIA at http://here in eu", options) == "… at http://here in eu"
