"""The edits of a checkpoint that give its query another number of partitions. Pure.

The change takes effect with a single edit: the edit of the newest entry of the offset log. From
this edit on, Spark has the new number, and the provider uses the files for the new number. The
other files get one text before this edit (`between`) and one after (`after`), so that the query can
continue at any moment, with the former number or with the new number:

    file                       before      between                       after
    offsets/<planned>          number      number                        new number: takes effect
    offsets/<planned - 1>      number      no number                     new number
    commits/<committed>        ids         ids, then the ids of          new ids
                                           additional partitions
    state/<operator>/_metadata number      number                        new number

The second newest entry is edited only if the newest batch is not committed. If both entries have
numbers and the numbers differ, Spark takes the batch for an unfinished offline repartitioning, and
refuses to start.

The commit log has ids only in checkpoint format 2. Spark reads one id for each partition. As long
as the log has the former ids, the provider finds a rescaled state by the id of the former state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_state.spark.provider.query_checkpoint import PARTITIONS, LogEntry
from spark_state.spark.rescaling.rescale_plan import RescalePlan

NewIds = Mapping[tuple[int, str, int], str]
"""The ids of new states, by operator, store and partition."""
_Content = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FileEdit:
    """The new texts of a file. `between`: until the change takes effect, and again during an undo;
    `after`: once the change has taken effect."""

    path: str
    between: str
    after: str


def edited_paths(plan: RescalePlan) -> list[str]:
    """The edited files, in the order of the edits."""
    entries = (_entry_before(plan), _commit(plan), *_noted(plan), _switch(plan))
    return [entry.path for entry in entries if entry is not None]


def _switch(plan: RescalePlan) -> LogEntry:
    return plan.checkpoint.offsets[plan.checkpoint.planned]


def _entry_before(plan: RescalePlan) -> LogEntry | None:
    """The second newest entry, if the newest batch is not committed."""
    checkpoint = plan.checkpoint
    if checkpoint.planned == checkpoint.committed:
        return None
    return checkpoint.offsets.get(checkpoint.planned - 1)


def _commit(plan: RescalePlan) -> LogEntry | None:
    """The entry of the commit log, if the entry has ids."""
    return plan.checkpoint.commit if plan.checkpoint.state_ids else None


def _noted(plan: RescalePlan) -> list[LogEntry]:
    operators = [*(each.operator for each in plan.rescaled), *plan.single]
    return [operator.noted for operator in sorted(operators, key=lambda each: each.number)]


def edits_of(plan: RescalePlan, ids: NewIds) -> list[FileEdit]:
    """The edits of a plan, in order. The last edit is the edit of the newest entry of the offset
    log, with which the rescale takes effect. `ids`: the ids of the new states."""
    edits, number = [], str(plan.target)
    before, commit, switch = _entry_before(plan), _commit(plan), _switch(plan)
    if before is not None:
        others = {key: text for key, text in before.settings.items() if key != PARTITIONS}
        with_number = {**before.settings, PARTITIONS: number}
        edits.append(_edit(before, {"conf": others}, {"conf": with_number}))
    if commit is not None:
        former, new = commit.content["stateUniqueIds"], _new_ids(plan, ids)
        longer = {key: [*former[key], *new[key][plan.partitions :]] for key in new}
        between = {"stateUniqueIds": {**former, **longer}}
        edits.append(_edit(commit, between, {"stateUniqueIds": {**former, **new}}))
    for entry in _noted(plan):
        stores = [{**s, "numPartitions": plan.target} for s in entry.content["stateStoreInfo"]]
        edits.append(_edit(entry, {}, {"stateStoreInfo": stores}))
    return [*edits, _edit(switch, {}, {"conf": {**switch.settings, PARTITIONS: number}})]


def _edit(entry: LogEntry, between: _Content, after: _Content) -> FileEdit:
    """The edit of the file of `entry`. `between` and `after`: for each of the two new texts of the
    file, the keys to replace in the JSON object on the second line."""
    return FileEdit(entry.path, entry.changed(between), entry.changed(after))


def _new_ids(plan: RescalePlan, ids: NewIds) -> dict[str, list[list[str]]]:
    return {
        str(operator.number): [
            [ids[operator.number, store, partition] for store in operator.stores]
            for partition in range(plan.target)
        ]
        for operator in (each.operator for each in plan.rescaled)
    }
