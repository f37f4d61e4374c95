"""Alignment and tracking as scripts: events on the left, the gate's output on the right.

Exactly once, what comes after a barrier waits for the other channels. At least once, records pass
at once, and the last barrier reports an epoch. tests/support/operators/channel_scripts.py explains
the words. The situations come from Flink's AlignedCheckpointsTest and CheckpointBarrierTrackerTest.
"""

from __future__ import annotations

from typing import Any

import pytest

from spark_state.barriers.barrier_tracker import MAX_PENDING_EPOCHS
from spark_state.barriers.epoch_outcome import AlignmentStatistics, EpochAborted, EpochAligned
from spark_state.barriers.input_gate import CheckpointingMode, InputGate, open_input_gate
from spark_state.errors import ConfigurationError, CorruptStreamError
from tests.support.operators.channel_scripts import event, events_of, feed, words_of

ONCE: CheckpointingMode = "exactly_once"
TRACKING: CheckpointingMode = "at_least_once"

# By name: the number of channels, and the script.
Scripts = dict[str, tuple[int, list[tuple[str, str]]]]


def gate_of(mode: CheckpointingMode, channels: int) -> InputGate[str]:
    return open_input_gate(mode, channels)


ALIGNED: Scripts = {
    "one channel is aligned by each barrier": (
        1,
        [("a1 a|1 a2 a3", "a1 (1) a2 a3"), ("a|2 a|3 a4 a|6 a.", "(2) (3) a4 (6) a.")],
    ),
    "what waited during a replay comes before the rest of the replay": (
        3,
        [
            ("a|1 a|2 a1 b|1 b|3 b1 a2", ""),
            ("c|1", "(1) (2-) a1 a2"),
            ("a|3 a3", ""),
            ("c|3", "(3) b1 a3"),
        ],
    ),
    "a newer barrier aborts the epoch and begins its own": (
        3,
        [
            ("b|2 b1 c1 a|2", "c1"),
            ("c2 a1", "c2"),
            ("c|3", "(2-) b1 a1"),
            ("c3 b2", "b2"),
            ("b|3 b3 a|3", "(3) c3 b3"),
        ],
    ),
    "a newer barrier that had waited joins the epoch it brought": (
        2,
        [("a|1 a1 a|3 a2", ""), ("b1 b|3", "b1 (1-) a1 (3) a2")],
    ),
    "a barrier of an aborted or older epoch is ignored": (
        3,
        [
            ("a|1 b|2", "(1-)"),
            ("c|1 c1", "c1"),
            ("a1 a|2", "a1"),
            ("c|2", "(2)"),
            ("a|7 b|5 b1", "b1"),
            ("b|7 c|6 c2 c|7", "c2 (7)"),
        ],
    ),
    "a closed channel is not waited for": (
        3,
        [("b1 b.", "b1 b."), ("a|1 a1 c1", "c1"), ("c|1", "(1) a1"), ("a.", "a."), ("c|2", "(2)")],
    ),
    "a channel that closes aborts the epoch that waits for it": (
        3,
        [
            ("a|1 a1 b|1 b1", ""),
            ("c1 c.", "c1 (1-) c. a1 b1"),
            ("a2 a|2 a3", "a2"),
            ("b|2", "(2) a3"),
        ],
    ),
    "barriers of an epoch that a closing channel aborted do not begin it again": (
        3,
        [("a|1 c.", "(1-) c."), ("b|1 b1", "b1"), ("a|2 b|2", "(2)")],
    ),
    "a channel that closes while it waits aborts nothing": (
        2,
        [("a|1 a1 a.", ""), ("b1 b|1", "b1 (1) a1 a."), ("b2 b|2", "b2 (2)")],
    ),
    "all channels close during an alignment": (
        3,
        [
            ("b|2 b1 b2 b. a1 c1", "a1 c1"),
            ("c|2 c2 c. a2", "a2"),
            ("a.", "(2-) a. b1 b2 b. c2 c."),
        ],
    ),
}

