"""Operator state can be registered, changed, snapshotted and restored."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_store.errors import CorruptObjectError, UnsupportedFormatError
from spark_state.errors import ConfigurationError, StateMigrationError, StateValueError
from spark_state.operator_state import operator_state_snapshot
from spark_state.operator_state.operator_state_backend import OperatorStateBackend

POSITIONS = pa.schema([pa.field("split", pa.string(), nullable=False), ("position", pa.int64())])
WATERMARK = pa.schema([("milliseconds", pa.int64())])
NAME = pa.schema([("name", pa.string())])
VALUES = pa.schema([("values", pa.list_(pa.string()))])


def source_state(subtask: int, splits: int) -> OperatorStateBackend:
    """Make the state of a source's subtask: splits, watermark, and the options of all subtasks."""
    backend = OperatorStateBackend()
    positions = backend.list_state("positions", POSITIONS)
    for split in range(splits):
        positions.add((f"{subtask}.{split}", 100 * subtask + split))
    backend.union_state("watermark", WATERMARK).update([(1000 - subtask,)])
    backend.broadcast_state("options", NAME, VALUES).put(("columns",), (["a", "b"],))
    return backend


def snapshots_of(*splits: int) -> list[bytes]:
    backends = [source_state(subtask, count) for subtask, count in enumerate(splits)]
    return [backend.snapshot().to_bytes() for backend in backends]


def positions_of(backend: OperatorStateBackend) -> list[str]:
    return [split for split, _ in backend.list_state("positions", POSITIONS).get()]


def test_a_state_that_few_subtasks_had_reaches_all() -> None:
    late = source_state(1, 1)
    late.broadcast_state("rules", NAME, VALUES).put(("r",), (None,))
    late.union_state("seen", NAME).add(("x",))
    snapshots = [*snapshots_of(1), late.snapshot().to_bytes()]
    for subtask in range(2):
        backend = OperatorStateBackend.restore(snapshots, subtask, 2)
        assert backend.broadcast_state("rules", NAME, VALUES).get(("r",)) == (None,)
        assert backend.union_state("seen", NAME).get() == [("x",)]


def test_without_snapshots_the_backend_is_empty() -> None:
    backend = OperatorStateBackend.restore([])
    assert backend.list_state("positions", POSITIONS).get() == []
    empty = OperatorStateBackend().snapshot().to_bytes()
    assert OperatorStateBackend.restore([empty]).snapshot().to_bytes() == empty


def test_a_restored_state_that_nobody_registers_is_carried_on() -> None:
    snapshots = snapshots_of(2, 3)
    for _ in range(2):
        backends = [OperatorStateBackend.restore(snapshots, subtask, 2) for subtask in range(2)]
        snapshots = [backend.snapshot().to_bytes() for backend in backends]
    assert positions_of(OperatorStateBackend.restore(snapshots, 1, 2)) == ["1.0", "1.1", "1.2"]


def test_a_snapshot_is_the_moment_it_was_taken() -> None:
    backend = OperatorStateBackend()
    items = backend.list_state("items", VALUES)
    items.add((["before"],))
    options = backend.broadcast_state("options", NAME, VALUES)
    options.put(("k",), (["before"],))
    snapshot = backend.snapshot()
    items.get()[0][0].append("after")
    value = options.get(("k",))
    assert value is not None
    value[0].append("after")
    items.add((["later"],))
    options.put(("later",), ([],))
    restored = OperatorStateBackend.restore([snapshot.to_bytes()])
    assert restored.list_state("items", VALUES).get() == [(["before"],)]
    assert restored.broadcast_state("options", NAME, VALUES).items() == [(("k",), (["before"],))]
    assert items.get() == [(["before", "after"],), (["later"],)]


def test_the_same_state_gives_the_same_bytes() -> None:
    """A source compares the bytes to see that nothing changed."""
    snapshots = snapshots_of(3, 2)
    again = [OperatorStateBackend.restore(snapshots, subtask, 2) for subtask in range(2)]
    assert [backend.snapshot().to_bytes() for backend in again] != snapshots
    own = [backend.union_state("watermark", WATERMARK) for backend in again]
    for subtask, union in enumerate(own):
        union.update([(1000 - subtask,)])
    assert [backend.snapshot().to_bytes() for backend in again] == snapshots


def test_lists_are_added_to_replaced_and_cleared() -> None:
    state = OperatorStateBackend().list_state("positions", POSITIONS)
    state.add(("a", 1))
    state.add(["b", None])
    assert state.get() == [("a", 1), ("b", None)]
    state.get().clear()
    assert state.get() == [("a", 1), ("b", None)]
    state.update([("c", 3)])
    assert state.get() == [("c", 3)]
    with pytest.raises(StateValueError, match=r"operator state 'positions'.*'split'.*null"):
        state.update([("d", 4), (None, 5)])
    with pytest.raises(StateValueError, match="'position' expects int64, got 'x'"):
        state.add(("d", "x"))
    assert state.get() == [("c", 3)]
    state.clear()
    assert state.get() == []


