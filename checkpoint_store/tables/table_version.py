"""What a table says of itself, and of each of its versions.

    table.json                         TableMetadata: fixed when the table is created
    versions/<version>.json            TableVersion: one commit, and all that a reader needs
    compactions/<version>-<unique>-<length>.json    TableCompaction: the same state in fewer files

A version names every file of the state at that version and, apart from those, the files that it
added itself (I2), so one read tells what to read next, and the change feed of a version outlives
the merging of its files. Versions are numbered from 0 without gaps, each built upon the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.states.event_time import WriterWatermarks

ROW_STATE = "row"


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """How rows of a table are told apart and which of them win.

    `key_schema_json`: the key columns, in order, as Spark's StructType writes itself.
    `sequence_by`: the column whose greatest value wins; None: the row written last wins.
    `ignore_null_updates`: a null in a row keeps what the key has.
    """

    table_id: str
    key_schema_json: str
    max_parallelism: int
    sequence_by: str | None = None
    ignore_null_updates: bool = False

    @property
    def key_groups(self) -> KeyGroupRange:
        """All there are."""
        return KeyGroupRange(0, self.max_parallelism - 1)


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One commit.

    `owner`: the streaming query that the table belongs to, if any; `run`: which start of it wrote
    this version. `batches`: by query, the last
    batch that the table holds. `schema_json`: all columns, in order, as Spark's StructType writes
    itself. `changes`: the files that this version added; `state`: those of the whole state. Both in
    the order in which they apply: of two rows of a key the later one counts. `watermarks`: how far
    in event time the tasks of the commits were, if the rows have an event time. `failed_upkeep`:
    how often the writers have failed to fold files or to clean up since that last worked.
    """

    version: int
    owner: str | None
    timestamp_ms: int
    schema_json: str
    batches: Mapping[str, int]
    changes: tuple[StateHandle, ...]
    state: tuple[StateHandle, ...]
    run: str | None = None
    watermarks: WriterWatermarks = field(default_factory=WriterWatermarks)
    failed_upkeep: int = 0

    def object_names(self) -> frozenset[str]:
        """The state files that a reader of this version may need."""
        return frozenset(handle.name for handle in (*self.changes, *self.state))


@dataclass(frozen=True, slots=True)
class TableCompaction:
    """`files` hold the state of `version` just as the files `replaces` do, in order."""

    version: int
    replaces: tuple[str, ...]
    files: tuple[StateHandle, ...]

    def applied_to(self, state: tuple[StateHandle, ...]) -> tuple[StateHandle, ...] | None:
        """`state` with these files in the place of those that they replace; None if it does not
        begin with those."""
        count = len(self.replaces)
        if tuple(handle.name for handle in state[:count]) != self.replaces:
            return None
        return self.files + state[count:]


def compacted(version: TableVersion, compactions: tuple[TableCompaction, ...]) -> TableVersion:
    """The version with its state compacted, by the newest compaction that fits. Among several for
    one version it is the one with the fewest files."""
    newest_first = sorted(
        compactions, key=lambda compaction: (-compaction.version, len(compaction.files))
    )
    for compaction in newest_first:
        state = compaction.applied_to(version.state)
        if state is not None:
            return replace(version, state=state)
    return version
