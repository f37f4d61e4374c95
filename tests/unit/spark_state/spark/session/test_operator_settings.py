"""An entry in the table of settings is all that a setting needs beside its typed field."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from spark_state.errors import ConfigurationError
from spark_state.spark.operator.operator_plan import operator_spec
from spark_state.spark.session.operator_configuration import (
    OperatorConfiguration,
    SessionFacts,
    parse_configuration,
)
from spark_state.spark.session.operator_settings import SETTING_OF, SETTINGS, Setting
from spark_state.spark.session.setting_values import PREFIX, integer
from spark_state.subtasks.epoch_request import EpochRequest, EpochTask, OperatorSpec
from tests.support.operators.subtasks import operator

FACTS = SessionFacts("local[4]", 4, 4, speculation=False)
CARRIED = pytest.mark.parametrize(
    "setting", [each for each in SETTINGS if each.field], ids=lambda setting: setting.key
)
# The driver turns these values into others: the bytes of a processor's output in memory, and the
# epoch that an operator begins with.
USED_ON_THE_DRIVER = {"output_memory_mb", "restore_from"}
FOUND_BY_THE_DRIVER = {"checkpoints.restore_from", "checkpoints.store_options"}


def parsed(**texts: str) -> OperatorConfiguration:
    settings = {f"{PREFIX}{key}": text for key, text in {"store": "s3://bucket", **texts}.items()}
    return parse_configuration(settings, FACTS)


def texts_of(setting: Setting) -> Iterator[str]:
    """Texts that the setting may allow: the words and the bounds of the allowed values, a path."""
    yield from re.findall(r"(?<=`)\w+(?=`)|-?\d+", setting.values.allowed)
    yield "/elsewhere"


def values_of(setting: Setting) -> Iterator[tuple[str, Any]]:
    """The allowed texts, parsed."""
    for text in texts_of(setting):
        try:
            yield text, setting.values.parse(setting.key, text)
        except ConfigurationError:
            continue


def paths_below(value: Any, path: str = "") -> Iterator[str]:
    """The paths of the fields of a dataclass, without fields that are dataclasses."""
    for field in fields(value):
        inner = getattr(value, field.name)
        if is_dataclass(inner):
            yield from paths_below(inner, f"{path}{field.name}.")
        else:
            yield f"{path}{field.name}"


def arrived(configuration: OperatorConfiguration, folder: Path) -> OperatorSpec:
    """The operator as a host gets it in a request."""
    processor = operator(folder).processor
    spec = operator_spec("totals", configuration, "{}", processor, None)
    request = EpochRequest(spec, EpochTask("query", "run", 0, 0, 0), ())
    received: EpochRequest = pickle.loads(pickle.dumps(request))
    return received.spec


@CARRIED
def test_a_value_arrives_at_the_host_in_the_field_of_its_setting(
    setting: Setting, tmp_path: Path
) -> None:
    value_of, default = attrgetter(setting.field), attrgetter(setting.field)(parsed())
    text, value = next(each for each in values_of(setting) if each[1] != default)
    configuration = parsed(**{setting.key: text})
    assert value_of(configuration) == value
    if setting.field not in USED_ON_THE_DRIVER:
        assert value_of(arrived(configuration, tmp_path)) == value


@CARRIED
def test_a_default_is_an_allowed_value(setting: Setting) -> None:
    default = attrgetter(setting.field)(parsed())
    if default is not None:
        assert setting.values.parse(setting.key, _text(default)) == default


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_every_field_has_one_setting() -> None:
    named = [each.field for each in SETTINGS if each.field]
    assert sorted([*named, *FOUND_BY_THE_DRIVER]) == sorted(paths_below(parsed()))


def test_a_new_entry_needs_no_other_edit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    entry = Setting("patienceSeconds", "hosts.idle_seconds", integer(5, 9), "when a host ends", "s")
    monkeypatch.setitem(SETTING_OF, entry.key, entry)
    assert arrived(parsed(patienceSeconds="7"), tmp_path).hosts.idle_seconds == 7
    told = r"spark\.cowstate\.patienceSeconds is '4'; allowed are whole numbers from 5 to 9"
    with pytest.raises(ConfigurationError, match=told):
        parsed(patienceSeconds="4")