def test_maps_are_put_into_and_removed_from() -> None:
    state = OperatorStateBackend().broadcast_state("options", NAME, WATERMARK)
    state.put(("a",), (1,))
    state.put(("b",), (2,))
    state.put(("a",), (3,))
    assert state.items() == [(("a",), (3,)), (("b",), (2,))]
    state.remove(("a",))
    state.remove(("never",))
    assert (state.get(("a",)), state.get(("b",))) == (None, (2,))
    with pytest.raises(StateValueError, match="key of operator state 'options'"):
        state.get((5.5,))
    with pytest.raises(StateValueError, match=r"operator state 'options'.*int64"):
        state.put(("c",), ("x",))
    state.clear()
    assert state.items() == []


def test_keys_that_can_change_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="without lists and maps"):
        OperatorStateBackend().broadcast_state("options", VALUES, NAME)


REGISTERED: list[tuple[str, Any]] = [
    ("mode", lambda backend: backend.union_state("positions", POSITIONS)),
    ("schema", lambda backend: backend.list_state("positions", NAME)),
    ("kind", lambda backend: backend.broadcast_state("positions", NAME, NAME)),
    ("nulls", lambda backend: backend.list_state("positions", pa.schema(list(POSITIONS)[1:]))),
]


@pytest.mark.parametrize("register", [row[1] for row in REGISTERED], ids=[r[0] for r in REGISTERED])
def test_a_state_of_another_mode_or_schema_is_refused_with_both(register: Any) -> None:
    restored = OperatorStateBackend.restore(snapshots_of(1, 1), 0, 2)
    with pytest.raises(StateMigrationError) as raised:
        register(restored)
    message = str(raised.value)
    assert "operator state 'positions' is kept as split of struct<split: string not null" in message
    assert "what is registered has" in message
    assert "give the state another name" in message


def test_registering_again_gives_the_same_state() -> None:
    backend = source_state(0, 1)
    first = backend.list_state("positions", POSITIONS)
    assert backend.list_state("positions", POSITIONS) is first


def test_snapshots_that_disagree_are_refused() -> None:
    other = OperatorStateBackend()
    other.list_state("positions", NAME)
    snapshots = [*snapshots_of(1, 1), other.snapshot().to_bytes()]
    with pytest.raises(StateMigrationError, match="the snapshot of subtask 2 has split of"):
        OperatorStateBackend.restore(snapshots, 0, 3)


@pytest.mark.parametrize(("subtask", "parallelism"), [(2, 2), (-1, 2), (0, 0)])
def test_a_subtask_that_does_not_exist_is_refused(subtask: int, parallelism: int) -> None:
    with pytest.raises(ConfigurationError, match=f"no subtask {subtask} of {parallelism}"):
        OperatorStateBackend.restore([], subtask, parallelism)


def test_every_changed_byte_is_noticed() -> None:
    (data,) = snapshots_of(1)
    for place in range(0, len(data), 7):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(CorruptObjectError, match="the snapshot of subtask 0"):
            OperatorStateBackend.restore([changed])
    for cut in (b"", data[:10], data[:-1]):
        with pytest.raises(CorruptObjectError, match=f"SHA-256 of its {len(cut)} bytes"):
            OperatorStateBackend.restore([cut])


def arrow_stream(kind: str, batches: int) -> bytes:
    metadata = {"cowstate.kind": kind, "cowstate.format_version": "1", "cowstate.states": "[]"}
    schema = pa.schema([], metadata={**metadata})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for _ in range(batches):
            writer.write_batch(pa.RecordBatch.from_arrays([], schema=schema))
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    "stream",
    [b"", b"anything", arrow_stream("changelog", 1), arrow_stream("operator_state", 0)],
    ids=["nothing", "anything", "another kind", "no batch"],
)
def test_what_is_whole_but_no_snapshot_is_refused(stream: bytes) -> None:
    with pytest.raises(CorruptObjectError, match="not a snapshot"):
        OperatorStateBackend.restore([stream + hashlib.sha256(stream).digest()])


def test_a_snapshot_of_a_newer_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(operator_state_snapshot, "FORMAT_VERSION", 2)
        snapshots = snapshots_of(1)
    with pytest.raises(UnsupportedFormatError, match=r"format version 2.*upgrade"):
        OperatorStateBackend.restore(snapshots)


def test_a_snapshot_is_an_arrow_stream_with_a_row_for_every_item() -> None:
    (data,) = snapshots_of(2)
    batch = pa.ipc.open_stream(data).read_next_batch()
    nothing = {"positions": None, "watermark": None, "options": None}
    assert batch.to_pylist() == [
        nothing | {"positions": {"split": "0.0", "position": 0}},
        nothing | {"positions": {"split": "0.1", "position": 1}},
        nothing | {"watermark": {"milliseconds": 1000}},
        nothing | {"options": {"key": {"name": "columns"}, "value": {"values": ["a", "b"]}}},
    ]
    described = json.loads(pa.ipc.open_stream(data).schema.metadata[b"cowstate.states"])
    assert [
        tuple(state[key] for key in ("name", "mode", "first", "count")) for state in described
    ] == [
        ("positions", "split", 0, 2),
        ("watermark", "union", 2, 1),
        ("options", "broadcast", 3, 1),
    ]
