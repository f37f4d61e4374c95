"""Facts that a stream knows about its state. Tasks get the facts as operator state:

    parts       list       the reads of a batch, by key groups and channels
    watermarks  union      the watermark of each writer of the state, in ms since 1970
    table       broadcast  the facts that were fixed when the state was created

The parts of a batch are spread over its tasks. Every task gets the table and all watermarks, and
uses the least watermark. An offset holds the table and the watermarks as JSON. The offset of a
table also holds the commit time of its version: the version of the same number in another table has
another commit time.

    {"version": 7, …, "watermarks": {"0": 1767225600000}, "table": {"keys": ["id"], …},
     "committed_ms": 1767225601234}

An offset of a query's checkpoint has the batch's attempt instead, which tells two runs of a batch
apart. An offset of an operator has the number of the run that wrote the epoch:

    {"version": 7, …, "attempt": "1f0c6a52d3b7e984"}
    {"version": 7, …, "run": 3}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from checkpoint_store.epochs.operator_layout import BarrierName, parse_barrier
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.schema_columns import column_names
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.provider.provider_history import ProviderHistory
from checkpoint_store.states.state_history import StateHistory, StateVersion
from checkpoint_store.tables.table_history import TableHistory
from datasources.errors import StateReplacedError
from datasources.streams.channel_history import Ahead
from spark_state.operator_state.operator_state_backend import OperatorStateBackend

_VERSION_FACTS = {"committed_ms": "commit time of version {} (ms)", "attempt": "run of batch {}"}
_PART_FIELDS: list[pa.Field[Any]] = [
    pa.field("first_key_group", pa.int32()),
    pa.field("last_key_group", pa.int32()),
    pa.field("start", pa.int64()),
    pa.field("end", pa.int64()),
    pa.field("is_snapshot", pa.bool_()),
    pa.field("partitions", pa.int32()),
    pa.field("barriers", pa.list_(pa.string())),
    pa.field("barrier_times_ms", pa.list_(pa.int64())),
]
_PARTS = pa.schema(_PART_FIELDS)
_WATERMARKS = pa.schema([("writer", pa.int32()), ("watermark_ms", pa.int64())])
_NAME = pa.schema([("name", pa.string())])
_VALUE = pa.schema([("value", pa.string())])


@dataclass(frozen=True, slots=True)
class Part:
    """Read of some key groups: the state at version `end` if `is_snapshot`, else the changes after
    version `start` (None: all changes) up to `end`. `partitions`: the number of the query's
    partitions when the key groups were chosen; None if the number never changes. `ahead`: the
    barriers of epochs that are not whole; see ChannelHistory."""

    key_groups: KeyGroupRange
    start: int | None
    end: int
    is_snapshot: bool
    partitions: int | None = None
    ahead: Ahead = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """Facts that were fixed when a table, the store of an operator, or a query's checkpoint was
    created. `query_id`: the id of a checkpoint's query, because the URL may get another query. The
    number of key groups of a checkpoint is not fixed, because the query may be rescaled."""

    keys: tuple[str, ...]
    max_parallelism: int
    sequenced: bool = False
    ignores_nulls: bool = False
    query_id: str | None = None

    def encode(self) -> dict[str, Any]:
        """Encode the facts as JSON values, for an offset."""
        return {
            "keys": list(self.keys),
            "maxParallelism": self.max_parallelism,
            "sequenced": self.sequenced,
            "ignoresNulls": self.ignores_nulls,
            **({} if self.query_id is None else {"queryId": self.query_id}),
        }

    @classmethod
    def decode(cls, facts: Mapping[str, Any]) -> TableFacts:
        return cls(
            tuple(facts["keys"]),
            facts["maxParallelism"],
            facts["sequenced"],
            facts["ignoresNulls"],
            facts.get("queryId"),
        )

    def check(self, url: str, read_before: TableFacts) -> None:
        """Compare these facts, of the state at `url`, with the facts of the state that the stream
        has read. Raises StateReplacedError if the facts differ."""
        facts_now = self.encode()
        for name, value in read_before.encode().items():
            is_fixed = name != "maxParallelism" or self.query_id is None
            if is_fixed and facts_now.get(name) != value:
                raise StateReplacedError(url, name, value, facts_now.get(name))


def facts_of(history: StateHistory) -> TableFacts:
    """The facts that were fixed when this state was created."""
    if isinstance(history, TableHistory):
        table = history.metadata
        keys = column_names(table.key_schema_json)
        sequenced = table.sequence_by is not None
        return TableFacts(keys, table.max_parallelism, sequenced, table.ignore_null_updates)
    if isinstance(history, ProviderHistory):
        keys, query_id = history.key_names, history.query_id
        return TableFacts(keys, history.max_parallelism, query_id=query_id)
    assert isinstance(history, OperatorHistory), f"{history!r} is not of an operator"
    return TableFacts(column_names(history.metadata.key_schema_json), history.max_parallelism)


def version_facts(history: StateHistory, version: StateVersion) -> dict[str, Any]:
    """Facts for an offset by which a later check notices that another version has taken the same
    number. For an operator the fact is the run that wrote the epoch: the changes of two runs may be
    equal, see epochs_read."""
    if isinstance(history, TableHistory):
        return {"committed_ms": version.info.timestamp_ms}
    if isinstance(history, ProviderHistory):
        return {"attempt": history.attempt_at(version.info.version)}
    assert isinstance(history, OperatorHistory), f"{history!r} is not of an operator"
    return {"run": history.checkpoint_at(version.info.version).run.number}


def check_version_facts(
    url: str, version: int, read_before: Mapping[str, Any], facts_now: Mapping[str, Any]
) -> None:
    """Compare the `version_facts` of now with the offset of an earlier read. Raises
    StateReplacedError if the facts differ."""
    for name, value in facts_now.items():
        if name in _VERSION_FACTS and read_before.get(name, value) != value:
            fact = _VERSION_FACTS[name].format(version)
            raise StateReplacedError(url, fact, read_before[name], value)


def watermarks_in(offset: Mapping[str, Any]) -> dict[int, int]:
    return {int(writer): ms for writer, ms in offset.get("watermarks", {}).items()}


@dataclass(frozen=True, slots=True)
class SourceState:
    """Facts that one task knows about the state of its stream, or that the driver knows for all
    tasks."""

    parts: tuple[Part, ...]
    watermarks_ms: Mapping[int, int]
    facts: TableFacts

    @property
    def watermark_ms(self) -> int | None:
        """The least watermark of all writers; None if no writer has a watermark."""
        return min(self.watermarks_ms.values(), default=None)

    @classmethod
    def restored(cls, snapshot: bytes, task: int, tasks: int) -> SourceState:
        """Restore the facts for one task from a snapshot. `task`: the number of the task; `tasks`:
        the number of all tasks."""
        backend = OperatorStateBackend.restore([snapshot], task, tasks)
        table = backend.broadcast_state("table", _NAME, _VALUE)
        return cls(
            tuple(_part(item) for item in backend.list_state("parts", _PARTS).get()),
            dict(backend.union_state("watermarks", _WATERMARKS).get()),
            TableFacts.decode({name: json.loads(value) for (name,), (value,) in table.items()}),
        )

    def to_snapshot(self) -> bytes:
        """Encode the state as bytes, for any number of tasks."""
        backend = OperatorStateBackend()
        backend.list_state("parts", _PARTS).update(map(_item, self.parts))
        backend.union_state("watermarks", _WATERMARKS).update(self.watermarks_ms.items())
        table = backend.broadcast_state("table", _NAME, _VALUE)
        for name, value in self.facts.encode().items():
            table.put((name,), (json.dumps(value),))
        return backend.snapshot().to_bytes()


def _item(part: Part) -> Sequence[Any]:
    barriers, times = zip(*part.ahead.values(), strict=True) if part.ahead else ((), ())
    return (
        part.key_groups.start,
        part.key_groups.end,
        part.start,
        part.end,
        part.is_snapshot,
        part.partitions,
        [str(name) for name in barriers],
        list(times),
    )


def _part(item: Sequence[Any]) -> Part:
    first, last, start, end, is_snapshot, partitions, names, times = item
    ahead: dict[int, tuple[BarrierName, int]] = {}
    for text, time_ms in zip(names, times, strict=True):
        name = parse_barrier(text)
        assert name is not None, f"{text!r} is not the name of a barrier"
        ahead[name.directory.epoch] = (name, time_ms)
    return Part(KeyGroupRange(first, last), start, end, is_snapshot, partitions, ahead)