TRACKED: Scripts = {
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


@pytest.mark.parametrize(
    ("mode", "channels", "script"),
    [
        pytest.param(mode, *script, id=f"{mode}: {name}")
        for mode, scripts in ((ONCE, ALIGNED), (TRACKING, TRACKED))
        for name, script in scripts.items()
    ],
)
def test_script(mode: CheckpointingMode, channels: int, script: list[tuple[str, str]]) -> None:
    gate = gate_of(mode, channels)
    for events, expected in script:
        assert feed(gate, events) == expected, f"after {events}"
    assert gate.pending() == {}


def test_the_end_of_input_gives_back_what_waits_and_aligns_nothing() -> None:
    gate = gate_of(ONCE, 3)
    assert feed(gate, "a|1 a1 a|2 a2 b|1 b|2 b1 b.") == ""
    assert words_of(gate.end_of_input()) == "(1-) a1 a2 b1 b."


def test_before_the_end_of_input_barriers_of_a_replay_that_was_left_still_count() -> None:
    gate = gate_of(ONCE, 3)
    outputs = gate.process(events_of("a|1 a|2 a1 b|1 b|3 b1 a2 c|1"))
    assert words_of([next(outputs)]) == "(1)"
    assert words_of(gate.end_of_input()) == "(2-) a1 a2 (3-) b1"


def test_nothing_can_follow_the_end_of_input() -> None:
    gate = gate_of(ONCE, 1)
    assert list(gate.end_of_input()) == []
    with pytest.raises(AssertionError):
        feed(gate, "a1")


CORRUPT = [
    ("a|5", "a|5", "channel 0 is corrupt: the barrier of epoch 5 came after that of 5"),
    ("a|5 b|5", "a|5", "channel 0 is corrupt: the barrier of epoch 5 came after that of 5"),
    ("b|5 a|6", "b|5", "channel 1 is corrupt: the barrier of epoch 5 came after that of 5"),
    ("b|5 b|6", "b|6", "channel 1 is corrupt: the barrier of epoch 6 came after that of 6"),
    ("a|5", "a|4", "channel 0 is corrupt: the barrier of epoch 4 came after that of 5"),
    ("b.", "b1", "channel 1 is corrupt: something came after its end"),
    ("a|1 a.", "a|2", "channel 0 is corrupt: something came after its end"),
    ("b.", "b.", "channel 1 is corrupt: something came after its end"),
]


@pytest.mark.parametrize(("before", "corrupt", "message"), CORRUPT)
def test_a_channel_out_of_order_is_corrupt(before: str, corrupt: str, message: str) -> None:
    gate = gate_of(ONCE, 2)
    feed(gate, before)
    with pytest.raises(CorruptStreamError, match=message) as raised:
        feed(gate, corrupt)
    assert "stop the other writer" in str(raised.value)


def test_statistics_name_the_channels_waited_for() -> None:
    gate = gate_of(ONCE, 3)
    assert gate.pending() == {}
    feed(gate, "b|4 b1 b2 a1")
    assert gate.pending() == {4: AlignmentStatistics((1,), (0, 2))}
    feed(gate, "a|4 a2")
    assert gate.pending() == {4: AlignmentStatistics((1, 0), (2,))}
    outputs = list(gate.process([event("c|4"), event("c|5")]))
    assert outputs[0] == EpochAligned(4, AlignmentStatistics((1, 0, 2), ()))
    assert gate.pending() == {5: AlignmentStatistics((2,), (0, 1))}


def test_statistics_of_an_aborted_epoch_name_who_never_came() -> None:
    gate = gate_of(ONCE, 4)
    feed(gate, "d. b|4 b1")
    outputs = list(gate.process([event("a|6")]))
    aborted = EpochAborted(4, "newer barrier", AlignmentStatistics((1,), (0, 2)))
    assert outputs[0] == aborted
    outputs = list(gate.process([event("c.")]))
    aborted = EpochAborted(6, "channel ended", AlignmentStatistics((0,), (1, 2)))
    assert outputs[0] == aborted
    feed(gate, "a|7")
    aborted = EpochAborted(7, "input ended", AlignmentStatistics((0,), (1,)))
    assert list(gate.end_of_input()) == [aborted]


def test_the_oldest_of_too_many_pending_epochs_is_dropped() -> None:
    gate = gate_of(TRACKING, 2)
    first = " ".join(f"a|{epoch}" for epoch in range(1, MAX_PENDING_EPOCHS + 1))
    assert feed(gate, first) == ""
    outputs = list(gate.process([event(f"a|{MAX_PENDING_EPOCHS + 1}")]))
    assert outputs == [EpochAborted(1, "too many pending epochs", AlignmentStatistics((0,), (1,)))]
    assert list(gate.pending()) == [*range(2, MAX_PENDING_EPOCHS + 2)]
    assert feed(gate, "b|1 b|2") == "(2)"


def test_the_end_of_input_aborts_what_is_pending() -> None:
    gate = gate_of(TRACKING, 2)
    feed(gate, "a|1 a|2 b1")
    assert words_of(gate.end_of_input()) == "(1-) (2-)"


def test_at_least_once_statistics_are_those_of_each_pending_epoch() -> None:
    gate = gate_of(TRACKING, 3)
    feed(gate, "c|1 c1 a|1 c|2")
    assert gate.pending() == {
        1: AlignmentStatistics((2, 0), (1,)),
        2: AlignmentStatistics((2,), (0, 1)),
    }
    assert list(gate.process([event("b|1")])) == [
        EpochAligned(1, AlignmentStatistics((2, 0, 1), ()))
    ]


def test_a_repeated_barrier_is_corrupt_instead_of_counting_twice() -> None:
    gate = gate_of(TRACKING, 2)
    feed(gate, "a|1")
    with pytest.raises(CorruptStreamError, match="epoch 1 came after that of 1"):
        feed(gate, "a|1")


def test_an_unknown_mode_is_refused_with_the_allowed_ones() -> None:
    unknown: Any = "exactlyOnce"
    with pytest.raises(ConfigurationError, match=r"'exactlyOnce'.*'exactly_once'.*'at_least_once'"):
        open_input_gate(unknown, 2)
