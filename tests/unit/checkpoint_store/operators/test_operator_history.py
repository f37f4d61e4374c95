"""Readers see the right epochs of an operator, and read each object once (I1)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from checkpoint_store.epochs import published_objects
from checkpoint_store.epochs.completed_checkpoint import StateSchema
from checkpoint_store.errors import StateNotFoundError, VersionMissingError, VersionNotRetainedError
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.runs import run_starts
from checkpoint_store.state_reader import StateReader
from checkpoint_store.states.state_history import StateHistory
from tests.support.operators.counts_operator import METADATA, CountsOperator, State
from tests.support.operators.keyed_operator import KEYED, KeyedOperator
from tests.support.operators.taken_back import take_back
from tests.support.stores.fake_object_store import DictObjectStore
from tests.support.tables.table_rows_of import schema_json

ALL = KeyGroupRange(0, 7)


def history_of(store: ObjectStore, state: str | None = None) -> OperatorHistory:
    return OperatorHistory(store, METADATA, state)


def values_of(history: StateHistory, handles: Sequence[StateHandle]) -> dict[int, int]:
    """Return the value of each key group after applying the files in order."""
    return {
        row["_key_group"]: row["value"]
        for handle in handles
        for batch in history.read(handle, ALL)
        for row in batch.to_pylist()
    }


def state_at(history: StateHistory, epoch: int) -> dict[int, int]:
    return values_of(history, history.at(epoch).state)


def changes_at(history: StateHistory, epoch: int) -> dict[int, int]:
    return values_of(history, history.at(epoch).changes)


class TestEpochs:
    def test_epochs_with_their_state_and_their_changes(self, objects: DictObjectStore) -> None:
        operator = CountsOperator(objects)
        for epoch, changes in enumerate([{0: 1, 7: 1}, {7: 2}, {1: 3}]):
            objects.now = 10.5 + epoch
            operator.run_epoch(epoch, changes)
        history: StateHistory = history_of(objects)
        assert history.versions() == [0, 1, 2]
        assert (history.url, history.max_parallelism) == (objects.url, 8)
        assert [history.at(epoch).info.timestamp_ms for epoch in range(3)] == [10500, 11500, 12500]
        assert state_at(history, 1) == {0: 1, 7: 2}
        assert state_at(history, 2) == {0: 1, 1: 3, 7: 2}
        assert changes_at(history, 1) == {7: 2}
        assert changes_at(history, 2) == {1: 3}

    def test_an_operator_that_never_ran_has_no_epochs(self, objects: DictObjectStore) -> None:
        with pytest.raises(VersionNotRetainedError, match="holds no version yet"):
            history_of(objects).at(0)

    def test_files_of_a_subtask_count_for_its_key_groups(self, objects: DictObjectStore) -> None:
        CountsOperator(objects, "run-a", parallelism=1).run_epoch(0, dict.fromkeys(range(8), 0))
        CountsOperator(objects, "run-b").run_epoch(1, {0: 1}, kind="snapshot")
        history = history_of(objects)
        assert state_at(history, 1) == dict.fromkeys(range(8), 0) | {0: 1}
        assert changes_at(history, 1) == {}, "a snapshot is no change"


class TestWithoutManifest:
    """The last writer of an epoch may die after its barrier and before the manifest."""

    def test_an_epoch_whose_barriers_are_all_there_is_whole(self, objects: DictObjectStore) -> None:
        operator = CountsOperator(objects)
        operator.run_epoch(0, {0: 1, 7: 1})
        base = operator.checkpoints.latest_before(1)
        for subtask in range(2):
            objects.now = 20.0 + 10 * subtask
            operator.run_subtask(1, subtask, {7: 2}, base)
        history = history_of(objects)
        assert history.versions() == [0, 1]
        assert state_at(history, 1) == {0: 1, 7: 2}
        assert changes_at(history, 1) == {7: 2}
        assert history.at(1).info.timestamp_ms == 30_000
        operator.run_epoch(2, {0: 3})
        assert history.versions() == [0, 1, 2]
        assert changes_at(history, 1) == {7: 2}

    def test_the_latest_attempt_of_a_subtask_counts(self, objects: DictObjectStore) -> None:
        operator = CountsOperator(objects)
        run_without_manifest(operator, 0, {0: 1, 7: 1})
        history = history_of(objects)
        assert state_at(history, 0) == {0: 1, 7: 1}
        operator.run_subtask(0, 1, {7: 2}, None, attempt=2)
        history.versions()
        assert state_at(history, 0) == {0: 1, 7: 2}

    def test_a_zombie_does_not_complete_an_epoch(self, objects: DictObjectStore) -> None:
        operator = CountsOperator(objects)
        operator.run_epoch(0, {0: 1})
        operator.run_epoch(1, {0: 2})
        base = operator.checkpoints.latest_before(2)
        operator.run_subtask(2, 0, {0: 3}, base)
        operator.run_subtask(2, 1, {7: 3}, operator.checkpoints.latest_before(1))
        assert history_of(objects).versions() == [0, 1]
        operator.run_subtask(2, 1, {7: 4}, base, attempt=2)
        assert changes_at(history_of(objects), 2) == {0: 3, 7: 4}

    def test_an_epoch_that_was_rolled_back_is_none(self, objects: DictObjectStore) -> None:
        first = CountsOperator(objects, "run-a")
        first.run_epoch(0, {0: 1})
        run_without_manifest(first, 1, {0: 2})
        run_without_manifest(first, 2, {0: 3})
        take_back(objects, 1)
        CountsOperator(objects, "run-b", parallelism=1).run_epoch(1, {0: 20})
        history = history_of(objects)
        assert history.versions() == [0, 1]
        assert state_at(history, 1) == {0: 20}

    def test_what_retention_cleaned_is_listed_once(self, objects: DictObjectStore) -> None:
        operator = CountsOperator(objects)
        for epoch in range(9):
            operator.run_epoch(epoch, {epoch % 8: epoch})
        operator.checkpoints.retain(2)
        objects.listings.clear()
        assert history_of(objects).versions() == [7, 8]
        assert len([name for name in objects.listings if name.startswith("epochs/")]) == 1
        assert len(objects.list_directories("epochs")) > 2


def run_without_manifest(operator: CountsOperator, epoch: int, changes: State) -> None:
    """Let all subtasks publish their barriers, but write no manifest."""
    base = operator.checkpoints.latest_before(epoch)
    for subtask in range(operator.parallelism):
        operator.run_subtask(epoch, subtask, changes, base)


class TestRollback:
    def rolled_back(self, objects: DictObjectStore) -> None:
        """Run epochs 0 to 3 in run-a, from which run-b later goes back to epoch 1."""
        first = CountsOperator(objects, "run-a")
        for epoch in range(4):
            first.run_epoch(epoch, {0: epoch, epoch: 9})

    def test_whoever_lists_epochs_again_sees_the_new_ones(self, objects: DictObjectStore) -> None:
        self.rolled_back(objects)
        (history := history_of(objects)).versions()
        assert state_at(history, 2) == {0: 2, 1: 9, 2: 9}
        objects.now = 50.0
        take_back(objects, 2)
        CountsOperator(objects, "run-b").run_epoch(2, {0: 20})
        assert history.versions() == [0, 1, 2]
        assert state_at(history, 2) == {0: 20, 1: 9}
        assert history.at(2).info.timestamp_ms == 50_000

    def test_an_epoch_that_was_replaced_is_read_anew(self, objects: DictObjectStore) -> None:
        reader, first = keyed_reader(objects), KeyedOperator(objects, "run-a")
        for epoch in range(3):
            first.run_epoch(epoch, {1: epoch})
        assert reader.read(2).to_pylist() == [{"key": 1, "n": 2}]
        (second := KeyedOperator(objects, "run-b")).run_epoch(2, {1: 20})
        with pytest.raises(VersionNotRetainedError, match=r"version 2 .* is not written yet"):
            reader.read(2)
        with pytest.raises(VersionNotRetainedError):
            OperatorHistory(objects, KEYED, "count").at(2)
        second.checkpoints.starts.note_reached("run-b", 3)
        assert reader.read(2).to_pylist() == [{"key": 1, "n": 20}]


class TestDamage:
    """Damage of whole epochs. tests/fault/checkpoint_store/test_damaged_operator_stores.py damages
    single objects."""

    def committed(self, objects: DictObjectStore, epochs: Sequence[int]) -> KeyedOperator:
        operator = KeyedOperator(objects)
        for epoch in epochs:
            objects.now = 10.0 * epoch
            operator.run_epoch(epoch, {1: epoch})
        return operator

    def of_epoch(self, objects: DictObjectStore, epoch: int, run: int = 1) -> list[str]:
        """Return the names of an epoch's manifest and barriers."""
        where = f"{epoch:019d}-{run:010d}"
        return [name for name in objects.objects if where in name and not name.endswith(".arrow")]

    def damage(self, objects: DictObjectStore, names: Sequence[str]) -> None:
        for name in names:
            objects.objects[name] = objects.objects[name][:-1]

    def test_an_epoch_that_others_were_built_upon_is_missed(self, objects: DictObjectStore) -> None:
        self.committed(objects, [0, 1, 2, 5, 6])
        objects.delete(self.of_epoch(objects, 2))
        reader = keyed_reader(objects)
        assert [info.version for info in reader.versions()] == [0, 1, 5, 6]
        for epoch in (0, 1, 5, 6):
            assert reader.read(epoch)["n"].to_pylist() == [epoch]
        for ask in (
            lambda: reader.read(2),
            lambda: reader.changes(None),
            lambda: reader.changes(0, 5),
            lambda: reader.latest_at(10_001),
        ):
            with pytest.raises(VersionMissingError, match="manifest of epoch 2") as caught:
                ask()
            assert (caught.value.version, caught.value.between) == (2, (1, 5))
        assert reader.changes(5)["n"].to_pylist() == [5, 6]
        assert reader.latest_at(10_000) == 1

    def test_an_epoch_that_spark_left_out_is_not_missed(self, objects: DictObjectStore) -> None:
        self.committed(objects, [0, 1, 5])
        reader = keyed_reader(objects)
        assert reader.changes(0)["n"].to_pylist() == [0, 1, 1, 5]
        with pytest.raises(VersionNotRetainedError) as caught:
            reader.read(3)
        assert type(caught.value) is VersionNotRetainedError
        assert reader.latest_at(49_999) == 1

    def test_a_run_does_not_bring_back_what_it_rolled_back(self, objects: DictObjectStore) -> None:
        self.committed(objects, range(4))
        take_back(objects, 2)
        second = KeyedOperator(objects, "run-b")
        for epoch in (2, 3):
            second.run_epoch(epoch, {1: 10 * epoch})
        objects.delete(self.of_epoch(objects, 2, run=3))
        reader = keyed_reader(objects)
        assert [info.version for info in reader.versions()] == [0, 1, 3]
        with pytest.raises(VersionMissingError):
            reader.read(2)
        assert reader.read(1)["n"].to_pylist() == [1]
        assert reader.read(3)["n"].to_pylist() == [30]


