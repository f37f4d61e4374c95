"""An epoch of any driver starts from the state committed in its checkpoint, or there is an error.

A world has one store, a query's checkpoint and perhaps copies of the checkpoint. In any order,
drivers start, run the next epoch, a part of an epoch or a batch without rows, commit, note their
first commit, move to other hosts and are killed. Checkpoints are moved, and the store is attached
to checkpoints. The oracle is Spark's commit log, which lets one driver commit an epoch. Every epoch
of every driver adds another number, so a state shows its epochs.
"""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_store.errors import CowstateError
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.operators.attachment import attach_all, stored_runs
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.runs.attachment_plan import attachments_of
from checkpoint_store.runs.checkpoint_location import digest_of
from checkpoint_store.runs.run_errors import EpochsLostError, RunChoiceError
from spark_state.spark.queries.operator_starts import WayBack, reached_in_store, take_back_in_store
from spark_state.subtasks.epoch_request import NEVER_RUN, OperatorStart
from spark_state.subtasks.maintenance import Maintenance
from tests.support.examples import examples
from tests.support.operators.subtasks import Host, operator

pytestmark = pytest.mark.usefixtures("without_threads")

KEYS = "abcdefgh"
"""Keys of both subtasks."""

Total = tuple[int, int]
"""How many epochs a state is made of, and the sum of their numbers."""


@dataclass
class Checkpoint:
    """Spark's logs.

    `offsets`: the planned batches, True for a batch with rows of the operator. `commits`: the state
    after each committed batch. `writers`: the run id of each committed batch, from the driver's
    log.
    """

    location: str
    offsets: dict[int, bool] = field(default_factory=dict)
    commits: dict[int, Total] = field(default_factory=dict)
    writers: dict[int, str] = field(default_factory=dict)

    def copy(self, location: str) -> Checkpoint:
        return Checkpoint(location, {**self.offsets}, {**self.commits}, {**self.writers})

    def planned(self) -> int:
        return max(self.offsets, default=-1)

    def newest(self) -> int:
        return max(self.commits, default=-1)

    def newest_epoch(self) -> int:
        """The newest committed batch with rows of the operator."""
        return max((n for n in self.commits if self.offsets[n]), default=NEVER_RUN)

    def go_back(self, batch: int, *, plans_anew: bool) -> None:
        """Let a batch run again as the docs say, with the same rows or with other rows."""
        self.commits = {n: total for n, total in self.commits.items() if n < batch}
        last = batch - 1 if plans_anew else batch
        self.offsets = {n: has_rows for n, has_rows in self.offsets.items() if n <= last}


@dataclass
class Driver:
    """A run.

    `epoch`: the next epoch. `repeats`: True if another run may have written the first epoch.
    `total`: the state after an epoch that is not committed yet. `to_note`: the epoch reached by the
    first commit, until the driver has noted the epoch.
    """

    checkpoint: Checkpoint
    hosts: list[Host]
    run_id: str
    epoch: int
    repeats: bool
    total: Total | None = None
    to_note: int | None = None


