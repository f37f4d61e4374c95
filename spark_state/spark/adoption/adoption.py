"""Lets a stopped query continue from its checkpoint with another state store provider.

The folder of the adoption (see change_folder) has, beside its records and copies:

    converted/   the new state, until the edits are made; deleted at the end

New state is written below `converted`, read back and compared. Then the new files are moved to the
directories of the stores, where the present provider ignores the files. The newest entry of the
offset log is edited last: until this edit the query continues as before, and after this edit with
the other provider.

State that moves to an object store is written directly into a new directory of the object store,
which no file names yet. If the provider stays the same, the last edit writes
state/cowstate-store.json, which names the directory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from checkpoint_store.files.document import Source
from checkpoint_store.object_names import STATE_PLACE
from checkpoint_store.objects.named_object import unique_of_uuid
from checkpoint_store.provider.state_place import StatePlace, decode_state_place
from spark_state.errors import ConfigurationError, CowstateError
from spark_state.spark.adoption.adoption_plan import (
    CHECKPOINT_FORMAT,
    HDFS_CLASS,
    IN_CHECKPOINT,
    AdoptionPlan,
    plan_adoption,
)
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.placed_state import PlacedState, store_url
from spark_state.spark.provider.provider_class import PROVIDER_KEY, short_name
from spark_state.spark.provider.query_checkpoint import QueryCheckpoint, read_checkpoint
from spark_state.spark.stopped_query.change_folder import ChangeFolder, has_run_since
from spark_state.spark.stopped_query.change_record import ADOPTION, ChangeRecord, digest
from spark_state.spark.stopped_query.checkpoint_change import (
    NEW_STATE,
    PlannedChange,
    Progress,
    WrittenState,
    check_edited,
    run_store_job,
)
from spark_state.spark.stopped_query.next_batch import check_not_started

_WITH_THE_JAR = (
    "Start the query with cowstate's jar: spark_state.configure(SparkSession.builder), or the "
    "output of `cowstate jar --options`."
)
_WHEN_TO_DELETE = "when you do not want to go back, and no copy of this checkpoint needs them."


@dataclass(frozen=True, slots=True)
class AdoptionTarget:
    """The provider and place with which a query is to continue. `to`: a key of TARGETS; `store`:
    the URL of the object store for the state, IN_CHECKPOINT, or None, see
    adoption_plan.plan_adoption."""

    to: str
    store: str | None = None


class ProviderAdoption:
    """The change of a query's state store provider, or of the place of the state. A `Change`."""

    kind = ADOPTION

    def plan(
        self, files: CheckpointFiles, checkpoint: QueryCheckpoint, target: AdoptionTarget
    ) -> AdoptionPlan:
        """The plan for a checkpoint. Raises the errors of `plan_adoption` and of `store_url`."""
        if target.store in (None, IN_CHECKPOINT):
            return plan_adoption(checkpoint, target.to, target.store)
        url = store_url(str(target.store))
        return plan_adoption(checkpoint, target.to, url, unique_of_uuid()[:8])

    def planned_change(self, plan: AdoptionPlan) -> PlannedChange:
        """The plan as reports show it."""
        return PlannedChange(
            checkpoint=plan.checkpoint,
            changed=_changed(plan),
            steps=tuple(_steps(plan)),
            facts={
                "target": plan.target,
                "stores_to_convert": len(plan.conversions),
                "store": None if plan.place is None else plan.place.root,
                "edits": [entry.path for entry in plan.edits],
                "removals": [file.path for file in plan.removals],
            },
            start=tuple(_start(plan)),
        )

    def write_state(
        self, folder: ChangeFolder, plan: AdoptionPlan, begun: ChangeRecord, progress: Progress
    ) -> WrittenState:
        """Write the state for the other provider. Raises StateNotWrittenError."""
        own = {"from": plan.checkpoint.provider, "to": plan.target}
        if plan.place is not None:
            own["place"] = plan.place.encode().decode()
        begun = replace(begun, own=own)
        folder.begin(begun)
        stores = _convert(folder, plan, progress)
        moves: dict[str, str] = {}
        if plan.place is None:
            new = [file for store in stores for file in store["files"]]
            moves = {folder.files.relative(file["to"]): file["from"] for file in new}
            kept = {file.path for file in {*plan.checkpoint.files} - {*plan.removals}}
            moves = {path: url for path, url in moves.items() if path not in kept}
        rows = Counter[str]()
        for store in stores:
            rows[f"operator {store['store']['operator']}"] += store["rowsRead"]
        texts = _new_texts(plan)
        is_new_place = STATE_PLACE in texts and plan.checkpoint.place is None
        removed = [file.path for file in plan.removals]
        removed = [*([STATE_PLACE] if plan.leaves_store else []), *removed]
        needed = plan.needed_until_edited
        record = replace(
            begun,
            edited={path: digest(text) for path, text in texts.items()},
            removed=tuple(path for path in removed if path not in needed),
            removed_last=tuple(path for path in removed if path in needed),
            created=(*moves, *([STATE_PLACE] if is_new_place else [])),
        )
        return WrittenState(record, texts, rows, moves)

    def check_revert(self, folder: ChangeFolder, record: ChangeRecord, *, force: bool) -> None:
        """Raise ConfigurationError if the query has run since the adoption, or if a file that the
        adoption edited has changed since. Without `force`, also raise the error if the query may
        have been started. `force`: True if the user is sure that the query is stopped."""
        checkpoint = read_checkpoint(folder.files)
        if has_run_since(record, checkpoint.planned, checkpoint.committed):
            raise ConfigurationError(
                f"{checkpoint.url} has gone on to batch {checkpoint.planned} since {folder.path}, "
                f"with {short_name(checkpoint.provider)} and its state in "
                f"{_place_name(checkpoint.place)}: going back to batch {record.planned} would lose "
                "state. To take the query to another provider or place, run cowstate adopt; see "
                "its options --to and --store"
            )
        check_edited(folder, record)
        if not force:
            check_not_started(folder)

    def delete_state(self, folder: ChangeFolder, begun: ChangeRecord) -> str | None:
        """Delete the new state if it is in an object store, and return None. If the object store
        cannot be used, return the URL of the object store, because files may be left there. If the
        checkpoint is a copy (`is_shared`), delete nothing and return the URL."""
        place = _noted_place(folder, begun)
        if place is not None:
            if folder.is_shared(begun):
                return place.root
            try:
                PlacedState(folder.files, place).delete_all_but(())
            except (CowstateError, OSError):
                return place.root
        return None