class TestRetention:
    def test_an_epoch_deleted_after_a_listing_is_not_there(self, objects: DictObjectStore) -> None:
        operator = CountsOperator(objects)
        for epoch in range(6):
            operator.run_epoch(epoch, {0: epoch}, "snapshot")
        history = history_of(objects)
        assert history.versions() == [*range(6)]
        operator.checkpoints.retain(2)
        with pytest.raises(VersionNotRetainedError):
            history.at(0)


class OfTwoStates(KeyedOperator):
    """A KeyedOperator with a second state, `last`: the number as text, in a column with the name of
    the key column."""

    states = (*KeyedOperator.states, StateSchema("last", "value", schema_json(key="string")))

    def table(self, state: State) -> pa.Table:
        """See CountsOperator."""
        counts = super().table(state)
        texts = [{"key": str(row["n"])} for row in counts["count"].to_pylist()]
        field = pa.field(
            "last", pa.struct([("key", pa.string())]), metadata={b"cowstate.state": b"last"}
        )
        both = counts.append_column(field, pa.nulls(len(counts), field.type))
        columns = {"_state": pa.array(["last"] * len(counts)), "last": pa.array(texts, field.type)}
        columns["count"] = pa.nulls(len(counts), both.schema.field("count").type)
        last = pa.table([columns.get(name, both[name]) for name in both.column_names], both.schema)
        return pa.concat_tables([both, last]).sort_by("_key_group")