class World:
    """Drivers over a store in a folder."""

    def __init__(self, folder: Path, maintenance: Maintenance) -> None:
        self._folder = folder
        self._maintenance = maintenance
        self.checkpoints = [Checkpoint("file:/checkpoint")]
        self.drivers: list[Driver] = []
        self._numbers = 0
        self.outcomes: Counter[str] = Counter()

    @property
    def store(self) -> Path:
        return self._folder / "query"

    def start(self, number: int) -> None:
        """Start a driver on a checkpoint, and inspect the checkpoint as operator_starts does."""
        checkpoint = self.checkpoints[number % len(self.checkpoints)]
        newest, planned = checkpoint.newest(), checkpoint.planned()
        must_have = checkpoint.newest_epoch()
        store = str(self.store / "totals")
        seen = reached_in_store(store, 1.0, {}, checkpoint.location)
        if -1 < seen.written < must_have:
            raise EpochsLostError(str(self.store), must_have, seen.written)
        if seen.written > planned or seen.reached > newest + 1:
            is_under_way = planned > newest
            way_back = WayBack(checkpoint.location, newest, is_under_way, seen, must_have)
            take_back_in_store(store, 1.0, {}, way_back)
        start = OperatorStart(checkpoint.location, must_have, newest)
        self._numbers += 1
        run_id = f"run-{self._numbers}"
        spec = operator(self._folder, parallelism=2)
        hosts = [Host(spec, subtask=subtask, run_id=run_id, start=start) for subtask in (0, 1)]
        for host in hosts:
            host.open(self._maintenance)
        repeats = planned > newest or seen.written > newest
        self.drivers.append(Driver(checkpoint, hosts, run_id, newest + 1, repeats))

    def run(self, driver: Driver, subtasks: int = 2, *, plans_rows: bool = True) -> None:
        """Run the next epoch, or a part of the epoch, and check its starting state."""
        self._numbers += 1
        rows, total = driver.checkpoint.commits.get(driver.epoch - 1, (0, 0))
        if not driver.checkpoint.offsets.setdefault(driver.epoch, plans_rows):
            driver.total = (rows, total)
            return
        after = (rows + 1, total + self._numbers)
        input_rows = [(key, self._numbers) for key in KEYS]
        emitted: dict[str, Total] = {}
        for host in driver.hosts[:subtasks]:
            emitted |= host.epoch(driver.epoch, input_rows, attempt=self._numbers)
        assert {*emitted.values()} == {after}
        if subtasks == len(driver.hosts):
            assert len(emitted) == len(KEYS)
            driver.total = after

    def run_a_part(self, driver: Driver) -> None:
        """Kill the driver after the first subtask of an epoch."""
        self.run(driver, 1)
        self.kill(driver)

    def run_without_rows(self, driver: Driver) -> None:
        """Run a batch with rows of other sources only, unless the plan already has rows."""
        self.run(driver, plans_rows=False)

    def commit(self, driver: Driver) -> None:
        """Commit a batch. Spark's commit log takes a batch once."""
        if driver.total is None:
            return
        if driver.epoch in driver.checkpoint.commits:
            self.kill(driver)
            return
        driver.checkpoint.commits[driver.epoch] = driver.total
        driver.checkpoint.writers[driver.epoch] = driver.run_id
        driver.epoch, driver.total = driver.epoch + 1, None
        if driver.repeats:
            driver.to_note, driver.repeats = driver.epoch, False

    def note(self, driver: Driver) -> None:
        """Note the first commit, as a driver does: see operator_starts."""
        if driver.to_note is not None:
            checkpoints = CompletedCheckpointStore(open_object_store(str(self.store / "totals")))
            checkpoints.starts.note_reached(driver.run_id, driver.to_note)
            driver.to_note = None

    def move(self, driver: Driver) -> None:
        """Move the subtasks to hosts without state."""
        for host in driver.hosts:
            host.open(self._maintenance)

    def kill(self, driver: Driver) -> None:
        for host in driver.hosts:
            host.close()
        if driver in self.drivers:
            self.drivers.remove(driver)

    def is_stopped(self, checkpoint: Checkpoint) -> bool:
        return all(driver.checkpoint is not checkpoint for driver in self.drivers)

    def relocate(self, number: int) -> None:
        """Move a checkpoint while no driver runs on the checkpoint."""
        checkpoint = self.checkpoints[number % len(self.checkpoints)]
        if self.is_stopped(checkpoint):
            self._numbers += 1
            checkpoint.location = f"file:/moved-{self._numbers}"

    def attach(self, number: int) -> None:
        """Attach as `cowstate attach` does, maybe while drivers run on the checkpoint. If the
        command asks for a run, the user names the run that committed the last batch."""
        checkpoint = self.checkpoints[number % len(self.checkpoints)]
        if not checkpoint.commits:
            return
        self._numbers += 1
        store = open_object_store(str(self.store / "totals"))
        location, newest = checkpoint.location, checkpoint.newest()
        newest_epoch = checkpoint.newest_epoch()
        is_under_way = checkpoint.planned() > newest
        arguments = [stored_runs(store)], digest_of(location), newest
        try:
            planned = attachments_of(*arguments, is_under_way=is_under_way)
        except RunChoiceError:
            chosen_run = checkpoint.writers[max(newest_epoch, 0)]
            planned = attachments_of(*arguments, chosen_run, is_under_way=is_under_way)
        attach_all([store], planned, f"attached-{self._numbers}", location)

    def is_committed(self) -> bool:
        """Return True if a store exists and all its epochs are committed. A copy taken during a
        batch may hold an epoch that differs from the committed epoch."""
        if not self.store.exists():
            return False
        checkpoints = CompletedCheckpointStore(open_object_store(str(self.store / "totals")))
        return checkpoints.bases.lineage().written <= self.checkpoints[0].newest()

    def apply(self, action: str, number: int) -> None:
        driver = self.drivers[number % len(self.drivers)] if self.drivers else None
        if action == "start" and len(self.drivers) < 3:
            self.start(number)
        elif action == "copy" and len(self.checkpoints) < 2:
            self.checkpoints.append(self.checkpoints[0].copy("file:/copy"))
        elif action in ("relocate", "attach"):
            getattr(self, action)(number)
        elif driver is None and action == "go back" and self.checkpoints[0].commits:
            batches = sorted(self.checkpoints[0].commits)
            batch = batches[-1 - number % min(3, len(batches))]
            self.checkpoints[0].go_back(batch, plans_anew=number > 2)
        elif driver is None and action == "back up" and self.is_committed():
            shutil.rmtree(self._folder / "backup", ignore_errors=True)
            shutil.copytree(self.store, self._folder / "backup")
        elif driver is None and action == "put back" and (self._folder / "backup").exists():
            shutil.rmtree(self.store)
            shutil.copytree(self._folder / "backup", self.store)
        elif driver is not None and action in (
            "run without rows",
            "run",
            "run a part",
            "commit",
            "note",
            "move",
            "kill",
        ):
            getattr(self, action.replace(" ", "_"))(driver)

    def try_to(self, action: str, number: int) -> None:
        """Apply an action. An error ends the driver that meets the error."""
        drivers = [*self.drivers]
        try:
            self.apply(action, number)
            self.outcomes[f"{action}: done"] += 1
        except CowstateError as error:
            self.outcomes[f"{action}: {type(error).__name__}"] += 1
            if action.startswith("run"):
                self.kill(drivers[number % len(drivers)])

    def close(self) -> None:
        for driver in [*self.drivers]:
            self.kill(driver)


