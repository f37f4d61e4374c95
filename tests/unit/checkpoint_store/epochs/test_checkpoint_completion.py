"""Epochs of many subtasks are completed in groups and restored in shares. See also tests/fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from checkpoint_store.epochs import operator_layout as layout
from checkpoint_store.epochs.completed_checkpoint import OperatorStateHandle, SubtaskTime
from checkpoint_store.epochs.operator_layout import EpochDirectory
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.epochs.subtask_groups import SubtaskGroups
from checkpoint_store.errors import CorruptObjectError, EpochNotRetainedError, PartialEpochError
from checkpoint_store.runs.run_errors import RunOverError
from tests.support.operators.lone_subtasks import (
    LoneSubtask,
    Operator,
    run_epoch,
    started,
    state_before,
)
from tests.support.operators.taken_back import take_back
from tests.support.stores.fake_object_store import DictObjectStore

TENS = SubtaskGroups(digits=1)
FEW = Operator("run-a", 7, groups=TENS)
MANY = Operator("run-a", 25, groups=TENS)
CHANGES = {0: 1, 64: 1, 127: 1}

OPERATOR_STATE = f"{EpochDirectory(0, 1)}/operator-state-00000-{0:019d}-0123456789ab.arrow"


pytestmark = pytest.mark.usefixtures("without_threads")


@pytest.fixture(params=[FEW, MANY], ids=["few", "many"])
def operator(request: pytest.FixtureRequest) -> Operator:
    return request.param


def named(objects: DictObjectStore, part: str) -> list[str]:
    return sorted(name for name in objects.objects if part in name)


def forget(objects: DictObjectStore) -> None:
    objects.reads.clear()
    objects.listings.clear()


def publish_all(subtasks: Sequence[LoneSubtask], epoch: int) -> None:
    """Publish all barriers of an epoch without completing the epoch."""
    for subtask in subtasks:
        subtask.publish(epoch, subtask.base(epoch), CHANGES)


class TestGroups:
    def test_subtasks_whose_numbers_begin_alike_are_a_group(self, objects: DictObjectStore) -> None:
        run_epoch(started(objects, MANY), 0, CHANGES)
        groups = PublishedObjects(objects).groups(EpochDirectory(0, 1))
        ranges = sorted((name.group.first, name.group.last) for name in groups)
        assert ranges == [(0, 9), (10, 19), (20, 24)]
        [manifest] = PublishedObjects(objects).manifests()
        checkpoint = PublishedObjects(objects).read_manifest(manifest)
        assert [barrier.subtask for barrier in checkpoint.barriers] == [*range(25)]
        assert sorted(checkpoint.group_objects) == named(objects, "/group-")

    def test_a_group_is_complete_before_the_epoch_is(self, objects: DictObjectStore) -> None:
        subtasks = started(objects, MANY)
        run_epoch(subtasks[:20], 0, CHANGES)
        assert len(named(objects, "/group-")) == 2
        assert named(objects, "manifests/") == []
        run_epoch(subtasks[20:], 0, CHANGES)
        assert len(named(objects, "manifests/")) == 1

    def test_a_subtask_reads_only_the_barriers_of_its_group(self, objects: DictObjectStore) -> None:
        subtasks = started(objects, MANY)
        run_epoch(subtasks[:24], 0, CHANGES)
        subtasks[24].publish(0, None, CHANGES)
        forget(objects)
        assert subtasks[24].complete()
        assert {name.rpartition("/")[2][:13] for name in objects.reads} == {
            f"barrier-{subtask:05d}" for subtask in range(20, 24)
        }

    def test_nothing_is_written_twice(self, objects: DictObjectStore, operator: Operator) -> None:
        subtasks = started(objects, operator)
        publish_all(subtasks, 0)
        assert not operator.parallelism > 10 or not subtasks[0].complete()
        assert all([subtask.complete() for subtask in reversed(subtasks)][-1:])
        written = dict(objects.objects)
        forget(objects)
        assert all(subtask.complete() for subtask in subtasks)
        assert objects.objects == written
        assert objects.reads == []


class TestTheHotPath:
    def test_an_epoch_of_a_subtask_lists_twice_and_reads_nothing_of_its_own(
        self, objects: DictObjectStore, operator: Operator
    ) -> None:
        subtasks = started(objects, operator)
        run_epoch(subtasks, 0, CHANGES)
        forget(objects)
        run_epoch(subtasks, 1, {})
        readers = 1 + len(TENS.of(operator.parallelism)) * (operator.parallelism > 10)
        # Each subtask lists the epoch's manifests before publishing, and the group's barriers after
        # publishing. The last subtask of a group or epoch also lists the objects already written.
        assert len(objects.listings) <= 2 * operator.parallelism + 2 * readers
        assert len(objects.reads) <= operator.parallelism
        assert not [name for name in objects.reads if "barrier-" not in name]

    def test_an_epoch_starts_from_its_own_barrier_and_the_summary_of_all(
        self, objects: DictObjectStore, operator: Operator
    ) -> None:
        subtasks = started(objects, operator)
        for subtask in subtasks:
            time = SubtaskTime(5, (subtask.subtask, None), 1000 - subtask.subtask, 77)
            held = OperatorStateHandle(OPERATOR_STATE, 1, "y", 0, (("rules", "abc"),))
            subtask.publish(0, None, CHANGES, time=time, operator_state=held)
            subtask.complete()
        base = subtasks[3].base(1)
        assert base.barriers == (subtasks[3].own,)
        last = operator.parallelism - 1
        assert base.times() == (SubtaskTime(5, (last, None), 1000 - last, 77),)
        assert base.summary.has_operator_state
        assert base.summary.broadcast
        whole = subtasks[3].checkpoints.bases.whole(base)
        assert whole == operator.opened(objects).latest_before(1)

    def test_broadcast_states_that_differ_are_noticed(
        self, objects: DictObjectStore, operator: Operator
    ) -> None:
        subtasks = started(objects, operator)
        for subtask in subtasks:
            checksum = "other" if subtask.subtask == operator.parallelism - 1 else "same"
            held = OperatorStateHandle(OPERATOR_STATE, 1, "y", 0, (("rules", checksum),))
            subtask.publish(0, None, CHANGES, operator_state=held)
            subtask.complete()
        assert subtasks[0].base(1).summary.broadcast is None

    @pytest.mark.parametrize("late", [False, True])
    def test_a_barrier_that_was_replaced_is_not_taken_for_the_one_that_counts(
        self, objects: DictObjectStore, operator: Operator, late: bool
    ) -> None:
        """Two hosts run a subtask; the barrier of the later attempt counts, whichever host
        publishes last."""
        subtasks = started(objects, operator)
        replaced, counts = subtasks[4], LoneSubtask(objects, operator, 4)
        run_epoch([s for s in subtasks if s is not replaced], 0, CHANGES)
        order = [(counts, 2), (replaced, 1)] if late else [(replaced, 1), (counts, 2)]
        for host, attempt in order:
            host.publish(0, None, CHANGES, attempt=attempt)
            host.complete()
        for host in (replaced, counts):
            assert host.base(1).barrier_of(4) == counts.own
        assert layout.agreed_summary(PublishedObjects(objects).manifests()) is None

    def test_who_was_stopped_before_it_looked_reads_which_barrier_counts(
        self, objects: DictObjectStore, operator: Operator
    ) -> None:
        subtasks = started(objects, operator)
        replaced, counts = subtasks[4], LoneSubtask(objects, operator, 4)
        run_epoch([s for s in subtasks if s is not replaced], 0, CHANGES)
        counts.run_epoch(0, CHANGES, attempt=2)
        replaced.publish(0, None, CHANGES, attempt=1)
        assert replaced.base(1).barrier_of(4) == counts.own

    def test_an_epoch_without_manifest_is_completed_by_the_next_one(
        self, objects: DictObjectStore, operator: Operator
    ) -> None:
        subtasks = started(objects, operator)
        run_epoch(subtasks, 0, CHANGES)
        objects.delete([*named(objects, "manifests/"), *named(objects, "/group-")[1:2]])
        assert subtasks[0].base(1).barrier_of(0) == subtasks[0].own
        assert len(named(objects, "manifests/")) == 1

    def test_partial_epochs_are_errors(self, objects: DictObjectStore, operator: Operator) -> None:
        subtasks = started(objects, operator)
        run_epoch(subtasks[1:], 0, CHANGES)
        with pytest.raises(PartialEpochError) as caught:
            subtasks[1].base(1)
        assert caught.value.missing == (0,)

    @pytest.mark.parametrize("first", [0, 8, 9, 99])
    def test_a_run_that_was_overtaken_is_told(self, objects: DictObjectStore, first: int) -> None:
        older = started(objects, FEW)
        run_epoch(older, first, CHANGES)
        run_epoch(started(objects, replace(FEW, run_id="run-b")), first + 1, CHANGES)
        for host in (older[0], LoneSubtask(objects, FEW, 0)):
            with pytest.raises(RunOverError):
                host.base(first + 1)


class TestRestores:
    @pytest.mark.parametrize("parallelism", [1, 3, 7, 25, 60])
    def test_a_subtask_of_any_parallelism_gets_its_share(
        self, objects: DictObjectStore, operator: Operator, parallelism: int
    ) -> None:
        subtasks = started(objects, operator)
        for epoch in range(3):
            run_epoch(subtasks, epoch, {**CHANGES, epoch * 30: epoch})
        again = replace(operator, run_id="run-b", parallelism=parallelism)
        started(objects, again)
        assert state_before(objects, 3, again) == {**CHANGES, 0: 1, 30: 1, 60: 2}

    def test_a_restore_reads_only_groups_of_its_key_groups(self, objects: DictObjectStore) -> None:
        run_epoch(started(objects, MANY), 0, CHANGES)
        host = LoneSubtask(objects, replace(MANY, run_id="run-b"), 22)
        forget(objects)
        assert host.base(1) is not None
        assert len(objects.reads) == 2
        assert [name for name in objects.reads if "/group-00020-00024" in name]

    def test_it_lists_no_other_epochs_if_the_run_before_wrote_the_last_one(
        self, objects: DictObjectStore, operator: Operator
    ) -> None:
        for number, run_id in enumerate(("run-a", "run-b")):
            subtasks = started(objects, replace(operator, run_id=run_id))
            for epoch in range(3 * number, 3 * number + 3):
                run_epoch(subtasks, epoch, CHANGES)
        host = LoneSubtask(objects, replace(operator, run_id="run-c"), 0)
        forget(objects)
        assert host.base(6).epoch == 5
        assert "epochs" not in objects.listings
        # A host that joins the run later continues from the run's epochs.
        run_epoch([host], 6, {})
        late = LoneSubtask(objects, replace(operator, run_id="run-c"), 1)
        with pytest.raises(PartialEpochError):
            late.base(7)

    def test_a_run_with_a_gap_goes_on_from_its_own_epochs(self, objects: DictObjectStore) -> None:
        """Run a has epochs 0 to 3. Run b starts from epoch 1, runs epoch 2, and Spark skips epoch
        3. So epoch 4 starts from epoch 2 of run b, not from epoch 3 of run a."""
        first = started(objects, FEW)
        for epoch in range(4):
            run_epoch(first, epoch, CHANGES)
        take_back(objects, 2)
        second = replace(FEW, run_id="run-b")
        run_epoch(started(objects, second), 2, CHANGES)
        base = LoneSubtask(objects, second, 0).base(4)
        assert (base.epoch, base.run.run_id) == (2, "run-b")

    def test_a_run_without_an_epoch_does_not_matter(self, objects: DictObjectStore) -> None:
        run_epoch(started(objects, FEW), 0, CHANGES)
        started(objects, replace(FEW, run_id="run-b"))
        host = LoneSubtask(objects, replace(FEW, run_id="run-c"), 0)
        assert host.base(1).run.run_id == "run-a"

    @pytest.mark.parametrize("part", ["manifests/", "/group-00010"])
    def test_intact_barriers_make_up_for_damage(self, objects: DictObjectStore, part: str) -> None:
        run_epoch(started(objects, MANY), 0, CHANGES)
        [name] = named(objects, part)
        objects.objects[name] = objects.objects[name].replace(b"run-a", b"run-x")
        again = replace(MANY, run_id="run-b")
        started(objects, again)
        assert state_before(objects, 1, again) == CHANGES
        objects.delete(named(objects, "/barrier-00011"))
        with pytest.raises(CorruptObjectError) as caught:
            state_before(objects, 1, again)
        assert caught.value.name == name

    def test_a_group_with_barriers_of_another_is_damage(self, objects: DictObjectStore) -> None:
        run_epoch(started(objects, MANY), 0, CHANGES)
        first, second, _ = named(objects, "/group-")
        objects.objects[first] = objects.objects[second]
        [manifest] = PublishedObjects(objects).manifests()
        with pytest.raises(CorruptObjectError, match="not the barriers of subtasks 0 to 9"):
            PublishedObjects(objects).read_manifest(manifest)


def damage(objects: DictObjectStore, part: str) -> str:
    """Damage the first object whose name contains `part`. Return the object's name."""
    name = named(objects, part)[0]
    objects.objects[name] = objects.objects[name].replace(b"run-a", b"run-x")
    return name


