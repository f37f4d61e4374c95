"""The two checkpointing modes differ as documented, and any other mode is refused."""

from __future__ import annotations

from typing import Any

import pytest

from spark_state.barriers.input_gate import CheckpointingMode, open_input_gate
from spark_state.errors import ConfigurationError
from tests.support.operators.channel_scripts import feed

EVENTS = "a1 a|1 a2 b1 b|1 b2"


@pytest.mark.parametrize(
    ("mode", "outputs"),
    [("exactly_once", "a1 b1 (1) a2 b2"), ("at_least_once", "a1 a2 b1 (1) b2")],
)
def test_the_mode_says_whether_a_channel_that_is_ahead_waits(
    mode: CheckpointingMode, outputs: str
) -> None:
    assert feed(open_input_gate(mode, 2), EVENTS) == outputs


def test_an_unknown_mode_is_refused_with_the_allowed_ones() -> None:
    unknown: Any = "exactlyOnce"
    with pytest.raises(ConfigurationError, match=r"'exactlyOnce'.*'exactly_once'.*'at_least_once'"):
        open_input_gate(unknown, 2)
