"""The documents of a table: the table itself, versions, and compactions.

    table.json                         TableMetadata: fixed when the table is created
    versions/<version>.json            TableVersion: one commit, and all that a reader needs
    compactions/<version>-<unique>.json    TableCompaction: the same state in fewer files

A version names every file of the state at the version and, separately, the files added by the
version itself (I2). So from one read a reader knows all other files to read, and the change feed of
a version outlives the merging of the version's files. Versions are numbered from 0 without gaps,
each built upon the version before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.states.event_time import WriterWatermarks

ROW_STATE = "row"


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """The columns that tell the rows of a table apart, and the rule by which a row of a key wins.

    `key_schema_json`: the key columns, in order, as JSON of Spark's StructType. `sequence_by`: the
    column whose greatest value wins; None: the row written last wins. `ignore_null_updates`: a null
    in a row keeps the value of the key.
    """

    table_id: str
    key_schema_json: str
    max_parallelism: int
    sequence_by: str | None
    ignore_null_updates: bool

    @property
    def key_groups(self) -> KeyGroupRange:
        return KeyGroupRange(0, self.max_parallelism - 1)


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One commit.

    Fields:

        owner          streaming query to which the table belongs, if any
        run            start of the query that wrote the version; None for a batch job
        batches        last batch in the table, by query
        schema_json    all columns, in order, as JSON of Spark's StructType
        changes        files added by the version, in the order in which files apply
        state          files of the whole state, in the same order: of two rows of a key the later
                       row counts
        watermarks     progress of the commits' tasks in event time, if rows have an event time
        failed_upkeep  how often the writers have failed to fold files or to clean up since the last
                       success
    """

    version: int
    owner: str | None
    timestamp_ms: int
    schema_json: str
    batches: Mapping[str, int]
    changes: tuple[StateHandle, ...]
    state: tuple[StateHandle, ...]
    run: str | None
    watermarks: WriterWatermarks
    failed_upkeep: int

    def object_names(self) -> frozenset[str]:
        """All state files for readers of this version."""
        return frozenset(handle.name for handle in (*self.changes, *self.state))


@dataclass(frozen=True, slots=True)
class TableCompaction:
    """A compaction of the state of `version`: `files`, in order, hold exactly the same state as the
    files named in `replaces`."""

    version: int
    replaces: tuple[str, ...]
    files: tuple[StateHandle, ...]

    def applied_to(self, state: tuple[StateHandle, ...]) -> tuple[StateHandle, ...] | None:
        """Replace the files `replaces` in `state` by `files`; None if `state` does not begin with
        `replaces`."""
        count = len(self.replaces)
        if tuple(handle.name for handle in state[:count]) != self.replaces:
            return None
        return self.files + state[count:]


def compacted(version: TableVersion, compactions: tuple[TableCompaction, ...]) -> TableVersion:
    """The version, with the files of its state replaced by the newest compaction that fits. Among
    compactions of one version the compaction with the fewest files is taken."""
    newest_first = sorted(
        compactions, key=lambda compaction: (-compaction.version, len(compaction.files))
    )
    for compaction in newest_first:
        state = compaction.applied_to(version.state)
        if state is not None:
            return replace(version, state=state)
    return version


Standing = Literal["counts", "late", "unknown"]


def standing_of(
    put: TableVersion, writer: str, newest: TableVersion, numbers: Sequence[int]
) -> Standing:
    """Decide whether the version `put` counts, or was put too late. The version before `put` is
    gone. `writer`: the writer of `put`; `newest`: the newest version; `numbers`: the numbers of all
    existing versions.

    A writer reads version n, and puts n + 1. Suppose that, between the read and the put, the writer
    pauses until other writers have committed many versions and retention has deleted n and n + 1.
    Then the name of n + 1 is free again: the put succeeds, and no reader counts the version.
    Retention deletes the oldest version first, so while n exists, n + 1 was never deleted. If n is
    gone, the newest version tells:

        the newest has the files or the batch of n + 1     n + 1 counts
        a query put n + 1, and the newest lacks its batch  too late
        a job put n + 1, and n + 2 is missing              too late: retention leaves no gap
        otherwise                                          nobody can tell
    """
    if {handle.name for handle in put.changes} & newest.object_names():
        return "counts"
    if put.run is not None:
        is_held = newest.batches.get(writer, -1) >= put.batches[writer]
        return "counts" if is_held else "late"
    has_gap = put.version in numbers and put.version + 1 not in numbers
    return "late" if has_gap else "unknown"
