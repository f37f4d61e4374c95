"""The source of docs/how-to/keep-operator-state.md works as documented, without Spark."""

from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "keep-operator-state.md"
Offset = dict[str, Any]
Lines = list[tuple[str, str]]


@pytest.fixture(scope="module")
def source_class() -> Any:
    code = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)[0]
    names: dict[str, Any] = {"__name__": "documented_source"}
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), names)
    return names["LogFolder"]


class Query:
    """One run of a query: offsets go through JSON, readers and partitions through pickle, as in
    Spark."""

    def __init__(self, source_class: Any, folder: Path, tasks: int) -> None:
        source = source_class({"path": str(folder), "tasks": str(tasks)})
        self.reader = cloudpickle.loads(cloudpickle.dumps(source.streamReader(source.schema())))

    def first_offset(self) -> Offset:
        return through_json(self.reader.initialOffset())

    def latest_offset(self, start: Offset) -> Offset:
        return through_json(self.reader.latestOffset(start, ReadAllAvailable()))

    def read(self, start: Offset, end: Offset) -> list[Lines]:
        """Return the rows of each task."""
        partitions = cloudpickle.loads(cloudpickle.dumps(self.reader.partitions(start, end)))
        return [list(self.reader.read(partition)) for partition in partitions]


def through_json(offset: Offset) -> Offset:
    parsed: Offset = json.loads(json.dumps(offset))
    return parsed


def append(file: Path, text: str) -> None:
    with file.open("a", encoding="utf-8") as log:
        log.write(text)


def test_each_line_is_read_once_over_restarts_with_any_number_of_tasks(
    source_class: Any, tmp_path: Path
) -> None:
    names = ["a.log", "b.log", "c.log", "d.log", "e.log"]
    for name in names:
        append(tmp_path / name, "1\n")
    query = Query(source_class, tmp_path, tasks=2)
    start = query.first_offset()
    end = query.latest_offset(start)
    assert query.read(start, end) == [
        [("a.log", "1"), ("c.log", "1"), ("e.log", "1")],
        [("b.log", "1"), ("d.log", "1")],
    ]
    for number, tasks in enumerate([2, 3, 1, 4], start=2):
        query = Query(source_class, tmp_path, tasks)
        replayed = query.read(start, end)
        assert sorted(chain(*replayed)) == [(name, str(number - 1)) for name in names]
        for name in names:
            append(tmp_path / name, f"{number}\n")
        start, end = end, query.latest_offset(end)
        by_task = query.read(start, end)
        assert sorted(chain(*by_task)) == [(name, str(number)) for name in names]
        assert len(by_task) == tasks
        assert max(map(len, by_task)) - min(map(len, by_task)) <= 1


def test_without_new_lines_the_offset_stays(source_class: Any, tmp_path: Path) -> None:
    append(tmp_path / "a.log", "whole\nunfinished")
    query = Query(source_class, tmp_path, tasks=2)
    start = query.first_offset()
    end = query.latest_offset(start)
    assert query.read(start, end) == [[("a.log", "whole")]]
    assert query.latest_offset(end) == end
    assert query.read(end, end) == []
    append(tmp_path / "a.log", " no more\n")
    following = query.latest_offset(end)
    assert query.read(end, following) == [[("a.log", "unfinished no more")]]