def keyed_reader(store: ObjectStore, state: str | None = None) -> StateReader:
    return StateReader(OperatorHistory(store, KEYED, state))


class TestStates:
    def test_the_only_state_need_not_be_named(self, objects: DictObjectStore) -> None:
        KeyedOperator(objects).run_epoch(0, {1: 10, 2: 20})
        for state in (None, "count"):
            rows = keyed_reader(objects, state).read().to_pylist()
            assert rows == [{"key": 1, "n": 10}, {"key": 2, "n": 20}]

    def test_one_of_several_states_is_read_alone(self, objects: DictObjectStore) -> None:
        operator = OfTwoStates(objects)
        operator.run_epoch(0, {1: 10})
        operator.run_epoch(1, {1: 11, 2: 20})
        count, last = keyed_reader(objects, "count"), keyed_reader(objects, "last")
        assert sorted(count.read()["n"].to_pylist()) == [11, 20]
        # A value column gets another name if a key column has the same name.
        assert last.schema().names == ["key", "key_"]
        assert sorted(last.read()["key_"].to_pylist()) == ["11", "20"]
        assert last.changes(0).column("_change_type").to_pylist() == [
            "update_preimage",
            "update_postimage",
            "insert",
        ]

    @pytest.mark.parametrize("state", [None, "counts"])
    def test_an_unclear_state_lists_all(self, objects: DictObjectStore, state: str | None) -> None:
        OfTwoStates(objects).run_epoch(0, {1: 10})
        with pytest.raises(StateNotFoundError, match="its states are count, last") as caught:
            keyed_reader(objects, state).read()
        assert (caught.value.state, caught.value.present) == (state, ("count", "last"))

    def test_a_state_that_came_later_is_not_there_before(self, objects: DictObjectStore) -> None:
        KeyedOperator(objects, "run-a").run_epoch(0, {1: 10})
        OfTwoStates(objects, "run-b").run_epoch(1, {1: 11})
        history = OperatorHistory(objects, KEYED, "last")
        assert history.at(1).shape.state == "last"
        with pytest.raises(StateNotFoundError, match="no state 'last'; its states are count"):
            history.at(0)


