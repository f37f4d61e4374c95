"""Gives a stopped query another number of partitions, see checkpoint_change.

A record is written before the new state and says where the new state goes, so that an undo finds
the new state. The rescale takes effect with the edit of the newest entry of the offset log: until
this edit the query continues with the former number, and from then on with the new number. Every
other edited file gets two texts: before this edit a text with which both numbers work, and
afterwards the final text (`between` and `after` in rescale_edits).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from checkpoint_store.amounts import size_text
from spark_state.errors import ConfigurationError, UnsupportedOperationError
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.placed_state import place_of
from spark_state.spark.provider.query_checkpoint import (
    PARTITIONS,
    QueryCheckpoint,
    StatefulOperator,
    read_checkpoint,
)
from spark_state.spark.rescaling.rescale_edits import edited_paths, edits_of
from spark_state.spark.rescaling.rescale_plan import (
    RescalePlan,
    check_request,
    plan_rescale,
)
from spark_state.spark.stopped_query.change_folder import (
    ChangeFolder,
    delete_unfinished,
    has_run_since,
    took_effect,
)
from spark_state.spark.stopped_query.change_record import RESCALE, ChangeRecord, digest
from spark_state.spark.stopped_query.checkpoint_change import (
    PlannedChange,
    Progress,
    WrittenState,
    check_edited,
    run_store_job,
)
from spark_state.spark.stopped_query.next_batch import check_not_started


class Rescale:
    """The change of a query's number of partitions. A `Change`."""

    kind = RESCALE

    def plan(self, files: CheckpointFiles, checkpoint: QueryCheckpoint, target: int) -> RescalePlan:
        """The plan for `target` partitions. Raises the errors of `plan_rescale`."""
        present = check_request(checkpoint, target)
        order = _order(checkpoint, present, target, checkpoint.operators)
        partitionings = {}
        for told in files.partitionings(order):
            if told.get("error") is not None:
                raise UnsupportedOperationError(
                    f"operator {told['operator']} of {checkpoint.url}: {told['error']}"
                )
            partitionings[told["operator"], told["store"]] = tuple(told["columns"])
        return plan_rescale(checkpoint, target, partitionings)

    def planned_change(self, plan: RescalePlan) -> PlannedChange:
        """The plan as reports show it."""
        return PlannedChange(
            checkpoint=plan.checkpoint,
            changed={"Partitions": (plan.partitions, plan.target)},
            steps=tuple(_steps(plan)),
            facts={
                "from": plan.partitions,
                "to": plan.target,
                "rescaled": [
                    {
                        "operator": each.operator.number,
                        "key": list(each.columns),
                        "stores": list(each.operator.stores),
                        "bytes": plan.bytes_of(each),
                    }
                    for each in plan.rescaled
                ],
                "single_partition": [operator.number for operator in plan.single],
                "edits": edited_paths(plan),
            },
            start=("Start the query; its checkpoint has the number of partitions.",),
        )

    def write_state(
        self, folder: ChangeFolder, plan: RescalePlan, begun: ChangeRecord, progress: Progress
    ) -> WrittenState:
        """Write the new partitions of all stores. Raises StateNotWrittenError."""
        files, attempt = folder.files, uuid.uuid4().hex[:16]
        operators = [each.operator for each in plan.rescaled]
        order = _order(plan.checkpoint, plan.partitions, plan.target, operators, attempt)
        own = {**order, "version": 0, "settings": {}}
        begun = replace(begun, own=own, created=plan.new_notes)
        folder.begin(begun)
        partitions: list[dict[str, Any]] = []
        if plan.moves_rows:
            partitions = run_store_job(lambda: files.start_rescaling(order), progress)
            assert len(partitions) == len(order["stores"]) * plan.target
        ids, rows = dict[tuple[int, str, int], str](), Counter[str]()
        for made in partitions:
            ids[made["operator"], made["store"], made["partition"]] = made["unique"]
            rows[f"operator {made['operator']}"] += made["rows"]
        edits = edits_of(plan, ids)
        record = replace(
            begun,
            edited={edit.path: digest(edit.after) for edit in edits},
            between={edit.path: edit.between for edit in edits[:-1]},
            finishing={edit.path: edit.after for edit in edits[:-1]},
        )
        return WrittenState(record, {edit.path: edit.after for edit in edits}, rows)

    def check_revert(self, folder: ChangeFolder, record: ChangeRecord, *, force: bool) -> None:
        """Raise ConfigurationError if the query has run with the new number, or if somebody else
        has edited a file that the rescale edited. Also raise the error if the query may have been
        started with the new number, unless `force` says that the query is stopped."""
        files, checkpoint = folder.files, read_checkpoint(folder.files)
        if took_effect(files, record) or checkpoint.partitions != record.own["from"]:
            if has_run_since(record, checkpoint.planned, checkpoint.committed):
                raise ConfigurationError(
                    f"{checkpoint.url} has gone on to batch {checkpoint.planned} with "
                    f"{checkpoint.partitions} partitions since {folder.path}: going back to batch "
                    f"{record.planned} would lose state. Run cowstate rescale --partitions "
                    f"{record.own['from']} instead"
                )
            there = {path: new for path, new in record.edited.items() if files.exists(path)}
            check_edited(folder, replace(record, edited=there))
        if not force:
            check_not_started(folder)

    def delete_state(self, folder: ChangeFolder, begun: ChangeRecord) -> str | None:
        """Delete the files of the new partitions, and the directories of the new partitions in the
        checkpoint. If the files are in an object store, and the checkpoint is a copy (`is_shared`),
        leave the files there and return the URL of the object store."""
        files, own, place = folder.files, begun.own, place_of(folder.files)
        left = place.root if place is not None and folder.is_shared(begun) else None
        if left is None:
            files.discard_rescaled({**own, "checkpoint": files.url})
        delete_unfinished(files, begun.created)
        for number in sorted({store["operator"] for store in own["stores"]}):
            for partition in reversed(range(own["from"], own["to"])):
                directory = f"state/{number}/{partition}"
                if all(file.path in begun.created for file in files.below(directory)):
                    files.delete(directory)
        return left


