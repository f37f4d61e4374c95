"""A session's settings give the options of store clients."""

from __future__ import annotations

from typing import Any

import pytest

from spark_state.errors import ConfigurationError
from spark_state.spark.session.operator_configuration import SessionFacts, parse_configuration
from spark_state.spark.session.store_options import REDACTION_KEY, store_options

PREFIX = "spark.cowstate.storeOptions."


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("http://minio:9000", "http://minio:9000"),
        ("eu-west-1", "eu-west-1"),
        ("true", True),
        ("8", 8),
        ('"8"', "8"),
        ('{"region_name": "eu"}', {"region_name": "eu"}),
        ("", ""),
        ("{not json", "{not json"),
    ],
)
def test_a_value_is_json_or_a_text(text: str, value: Any) -> None:
    settings = {f"{PREFIX}option.of.client": text, "spark.cowstate.store": "s3://bucket"}
    assert store_options(settings) == {"option.of.client": value}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("account_key", "hunter2"),
        ("connection_string", "hunter2"),
        ("endpoint_url", "http://me:hunter2@here"),
        ("client_kwargs", '{"aws_session_token": "hunter2"}'),
    ],
)
def test_a_secret_that_spark_would_show_is_refused_and_not_shown(name: str, text: str) -> None:
    key = f"{PREFIX}{name}"
    for redacted in ({}, {REDACTION_KEY: "("}):
        with pytest.raises(ConfigurationError, match=f"{key} looks like a secret") as refused:
            store_options({key: text, **redacted})
        assert "hunter2" not in str(refused.value)
    settings = {key: text, REDACTION_KEY: "(?i)secret|password|token|access[.]?key|storeOptions"}
    assert name in store_options(settings)


def test_secrets_that_spark_redacts_are_options_and_are_not_shown() -> None:
    settings = {f"{PREFIX}secret": "hunter2", "spark.cowstate.store": "s3://bucket"}
    facts = SessionFacts("yarn", 2, 2, speculation=False)
    configuration = parse_configuration(settings, facts)
    assert configuration.checkpoints.store_options == {"secret": "hunter2"}
    assert "hunter2" not in repr(configuration)


def test_an_option_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="names no option"):
        store_options({PREFIX: "x"})
