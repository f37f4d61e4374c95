"""A change that is killed or meets another change leaves the former state or the new state."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from checkpoint_store.object_names import STATE_PLACE
from spark_state.errors import ConfigurationError
from spark_state.spark.adoption.adoption import AdoptionTarget, ProviderAdoption
from spark_state.spark.adoption.adoption_plan import HDFS_CLASS, AdoptionPlan
from spark_state.spark.provider.placed_state import place_of
from spark_state.spark.provider.provider_class import PROVIDER_CLASS, ROCKSDB_CLASS
from spark_state.spark.rescaling.rescale import Rescale
from spark_state.spark.stopped_query.change_folder import ChangeFolder, changes_of
from spark_state.spark.stopped_query.change_record import ADOPTION
from spark_state.spark.stopped_query.checkpoint_change import (
    AppliedChange,
    PlannedChange,
    apply,
    end_last,
    revert,
)
from tests.support.provider.checkpoint_on_disk import FilesOnDisk, QueryOnDisk
from tests.support.provider.stopped_changes import StoppedError


@dataclass
class Adopting(ProviderAdoption):
    """An adoption during which something else happens: before the adoption begins, or while the
    new state is written."""

    before: Callable[[], object] = lambda: None
    during: Callable[[], object] = lambda: None

    def planned_change(self, plan: AdoptionPlan) -> PlannedChange:
        self.before()
        return super().planned_change(plan)

    def apply(
        self, query: QueryOnDisk, to: str = "cowstate", store: str | None = None
    ) -> AppliedChange:
        target = AdoptionTarget(to, store)
        return apply(self, query.files, target, lambda *_: self.during(), force=True)


def adopt(query: QueryOnDisk, to: str = "cowstate", store: str | None = None) -> AppliedChange:
    return Adopting().apply(query, to, store)


def undo(query: QueryOnDisk) -> None:
    revert(ProviderAdoption(), query.files, force=True)


def written(query: QueryOnDisk) -> list[Path]:
    """The record of the edits, if there is a record."""
    return [*query.folder.glob("_cowstate_adopt/*/adoption.json")]


def killed(query: QueryOnDisk, writes: int, command: Callable[[], object]) -> bool:
    """Run a command that is killed after some writes. Return False if the command was faster."""
    left = writes

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoppedError

    query.files.before_write = count
    try:
        command()
    except StoppedError:
        return True
    finally:
        query.files = FilesOnDisk(query.folder)
    return False


def test_a_query_that_ran_its_open_batch_after_a_kill_can_be_adopted_again(tmp_path: Path) -> None:
    writes = 0
    while True:
        query = QueryOnDisk(tmp_path / str(writes))
        query.plan(2, HDFS_CLASS)
        if not killed(query, writes, lambda query=query: adopt(query)):  # type: ignore[misc]
            break
        writes += 1
        if query.provider() == PROVIDER_CLASS:
            continue
        query.commit(2)
        if [*query.folder.glob("_cowstate_adopt/*")] and not written(query):
            undo(query)
        adopt(query)
        assert query.provider() == PROVIDER_CLASS
    assert writes > 3


Steps = tuple[tuple[str, str | None], ...]

ADOPTIONS: dict[str, tuple[str, Steps]] = {
    "from hdfs": (HDFS_CLASS, (("cowstate", None),)),
    "from hdfs to a store": (HDFS_CLASS, (("cowstate", "store"),)),
    "from rocksdb": (ROCKSDB_CLASS, (("cowstate", None),)),
    "from rocksdb to a store": (ROCKSDB_CLASS, (("cowstate", "store"),)),
    "at once back to hdfs": (HDFS_CLASS, (("cowstate", None), ("hdfs", None))),
    "to a store": (PROVIDER_CLASS, (("cowstate", "store"),)),
    "to another store": (PROVIDER_CLASS, (("cowstate", "store"), ("cowstate", "other"))),
    "back from a store": (PROVIDER_CLASS, (("cowstate", "store"), ("cowstate", "checkpoint"))),
    "from a store to hdfs": (PROVIDER_CLASS, (("cowstate", "store"), ("hdfs", None))),
    "again from a store to hdfs": (
        PROVIDER_CLASS,
        (("cowstate", "store"), ("hdfs", None), ("cowstate", None), ("hdfs", None)),
    ),
}


class TestKills:
    @pytest.fixture(params=ADOPTIONS)
    def query(self, request: pytest.FixtureRequest, tmp_path: Path) -> QueryOnDisk:
        """A query before the last of its adoptions."""
        provider, steps = ADOPTIONS[request.param]
        query = QueryOnDisk(tmp_path / "checkpoint", provider)
        for to, store in steps[:-1]:
            adopt(query, to, self.url(query, store))
        self.last, self.earlier = steps[-1], len(steps) - 1
        return query

    def url(self, query: QueryOnDisk, store: str | None) -> str | None:
        is_name = store not in (None, "checkpoint")
        return (query.folder.parent / str(store)).as_uri() if is_name else store

    def apply(self, query: QueryOnDisk) -> None:
        to, store = self.last
        adopt(query, to, self.url(query, store))

    def test_an_adoption_and_its_undo_may_be_killed_at_any_write_and_leave_a_whole_state(
        self, query: QueryOnDisk
    ) -> None:
        before, writes = query.contents(), 0
        while killed(query, writes, lambda: self.apply(query)):
            assert query.has_whole_state(), f"killed after {writes} writes"
            self.undo_if_begun(query)
            assert query.contents() == before
            writes += 1
        assert query.has_whole_state()
        assert writes > 5
        writes = 0
        while killed(query, writes, lambda: undo(query)):
            assert query.has_whole_state(), f"undo killed after {writes} writes"
            self.undo_if_begun(query)
            assert query.contents() == before
            self.apply(query)
            writes += 1
        assert query.contents() == before
        assert writes > 3

    def undo_if_begun(self, query: QueryOnDisk) -> None:
        if len(changes_of(query.files)) > self.earlier:
            undo(query)


def test_the_marker_of_a_store_that_a_query_has_left_goes_with_the_next_adoption(
    tmp_path: Path,
) -> None:
    query = QueryOnDisk(tmp_path / "checkpoint", PROVIDER_CLASS)
    adopt(query, store=(tmp_path / "store").as_uri())
    writes = 0
    while killed(query, writes, lambda: adopt(query, "hdfs")):
        if query.provider() == HDFS_CLASS:
            break
        if len(changes_of(query.files)) > 1:
            undo(query)
        writes += 1
    marker = query.folder / STATE_PLACE
    assert marker.exists()
    query.plan(2, HDFS_CLASS)
    query.commit(2)
    query.plan(3, HDFS_CLASS)
    query.commit(3)
    (query.folder / "offsets" / "1").unlink()
    before, writes = query.contents(), 0
    while killed(query, writes, lambda: adopt(query)):
        assert query.has_whole_state(), f"killed after {writes} writes"
        if len(changes_of(query.files)) > 2:
            undo(query)
        assert query.contents() == before
        writes += 1
    assert query.has_whole_state()
    assert not marker.exists()


@pytest.mark.parametrize(
    ("before", "store", "after", "now"),
    [
        (HDFS_CLASS, None, PROVIDER_CLASS, "CowStateStoreProvider and its state in the checkpoint"),
        (PROVIDER_CLASS, "store", PROVIDER_CLASS, "CowStateStoreProvider and its state in file:"),
        (HDFS_CLASS, None, HDFS_CLASS, "HDFSBackedStateStoreProvider and its state in the"),
    ],
)
def test_an_adoption_is_not_undone_once_the_query_has_gone_on(
    tmp_path: Path, before: str, store: str | None, after: str, now: str
) -> None:
    query = QueryOnDisk(tmp_path / "checkpoint", before)
    adopt(query, store=store and (tmp_path / store).as_uri())
    query.plan(2, after)
    query.commit(2)
    with pytest.raises(ConfigurationError, match=f"with {now}.* would lose state"):
        undo(query)


class TestFilesThatAreReplacedInSteps:
    """A killed command may lose a file of a log until the next command."""

    @pytest.fixture(params=["adoption", "rescale"])
    def query(self, request: pytest.FixtureRequest, tmp_path: Path) -> QueryOnDisk:
        is_rescale = request.param == "rescale"
        query = QueryOnDisk(tmp_path / "checkpoint", PROVIDER_CLASS if is_rescale else HDFS_CLASS)
        if is_rescale:
            query.plan(2, PROVIDER_CLASS)
        self.change: Any = Rescale() if is_rescale else ProviderAdoption()
        self.target: Any = 3 if is_rescale else AdoptionTarget("cowstate")
        return query

    def apply(self, query: QueryOnDisk) -> None:
        apply(self.change, query.files, self.target, lambda *_: None, force=True)

    def undo(self, query: QueryOnDisk) -> None:
        revert(self.change, query.files, force=True)

    def is_killed(self, query: QueryOnDisk, writes: int, command: Callable[[], object]) -> bool:
        query.files = FilesOnDisk(query.folder, replaces_in_steps=True)
        return killed(query, writes, command)

    def test_a_change_and_its_undo_may_be_killed_while_they_replace_a_file(
        self, query: QueryOnDisk
    ) -> None:
        before, writes = query.contents(), 0
        while self.is_killed(query, writes, lambda: self.apply(query)):
            if changes_of(query.files):
                with suppress(ConfigurationError):
                    end_last(query.files)
                self.undo(query)
            assert query.contents() == before, f"killed after {writes} writes"
            writes += 1
        writes = 0
        while self.is_killed(query, writes, lambda: self.undo(query)):
            if changes_of(query.files):
                self.undo(query)
            assert query.contents() == before, f"undo killed after {writes} writes"
            self.apply(query)
            writes += 1


class TestTwoCommands:
    @pytest.fixture
    def query(self, tmp_path: Path) -> QueryOnDisk:
        return QueryOnDisk(tmp_path / "checkpoint", PROVIDER_CLASS)

    def test_a_second_change_is_refused_while_the_first_one_writes_its_state(
        self, query: QueryOnDisk, tmp_path: Path
    ) -> None:
        store = (tmp_path / "store").as_uri()

        def second() -> None:
            with pytest.raises(ConfigurationError, match="running or was killed"):
                adopt(query, store=store)

        Adopting(during=second).apply(query, "hdfs")
        assert query.provider() == HDFS_CLASS

    def test_a_change_is_refused_if_another_one_came_first_and_leaves_its_state(
        self, query: QueryOnDisk, tmp_path: Path
    ) -> None:
        store = (tmp_path / "store").as_uri()
        after = list[dict[str, str]]()

        def first() -> None:
            adopt(query, store=store)
            after.append(query.contents())

        with pytest.raises(ConfigurationError, match=r"another command changes .* Nothing was"):
            Adopting(before=first).apply(query, store=store)
        assert query.contents() == after[0]
        assert len([*(tmp_path / "store").rglob("*.arrow")]) == 2

    def test_of_two_changes_that_begin_together_at_most_one_goes_on(
        self, query: QueryOnDisk, tmp_path: Path
    ) -> None:
        before = query.contents()
        other = ChangeFolder(query.files, ADOPTION, f"{ADOPTION.root}/20260101T000000.000000Z")
        with pytest.raises(ConfigurationError, match="another command changes"):
            Adopting(before=lambda: other.claim([])).apply(query, "hdfs")
        other.forget()
        assert query.contents() == before

    def test_a_change_that_is_undone_while_it_runs_takes_no_effect(
        self, query: QueryOnDisk
    ) -> None:
        before = query.contents()
        with pytest.raises(ConfigurationError, match="another command has undone"):
            Adopting(during=lambda: undo(query)).apply(query, "hdfs")
        assert query.contents() == before

    def test_a_change_that_failed_before_its_edits_does_not_touch_the_edits_of_others(
        self, query: QueryOnDisk
    ) -> None:
        entry = query.folder / "offsets" / "1"
        edited = entry.read_text().replace(PROVIDER_CLASS, HDFS_CLASS)
        before = query.contents()
        with pytest.raises(ConfigurationError, match=r"the query is running\. Nothing was"):
            Adopting(during=lambda: entry.write_text(edited)).apply(query, "hdfs")
        assert query.contents() == {**before, "offsets/1": edited}


class TestCopies:
    def copied(self, query: QueryOnDisk) -> QueryOnDisk:
        copy = QueryOnDisk(query.folder.with_name("copy"))
        shutil.rmtree(copy.folder)
        shutil.copytree(query.folder, copy.folder)
        copy.files = FilesOnDisk(copy.folder)
        return copy

    def test_an_undo_in_a_copy_leaves_the_state_in_a_store_to_the_original(
        self, tmp_path: Path
    ) -> None:
        query = QueryOnDisk(tmp_path / "checkpoint", PROVIDER_CLASS)
        adopt(query, store=(tmp_path / "store").as_uri())
        copy = self.copied(query)
        left = revert(ProviderAdoption(), copy.files, force=True).left
        place = place_of(query.files)
        assert place is not None
        assert left == place.root
        assert query.has_whole_state()
        assert copy.has_whole_state()
        assert not (copy.folder / STATE_PLACE).exists()

    def test_an_undone_rescale_in_a_copy_leaves_the_partitions_in_a_store_to_the_original(
        self, tmp_path: Path
    ) -> None:
        query = QueryOnDisk(tmp_path / "checkpoint", PROVIDER_CLASS)
        adopt(query, store=(tmp_path / "store").as_uri())
        apply(Rescale(), query.files, 3, lambda *_: None, force=True)
        copy = self.copied(query)
        assert revert(Rescale(), copy.files, force=True).left is not None
        # On the local disk, the new partitions are below the checkpoint.
        assert len([*copy.folder.glob("state/0/*/*.rescaled.arrow")]) >= 2