def test_a_manifest_is_read_once_however_often_it_is_asked_for(objects: DictObjectStore) -> None:
    operator = CountsOperator(objects)
    for epoch in range(100):
        operator.run_epoch(epoch, {epoch % 8: epoch})
    history = history_of(objects)
    history.versions()
    objects.reads.clear()
    objects.listings.clear()
    for _ in range(3):
        for epoch in range(100):
            assert history.at(epoch).info.version == epoch
            assert history.checkpoint_at(epoch).epoch == epoch
    assert len(objects.reads) == len(set(objects.reads)) == 100
    assert objects.listings == []
    operator.run_epoch(100, {0: 100})
    objects.reads.clear()
    history.versions()
    history.at(99)
    history.at(100)
    assert len(objects.reads) == 1


def test_barriers_of_an_epoch_without_manifest_are_read_once(objects: DictObjectStore) -> None:
    operator = CountsOperator(objects, parallelism=4)
    operator.run_epoch(0, {0: 1})
    base = operator.checkpoints.latest_before(1)
    for subtask in range(4):
        operator.run_subtask(1, subtask, {subtask * 2: 2}, base)
    history = history_of(objects)
    objects.reads.clear()
    for _ in range(5):
        assert history.versions() == [0, 1]
        assert history.at(1).info.version == 1
    assert len(objects.reads) == 4


def test_what_is_remembered_is_bounded_by_number_and_by_files(
    objects: DictObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = CountsOperator(objects, parallelism=2)
    for epoch in range(200):
        operator.run_epoch(epoch, {0: epoch, 7: epoch}, "snapshot")

    def remembered_after_all() -> OperatorHistory:
        history = history_of(objects)
        for epoch in range(200):
            history.at(epoch)
        return history

    assert len(remembered_after_all().published._manifests) == 128
    monkeypatch.setattr(published_objects, "_REMEMBERED_HANDLES", 20)
    history = remembered_after_all()
    assert len(history.published._manifests) == 10, "each names two files"
    objects.reads.clear()
    history.at(199)
    assert objects.reads == []
    monkeypatch.setattr(published_objects, "_REMEMBERED_HANDLES", 1)
    history = remembered_after_all()
    objects.reads.clear()
    history.at(0)
    history.at(0)
    assert len(objects.reads) == 1, "the last one is remembered, however large"


def test_a_query_that_was_taken_back_and_has_not_gone_on_is_seen_within_a_minute(
    objects: DictObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = CountsOperator(objects)
    for epoch in range(4):
        operator.run_epoch(epoch, {0: epoch})
    history = history_of(objects)
    assert history.versions() == [0, 1, 2, 3]
    take_back(objects, 2)
    monkeypatch.setattr(run_starts, "_SECONDS_BETWEEN_LISTINGS", 0.0)
    assert history.versions() == [0, 1]
