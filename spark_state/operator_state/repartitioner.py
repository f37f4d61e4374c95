"""Assignment of the items in snapshots to a restored subtask. Pure: reads meta infos, no items.

- Split state, same parallelism: each subtask gets its own items back.
- Split state, another parallelism: the items of all subtasks, in the order of subtasks and offsets,
  are dealt round robin. Item k goes to subtask k mod parallelism. So each subtask gets total //
  parallelism items, and the first total mod parallelism subtasks get one item more.
- Union state: every subtask gets all items.
- Broadcast state: every subtask takes one copy: subtask k takes copy k mod number of copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spark_state.operator_state.meta_info import OperatorStateMetaInfo


@dataclass(frozen=True, slots=True)
class AssignedItems:
    """Items of one state in one snapshot. `snapshot`: number of the old subtask. `offsets`: offsets
    of the items in the snapshot."""

    snapshot: int
    offsets: range


def assign_items(
    snapshots: Sequence[Sequence[OperatorStateMetaInfo]], subtask: int, parallelism: int
) -> dict[str, tuple[AssignedItems, ...]]:
    """Return the items that `subtask` of `parallelism` restores, by the names of all states of all
    snapshots. `snapshots`: meta infos of each old subtask, in the order of subtasks. A name has the
    same mode in all snapshots."""
    holders: dict[str, list[AssignedItems]] = {}
    modes = {}
    for snapshot, meta_infos in enumerate(snapshots):
        for meta_info in meta_infos:
            items = AssignedItems(snapshot, meta_info.offsets)
            holders.setdefault(meta_info.name, []).append(items)
            modes[meta_info.name] = meta_info.mode
    assigned = {}
    for name, items_of_all in holders.items():
        if modes[name] == "union":
            mine = items_of_all
        elif modes[name] == "broadcast":
            mine = [items_of_all[subtask % len(items_of_all)]]
        elif len(snapshots) == parallelism:
            mine = [items for items in items_of_all if items.snapshot == subtask]
        else:
            mine = list(_dealt(items_of_all, subtask, parallelism))
        assigned[name] = tuple(items for items in mine if items.offsets)
    return assigned


def _dealt(
    items_of_all: Sequence[AssignedItems], subtask: int, parallelism: int
) -> Iterator[AssignedItems]:
    dealt = 0
    for items in items_of_all:
        first = (subtask - dealt) % parallelism
        yield AssignedItems(items.snapshot, items.offsets[first::parallelism])
        dealt += len(items.offsets)