def _changed(plan: AdoptionPlan) -> dict[str, tuple[str, str]]:
    checkpoint = plan.checkpoint
    changed = {}
    if checkpoint.provider != plan.target:
        changed["Provider"] = short_name(checkpoint.provider), short_name(plan.target)
    if plan.place is not None or plan.leaves_store:
        changed["State in"] = _place_name(checkpoint.place), _place_name(plan.place)
    return changed


def _place_name(place: StatePlace | None) -> str:
    return "the checkpoint" if place is None else place.root


def _steps(plan: AdoptionPlan) -> Iterator[str]:
    if plan.conversions:
        where = "" if plan.place is None else f" to {plan.place.url}"
        yield (
            f"write the rows of version {plan.checkpoint.version} of {len(plan.conversions)} "
            f"stores for {short_name(plan.target)}{where}, read them back and compare"
        )
    elif plan.checkpoint.provider == HDFS_CLASS:
        yield "convert nothing: cowstate reads the .delta and .snapshot files"
    if plan.removals:
        yield (
            f"remove {len(plan.removals)} files that {short_name(plan.target)} left when it had "
            "this checkpoint before"
        )
    if plan.place is not None:
        yield f"name {plan.place.url} in {STATE_PLACE}"
    if plan.edits:
        yield f"set {PROVIDER_KEY} in {', '.join(entry.path for entry in plan.edits)}"
    if plan.leaves_store:
        yield f"remove {STATE_PLACE}: the state is in the checkpoint then"


def _start(plan: AdoptionPlan) -> Iterator[str]:
    former, url = plan.checkpoint.place, plan.checkpoint.url
    to_hdfs = plan.target == HDFS_CLASS
    yield "Start the query; its checkpoint names the provider." if to_hdfs else _WITH_THE_JAR
    if former is not None:
        yield f"The former files stay in {former.root}. Delete them {_WHEN_TO_DELETE}"
    elif plan.place is not None:
        yield (
            f"The former files stay below {url}/state. Delete them, but no folder _metadata, "
            f"{_WHEN_TO_DELETE}"
        )


def _convert(folder: ChangeFolder, plan: AdoptionPlan, progress: Progress) -> list[dict[str, Any]]:
    """Write the state for the other provider, below `folder` or in an object store. Return, for
    each store, the files and the number of rows. Raises StateNotWrittenError."""
    if not plan.conversions:
        return []
    files = folder.files
    order = _order(files, plan, f"{folder.path}/{NEW_STATE}")
    stores = run_store_job(lambda: files.start_conversion(order), progress)
    assert len(stores) == len(plan.conversions)
    if plan.place is not None:
        # Killed attempts of tasks have left other files.
        written = {file["to"] for store in stores for file in store["files"]}
        PlacedState(files, plan.place).delete_all_but(written)
    return stores


def _order(files: CheckpointFiles, plan: AdoptionPlan, scratch: str) -> dict[str, Any]:
    checkpoint = plan.checkpoint
    return {
        "checkpoint": checkpoint.url,
        "scratch": files.url_of(scratch),
        **({} if plan.place is None else {"place": asdict(plan.place)}),
        "sourceClass": checkpoint.provider,
        "targetClass": plan.target,
        "version": checkpoint.version,
        "settings": {
            **checkpoint.settings,
            CHECKPOINT_FORMAT: "1" if checkpoint.state_ids is None else "2",
        },
        "stores": [
            {
                "operator": directory.operator,
                "partition": directory.partition,
                "store": directory.store,
                "prefixColumns": directory.prefix_columns,
                "unique": checkpoint.state_id(directory),
            }
            for directory in plan.conversions
        ],
    }


def _new_texts(plan: AdoptionPlan) -> dict[str, str]:
    """The new texts of files, by path. The newest entry of the offset log comes last."""
    texts = {}
    if plan.place is not None:
        texts[STATE_PLACE] = plan.place.encode().decode()
    return {**texts, **{entry.path: plan.edited(entry) for entry in plan.edits}}


def _noted_place(folder: ChangeFolder, record: ChangeRecord) -> StatePlace | None:
    """The place of an adoption's state; None if the state went into the checkpoint."""
    if "place" not in record.own:
        return None
    source = Source(folder.files.url, f"{folder.path}/{folder.kind.begun}")
    return decode_state_place(record.own["place"].encode(), source)
