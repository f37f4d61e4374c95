"""The summary of all barriers of an epoch: the few facts that each subtask needs. Pure.

A subtask starts an epoch from its own barrier, and from facts about all barriers: how far time has
come, if broadcast states are the same, if a barrier was published twice. With ten thousand
subtasks, no subtask may read ten thousand barriers for these facts. So the host that completes an
epoch sums up the barriers, and puts the summary into the name of the manifest, where a listing
shows the summary:

    s[_c][_o][_b<digest>][_t<batch>.<watermark>.<next timer>[.<reached>]...]

    c   contested: a subtask published more than one barrier, so a host that holds the state of one
        barrier has to read which barrier counts
    o   some subtasks hold operator state
    b   the first 12 digits of a digest of the broadcast states that all subtasks hold; x if the
        states differ; left out if there are no broadcast states
    t   times in ms since 1970, see SubtaskTime: the latest batch, the latest watermark, the next
        timer, and how far each watermark upstream of the operator has come; x: none; m: minus

Summaries of groups of subtasks are joined in the same way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from checkpoint_store.epochs.completed_checkpoint import Barrier, SubtaskTime

_DIGITS_OF_DIGEST = 12
_DIFFER = "x"
_NONE = "x"
# A file system has names of 255 bytes. Without its summary, the name of a manifest or group has
# fewer than 100 bytes.
_LONGEST_TEXT = 120


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """The summary of barriers. `broadcast`: the digest of the broadcast states that all subtasks
    hold, empty if there are no broadcast states, None if the states differ. `time`: None if the
    operator knows no time."""

    is_contested: bool = False
    has_operator_state: bool = False
    broadcast: str | None = ""
    time: SubtaskTime | None = None

    def to_text(self) -> str:
        """The summary as part of a name; empty if the text is too long for a name."""
        tokens = ["s"]
        if self.is_contested:
            tokens.append("c")
        if self.has_operator_state:
            tokens.append("o")
        if self.broadcast != "":
            tokens.append(f"b{self.broadcast or _DIFFER}")
        if self.time is not None:
            tokens.append(f"t{'.'.join(map(_time_text, _milliseconds(self.time)))}")
        text = "_".join(tokens)
        return text if len(text) <= _LONGEST_TEXT else ""


def summary_of_text(text: str) -> CheckpointSummary:
    """Parse the text that `to_text` made. Raises ValueError."""
    first, *tokens = text.split("_")
    if first != "s":
        raise ValueError(text)
    by_letter = {token[:1]: token[1:] for token in tokens}
    digest = by_letter.pop("b", "")
    times = by_letter.pop("t", None)
    summary = CheckpointSummary(
        is_contested=by_letter.pop("c", None) is not None,
        has_operator_state=by_letter.pop("o", None) is not None,
        broadcast=None if digest == _DIFFER else digest,
        time=None if times is None else _time(times),
    )
    if by_letter or summary.to_text() != text:
        raise ValueError(text)
    return summary


def summary_of(barriers: Iterable[Barrier], *, is_contested: bool) -> CheckpointSummary:
    """The summary of the barriers that count."""
    return joined(map(_of_barrier, barriers), is_contested=is_contested)


def joined(
    summaries: Iterable[CheckpointSummary], *, is_contested: bool = False
) -> CheckpointSummary:
    """The summary of all subtasks, joined from the summaries of groups of subtasks."""
    parts = [*summaries]
    broadcasts = {part.broadcast for part in parts}
    return CheckpointSummary(
        is_contested=is_contested or any(part.is_contested for part in parts),
        has_operator_state=any(part.has_operator_state for part in parts),
        broadcast=broadcasts.pop() if len(broadcasts) == 1 else None,
        time=_joined_times([part.time for part in parts if part.time is not None]),
    )


def farthest(reached: Iterable[tuple[int | None, ...]]) -> tuple[int | None, ...]:
    """For each watermark upstream of an operator, the farthest position of any subtask."""
    return tuple(_latest(candidates) for candidates in zip_longest(*reached))


def _of_barrier(barrier: Barrier) -> CheckpointSummary:
    held = barrier.operator_state
    broadcast = () if held is None else held.broadcast
    digest = hashlib.sha256(json.dumps(sorted(broadcast)).encode()).hexdigest()
    return CheckpointSummary(
        has_operator_state=held is not None,
        broadcast=digest[:_DIGITS_OF_DIGEST] if broadcast else "",
        time=barrier.time,
    )


def _joined_times(times: Sequence[SubtaskTime]) -> SubtaskTime | None:
    if not times:
        return None
    timers = [time.next_timer_ms for time in times if time.next_timer_ms is not None]
    return SubtaskTime(
        watermark_ms=max(time.watermark_ms for time in times),
        reached_ms=farthest(time.reached_ms for time in times),
        next_timer_ms=min(timers, default=None),
        batch_ms=_latest(time.batch_ms for time in times),
    )


def _latest(times_ms: Iterable[int | None]) -> int | None:
    return max((time_ms for time_ms in times_ms if time_ms is not None), default=None)


def _milliseconds(time: SubtaskTime) -> tuple[int | None, ...]:
    return (time.batch_ms, time.watermark_ms, time.next_timer_ms, *time.reached_ms)


def _time_text(time_ms: int | None) -> str:
    return _NONE if time_ms is None else str(time_ms).replace("-", "m")


def _time(text: str) -> SubtaskTime:
    batch_ms, watermark_ms, next_timer_ms, *reached_ms = map(_time_of_text, text.split("."))
    if watermark_ms is None:
        raise ValueError(text)
    return SubtaskTime(watermark_ms, tuple(reached_ms), next_timer_ms, batch_ms)


def _time_of_text(text: str) -> int | None:
    return None if text == _NONE else int(text.replace("m", "-"))
