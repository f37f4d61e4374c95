"""At-least-once tracking as scripts: records pass at once, the last barrier reports an epoch.

tests/support/operators/channel_scripts.py explains the words. The situations come from Flink's
CheckpointBarrierTrackerTest.
"""

from __future__ import annotations

import pytest

from spark_state.barriers.barrier_tracker import MAX_PENDING_EPOCHS, BarrierTracker
from spark_state.barriers.epoch_outcome import AlignmentStatistics, EpochAborted, EpochAligned
from spark_state.barriers.input_gate import InputGate
from spark_state.errors import CorruptStreamError
from tests.support.operators.channel_scripts import event, feed, words_of


def tracking_gate(channels: int) -> InputGate[str]:
    return InputGate(BarrierTracker(channels))


SCRIPTS: dict[str, tuple[int, list[tuple[str, str]]]] = {
    "one channel: every barrier at once": (
        1,
        [("a1 a|1 a2 a|2 a|3 a|6 a3 a.", "a1 (1) a2 (2) (3) (6) a3 a.")],
    ),
    "an aligned epoch ends all older ones": (
        3,
        [("a|1 b|1 a|2 b|3 a|3", ""), ("c|3", "(1-) (2-) (3)"), ("a|4 b|4 c|4", "(4)")],
    ),
    "barriers of an epoch that ended are ignored": (
        3,
        [("a|2 b|2 c|3 a|3", ""), ("b|3", "(2-) (3)"), ("c|5 a|4 b|4 a|5", ""), ("b|5", "(5)")],
    ),
    "a closed channel is not waited for": (
        3,
        [("b1 b.", "b1 b."), ("a|1 c|1", "(1)"), ("c.", "c."), ("a|2 a|3", "(2) (3)")],
    ),
    "a channel that closes aborts the epochs that wait for it only": (
        3,
        [
            ("a|1 a|2 a|3 b|1 b|2 b|3 c|1 c|2", "(1) (2)"),
            ("a|4 c|3 c|4 b|4 b|5", "(3) (4)"),
            ("a|5 a|6", ""),
            ("c.", "(5-) (6-) c."),
            ("b|6 b|7 a|7", "(7)"),
        ],
    ),
    "an epoch that a closing channel delivered still can be aligned": (
        3,
        [("c|1 a|1 a|2 c.", "(2-) c."), ("b1 b|1", "b1 (1)")],
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name: str) -> None:
    channels, script = SCRIPTS[name]
    gate = tracking_gate(channels)
    for events, expected in script:
        assert feed(gate, events) == expected, f"after {events}"
    assert gate.pending() == {}


def test_the_oldest_of_too_many_pending_epochs_is_dropped() -> None:
    gate = tracking_gate(2)
    first = " ".join(f"a|{epoch}" for epoch in range(1, MAX_PENDING_EPOCHS + 1))
    assert feed(gate, first) == ""
    outputs = list(gate.process([event(f"a|{MAX_PENDING_EPOCHS + 1}")]))
    assert outputs == [EpochAborted(1, "too many pending epochs", AlignmentStatistics((0,), (1,)))]
    assert list(gate.pending()) == [*range(2, MAX_PENDING_EPOCHS + 2)]
    assert feed(gate, "b|1 b|2") == "(2)"


def test_the_end_of_input_aborts_what_is_pending() -> None:
    gate = tracking_gate(2)
    feed(gate, "a|1 a|2 b1")
    assert words_of(gate.end_of_input()) == "(1-) (2-)"


def test_statistics_name_the_channels_waited_for() -> None:
    gate = tracking_gate(3)
    feed(gate, "c|1 c1 a|1 c|2")
    assert gate.pending() == {
        1: AlignmentStatistics((2, 0), (1,)),
        2: AlignmentStatistics((2,), (0, 1)),
    }
    assert list(gate.process([event("b|1")])) == [
        EpochAligned(1, AlignmentStatistics((2, 0, 1), ()))
    ]


def test_a_repeated_barrier_is_corrupt_instead_of_counting_twice() -> None:
    gate = tracking_gate(2)
    feed(gate, "a|1")
    with pytest.raises(CorruptStreamError, match="epoch 1 came after that of 1"):
        feed(gate, "a|1")
