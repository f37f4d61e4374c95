"""Runs `cowstate progress`: prints the progress of operators as text for people, or as JSON."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import groupby
from operator import attrgetter

from checkpoint_store.amounts import moment_text, size_text
from checkpoint_store.operators.operator_progress import EpochNumbers, OperatorProgress
from checkpoint_store.progress_reader import read_progress

_UNKNOWN = "-"
_HEADINGS = (
    *("epoch", "committed", "in", "out", "late", "rows", "updated", "removed"),
    *("timers", "memory", "written", "restore ms", "process ms", "write ms", "watermark"),
)


def print_progress(arguments: Namespace) -> None:
    """Run the command. Raises the errors of read_progress."""
    progress = read_progress(
        arguments.store,
        arguments.storage_options,
        epochs=arguments.epochs,
        subtasks=arguments.subtasks,
    )
    if arguments.json:
        print(json.dumps([asdict(told) for told in progress]))
    else:
        print(as_text(progress))


def as_text(progress: Sequence[OperatorProgress]) -> str:
    return "\n\n".join(_table([*epochs]) for _, epochs in groupby(progress, key=attrgetter("url")))


def _table(epochs: Sequence[OperatorProgress]) -> str:
    last = epochs[-1]
    lines = [_HEADINGS, *(line for epoch in epochs for line in _lines(epoch))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    title = f"{last.name} ({_counted(last.parallelism, 'subtask')})  {last.url}"
    timer = "" if last.next_timer_ms is None else f"\nnext timer: {_utc(last.next_timer_ms)}"
    return "\n".join([title, *rows]) + timer


def _lines(progress: OperatorProgress) -> Iterator[tuple[str, ...]]:
    yield str(progress.epoch), _utc(progress.committed_ms), *_numbers(progress)
    for subtask in progress.subtasks:
        yield "", f"subtask {subtask.subtask}", *_numbers(subtask)


def _numbers(numbers: EpochNumbers) -> tuple[str, ...]:
    return (
        _text(numbers.rows_in),
        _text(numbers.rows_out),
        _text(numbers.late_rows),
        _text(numbers.rows_total),
        _text(numbers.rows_updated),
        _text(numbers.rows_removed),
        _text(numbers.timers),
        _size(numbers.memory_bytes),
        _size(numbers.written_bytes),
        _text(numbers.restore_ms),
        _text(numbers.process_ms),
        _text(numbers.write_ms),
        _UNKNOWN if numbers.watermark_ms is None else _utc(numbers.watermark_ms),
    )


def _text(number: int | None) -> str:
    return _UNKNOWN if number is None else f"{number:,}"


def _size(number: int | None) -> str:
    return _UNKNOWN if number is None else size_text(number)


def _utc(milliseconds: int) -> str:
    return moment_text(milliseconds, _shown)


def _shown(at: datetime) -> str:
    return at.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