def _steps(plan: RescalePlan) -> Iterator[str]:
    for each in plan.rescaled if plan.moves_rows else ():
        count, version = len(each.operator.stores), plan.checkpoint.version
        stores = "a store" if count == 1 else f"{count} stores"
        yield (
            f"deal out the rows of version {version} of operator {each.operator.number} by the "
            f"hash of {', '.join(each.columns)}: {plan.partitions} partitions of {stores}, "
            f"{size_text(plan.bytes_of(each))}, to {plan.target}; read them back and compare"
        )
    for operator in plan.single:
        yield (
            f"leave operator {operator.number}, {operator.name}, as it is: it takes all rows in "
            "one partition"
        )
    yield f"set {PARTITIONS} = {plan.target} in {', '.join(edited_paths(plan))}"


def _order(
    checkpoint: QueryCheckpoint,
    present: int,
    target: int,
    operators: Sequence[StatefulOperator],
    attempt: str = "",
) -> dict[str, Any]:
    return {
        "checkpoint": checkpoint.url,
        "attempt": attempt,
        "version": checkpoint.version,
        "from": present,
        "to": target,
        "settings": checkpoint.settings,
        "stores": [
            {
                "operator": operator.number,
                "operatorName": operator.name,
                "store": store,
                "prefixColumns": operator.prefix_columns(store),
                "uniques": _former_ids(checkpoint, operator, store),
            }
            for operator in operators
            for store in operator.stores
        ],
    }


def _former_ids(
    checkpoint: QueryCheckpoint, operator: StatefulOperator, store: str
) -> list[str] | None:
    if checkpoint.state_ids is None:
        return None
    place = operator.stores.index(store)
    return [ids[place] for ids in checkpoint.state_ids[str(operator.number)]]