ACTIONS = (
    "start",
    "run",
    "run a part",
    "run without rows",
    "commit",
    "note",
    "kill",
    "move",
    "copy",
    "relocate",
    "attach",
    "go back",
    "back up",
    "put back",
)
actions = st.tuples(st.sampled_from([*ACTIONS, *["start", "run", "commit"] * 4]), st.integers(0, 5))


def check(history: list[tuple[str, int]]) -> Counter[str]:
    with TemporaryDirectory() as folder, Maintenance() as maintenance:
        world = World(Path(folder), maintenance)
        try:
            for action, number in history:
                world.try_to(action, number)
            # Whatever happened, a new start finds the right state or reports the problem.
            for driver in [*world.drivers]:
                world.kill(driver)
            for number in range(len(world.checkpoints)):
                with suppress(CowstateError):
                    world.start(number)
                    world.run(world.drivers[-1])
            return world.outcomes
        finally:
            world.close()


@examples(50)
@given(st.lists(actions, max_size=40))
def test_an_epoch_starts_from_what_spark_committed_or_there_is_an_error(
    history: list[tuple[str, int]],
) -> None:
    check(history)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@settings(max_examples=5_000)
@given(st.lists(actions, max_size=80))
def test_many_histories_of_several_drivers(history: list[tuple[str, int]]) -> None:
    check(history)


def batches(number: int, driver: int = 0) -> list[tuple[str, int]]:
    return [("run", driver), ("commit", driver)] * number


def test_one_driver_after_the_other_meets_no_error() -> None:
    history = [("start", 0), *batches(3), ("run", 0), ("kill", 0)] * 4
    history += [("go back", 0), ("start", 0), *batches(1), ("kill", 0), ("start", 0), *batches(2)]
    outcomes = check(history)
    assert [outcome for outcome in outcomes if not outcome.endswith("done")] == []


def test_two_drivers_a_copy_and_a_store_put_back_meet_errors() -> None:
    beside = [("start", 0), *batches(3), ("start", 0), ("run", 0), ("run", 1), *batches(20)]
    assert check(beside)["run: FencedError"] == 1
    copied = [("start", 0), *batches(2), ("copy", 0), ("start", 1), *batches(3)]
    assert check(copied)["start: StoreOfOtherCheckpointError"] == 1
    put_back = [("start", 0), *batches(2), ("kill", 0), ("back up", 0), ("start", 0), *batches(2)]
    put_back += [("kill", 0), ("put back", 0), ("start", 0)]
    assert check(put_back)["start: EpochsLostError"] == 1


def test_copies_that_take_the_store_from_each_other_keep_their_own_state() -> None:
    history = [("start", 0), *batches(3), ("kill", 0), ("copy", 0), ("relocate", 1)]
    for checkpoint in (1, 0, 1, 0):
        history += [("attach", checkpoint), ("start", checkpoint), *batches(2), ("kill", 0)]
    outcomes = check(history)
    assert [outcome for outcome in outcomes if not outcome.endswith("done")] == []


def test_a_driver_that_goes_on_after_its_store_was_attached_is_followed_or_told() -> None:
    attached = [("start", 0), ("run", 0), ("start", 0), ("run", 1), ("commit", 1), ("attach", 0)]
    attached += [("kill", 0), ("start", 0)]
    restart = [("kill", 1), ("kill", 0), ("start", 0), ("run", 0)]
    followed = check([*attached, *batches(2), *restart])
    assert [outcome for outcome in followed if not outcome.endswith("done")] == []
    # Spark commits epoch 1 of the older driver, and the newer driver has run epoch 1, too.
    beside = [("run", 0), ("run", 1), ("commit", 0)]
    assert check([*attached, *beside, *restart])["run: ContradictingRunsError"] == 1


def test_a_checkpoint_that_is_moved_again_and_again_goes_on() -> None:
    history = [("start", 0), *batches(2), ("run", 0), ("kill", 0)]
    for _ in range(3):
        history += [("relocate", 0), ("attach", 0), ("start", 0), *batches(2), ("run", 0)]
        history += [("kill", 0)]
    outcomes = check(history)
    assert [outcome for outcome in outcomes if not outcome.endswith("done")] == []