class TestDeletion:
    def test_a_damaged_group_makes_no_orphans_of_the_others(self, objects: DictObjectStore) -> None:
        run_epoch(started(objects, MANY), 0, CHANGES)
        damage(objects, "/group-00010")
        before = set(objects.objects)
        assert MANY.opened(objects).sweep_orphans(grace_seconds=100, now=1000) == []
        assert set(objects.objects) == before

    @pytest.mark.parametrize("part", ["/group-00010", "/group-"])
    def test_groups_that_are_missing_are_damage_and_no_file_goes_with_them(
        self, objects: DictObjectStore, part: str
    ) -> None:
        subtasks = started(objects, MANY)
        for epoch in range(3):
            run_epoch(subtasks, epoch, {epoch: epoch, **CHANGES})
        newest = [name for name in named(objects, part) if name.startswith(f"epochs/{2:019d}")]
        objects.delete(newest)
        again = replace(MANY, run_id="run-b")
        run_epoch(started(objects, again), 3, {})
        MANY.opened(objects).retain(2)
        after = replace(MANY, run_id="run-c")
        started(objects, after)
        assert state_before(objects, 4, after) == {**CHANGES, 1: 1, 2: 2}

    def test_a_rollback_puts_no_manifest_of_gone_epochs(self, objects: DictObjectStore) -> None:
        subtasks = started(objects, MANY)
        for epoch in range(6):
            run_epoch(subtasks, epoch, CHANGES)
        outcomes: list[object] = []

        def roll_back(names: Sequence[str]) -> None:
            DictObjectStore.delete(objects, names)
            if any("manifests/" in name for name in names):
                take_back(objects, 3)
                host = LoneSubtask(objects, replace(MANY, run_id="run-b"), 0)
                outcomes.append(host.base(3))

        objects.delete = roll_back
        MANY.opened(objects).retain(2)
        assert outcomes
        assert {name.epoch for name in PublishedObjects(objects).manifests()} == {4, 5}
        with pytest.raises(EpochNotRetainedError):
            LoneSubtask(objects, replace(MANY, run_id="run-b"), 12).base(3)

    def test_a_stopped_sweep_leaves_no_epoch_without_files(self, objects: DictObjectStore) -> None:
        first = started(objects, MANY)
        for epoch in range(3):
            run_epoch(first, epoch, CHANGES)
        objects.delete(named(objects, "manifests/"))
        second = started(objects, replace(MANY, run_id="run-b"))
        for epoch in range(3, 5):
            run_epoch(second, epoch, {})
        for subtask in second:
            subtask.publish(5, subtask.base(5), CHANGES)
            subtask.complete()
        order: list[str] = []

        def note(names: Sequence[str]) -> None:
            order.extend(names)
            DictObjectStore.delete(objects, names)

        objects.delete = note
        MANY.opened(objects).sweep_orphans(grace_seconds=100, now=1000)
        kinds = [name.rpartition("/")[2].partition("-")[0] for name in order]
        assert sorted(set(kinds), key=kinds.index) == ["group", "barrier"]
        assert kinds == sorted(kinds, key=["group", "barrier"].index)


class TestNames:
    def test_summaries_of_later_releases_come_from_barriers(self, objects: DictObjectStore) -> None:
        subtasks = started(objects, MANY)
        run_epoch(subtasks, 0, CHANGES)
        [manifest] = named(objects, "manifests/")
        assert manifest.endswith("-s.json")
        later = manifest.replace("-s.json", "-s_z9.json")
        objects.objects[later] = objects.objects.pop(manifest)
        objects.modified[later] = objects.modified.pop(manifest)
        parsed = layout.parse_manifest(later)
        assert (str(parsed), parsed.summary) == (later, None)
        assert subtasks[0].base(1).barrier_of(0) == subtasks[0].own

    def test_missing_subtasks_are_known_from_names(self, objects: DictObjectStore) -> None:
        subtasks = started(objects, MANY)
        run_epoch(subtasks[2:], 0, CHANGES)
        checkpoints, run = MANY.opened(objects), subtasks[0].run
        forget(objects)
        assert checkpoints.completion.missing_subtasks(0, run, 25) == (0, 1)
        run_epoch(subtasks[:2], 0, CHANGES)
        assert checkpoints.completion.missing_subtasks(0, run, 25) == ()
