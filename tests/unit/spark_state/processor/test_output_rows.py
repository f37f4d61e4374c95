"""Output rows are matched by name, kept within bounds, and refused with field, value and type."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row

from spark_state.errors import OutputRowError
from spark_state.memory_share import MemoryShare, MemoryUse
from spark_state.processor.output_rows import OutputEncoder, OutputPlace, OutputSpool

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("tags", pa.list_(pa.struct([("t", pa.string())]))),
    ]
)


def encode(*rows: Any) -> list[dict[str, Any]]:
    encoder = OutputEncoder(SCHEMA)
    encoder.add(rows)
    assert encoder.rows == len(rows)
    result: list[dict[str, Any]] = encoder.batch().to_pylist()
    assert not encoder.rows
    return result


def test_fields_are_matched_by_name_in_any_order() -> None:
    person = Row("name", "tags", "id")
    assert encode(
        Row(id=1, name="a", tags=[Row(t="x")]),
        Row(tags=None, id=2, name=None),
        person("c", [{"t": "y"}], 3),
    ) == [
        {"id": 1, "name": "a", "tags": [{"t": "x"}]},
        {"id": 2, "name": None, "tags": None},
        {"id": 3, "name": "c", "tags": [{"t": "y"}]},
    ]


def test_batches_begin_anew_and_may_be_added_to_in_parts() -> None:
    encoder = OutputEncoder(SCHEMA)
    encoder.add([Row(id=1, name="a", tags=None)])
    encoder.add([Row(name="b", id=2, tags=[])])
    assert encoder.batch().column("name").to_pylist() == ["a", "b"]
    encoder.add([Row(id=3, name=None, tags=None)])
    assert encoder.batch().to_pylist() == [{"id": 3, "name": None, "tags": None}]


def test_rows_of_a_template_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The field names of such a row are a Row, which looks up a name by raising an exception."""

    def refuse(*_: object) -> bool:
        raise AssertionError("a name was looked up in a Row")

    monkeypatch.setattr(Row, "__contains__", refuse)
    rows = [Row("id", "name", "tags")(number, "a", None) for number in range(3)]
    in_another_order = Row("name", "tags", "id")("a", None, 3)
    converted = Row("id", "name", "tags")(np.int64(4), "a", None)
    encoded = encode(*rows, Row(id=5, name="a", tags=None))
    assert encoded == [{"id": n, "name": "a", "tags": None} for n in (0, 1, 2, 5)]
    assert encode(in_another_order, converted) == [
        {"id": n, "name": "a", "tags": None} for n in (3, 4)
    ]


def test_rows_that_need_no_conversion_are_as_those_that_do() -> None:
    exact = [Row(id=1, name="a", tags=None), Row(id=2, name=None, tags=None)]
    assert encode(*exact) == [row.asDict() for row in exact]
    assert encode(*exact, Row(id=np.int64(3), name="c", tags=None))[-1]["id"] == 3


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (Row(id="one", name="a", tags=None), r"field 'id' expects int64, got 'one' of type str"),
        (Row(id=1, name=5, tags=None), r"field 'name' expects string, got 5 of type int"),
        (Row(id=1.5, name="a", tags=None), r"field 'id' expects int64, got 1.5"),
        (Row(id=None, name="a", tags=None), r"field 'id' must not be null"),
        (Row(id=1, name="a"), r"missing fields \['tags'\], unknown fields \[\]"),
        (Row(id=1, nme="a", tags=None), r"missing fields \['name'\], unknown fields \['nme'\]"),
        ((1, "a", None), r"yields Row\(id=…, name=…, tags=…\), got \(1, 'a', None\) of type tuple"),
        (Row(1, "a", None), r"yields Row\(id=…"),
        ({"id": 1}, r"got {'id': 1} of type dict"),
        (None, r"got None of type NoneType"),
    ],
)
def test_a_row_that_does_not_match_is_refused(row: Any, message: str) -> None:
    with pytest.raises(OutputRowError, match=message):
        encode(Row(id=1, name="fine", tags=None), row)


def test_a_spool_gives_back_what_it_got_in_order() -> None:
    batches = [pa.record_batch({"id": pa.array(range(n), pa.int64())}) for n in (3, 0, 5)]
    with OutputSpool(batches[0].schema, 1 << 20, OutputPlace.unlimited()) as spool:
        for batch in batches:
            spool.append(batch)
        assert spool.rows == 8
        assert pa.Table.from_batches(spool.read()).column("id").to_pylist() == [0, 1, 2, *range(5)]


def test_an_empty_spool_reads_as_nothing() -> None:
    with OutputSpool(SCHEMA, 1 << 20, OutputPlace.unlimited()) as spool:
        assert list(spool.read()) == []


def test_a_spool_moves_to_a_file_beyond_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    spooled: list[Any] = []
    original = tempfile.SpooledTemporaryFile

    def remember(*args: Any, **kwargs: Any) -> Any:
        spooled.append(original(*args, **kwargs))
        return spooled[-1]

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", remember)
    batch = pa.record_batch({"id": pa.array(range(1000), pa.int64())})
    with OutputSpool(batch.schema, 20_000, OutputPlace.unlimited()) as spool:
        spool.append(batch)
        assert not spooled[0]._rolled
        for _ in range(9):
            spool.append(batch)
        assert spooled[0]._rolled
        assert sum(b.num_rows for b in spool.read()) == 10_000
    assert spooled[0].closed


def test_a_spool_that_has_moved_to_a_file_counts_for_no_memory() -> None:
    use = MemoryUse()
    batch = pa.record_batch({"id": pa.array(range(1000), pa.int64())})
    place = OutputPlace(MemoryShare(use, 1 << 20))
    with OutputSpool(batch.schema, 20_000, place) as spool:
        spool.append(batch)
        spool.append(batch)
        assert use.bytes == 2 * batch.nbytes
        spool.append(batch)
        assert use.bytes == 0
        spool.append(batch)
        assert use.bytes == 0
        assert sum(b.num_rows for b in spool.read()) == 4_000
    assert use.bytes == 0
