"""Every retained epoch restores to its exact state after any random history of a query.

A history is a list of steps: run the next epoch, run the last epoch again, restart at another
parallelism, roll back, let a zombie publish, stop an epoch half way, clean up. A naive oracle keeps
every state. After each step every retained epoch must restore to the oracle's state, and every
object named by a manifest must exist (I4, I6, I8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from checkpoint_store.epochs.completed_checkpoint import CompletedCheckpoint
from checkpoint_store.epochs.operator_layout import (
    BarrierName,
    EpochDirectory,
    ManifestName,
    parse_barrier,
    parse_manifest,
)
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.files.state_handle import StateFileKind
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from tests.support.examples import examples
from tests.support.operators.counts_operator import (
    CountsOperator,
    restored,
    state_before,
    whole_range,
)
from tests.support.operators.taken_back import CHECKPOINT, take_back
from tests.support.random_steps import ModelStep, step, take
from tests.support.stores.fake_object_store import DictObjectStore

pytestmark = pytest.mark.usefixtures("without_threads")

changes_of_state = st.dictionaries(st.integers(0, 7), st.integers(0, 999), max_size=4)
kinds: st.SearchStrategy[StateFileKind] = st.sampled_from(["changelog", "changelog", "snapshot"])
MIN_EPOCHS = 3


epochs = step("epoch", st.just(1), changes_of_state, kinds)
steps = st.one_of(
    step("epoch", st.sampled_from([1, 1, 1, 3, 0]), changes_of_state, kinds),
    step("restart", st.integers(1, 4), st.integers(0, 2)),
    step("stop", changes_of_state),
    step("zombie"),
    step("clean"),
)


@dataclass
class QueryHistory:
    """The query and its oracle. `states` has the state after each epoch of the live timeline."""

    objects: DictObjectStore = field(default_factory=DictObjectStore)
    states: dict[int, dict[int, int]] = field(default_factory=dict)
    runs: list[CountsOperator] = field(default_factory=list)
    attempt: int = 0
    retained_from: int = 0
    replays: bool = False
    first_epoch: int | None = None

    def newest(self) -> int:
        return max(self.states, default=-1)

    def start(self, parallelism: int) -> None:
        run_id = f"run-{len(self.runs)}"
        # The driver of a run sees epochs that Spark's log no longer has.
        if CompletedCheckpointStore(self.objects).bases.lineage().reached > self.newest() + 1:
            take_back(self.objects, self.newest() + 1)
        operator = CountsOperator(self.objects, run_id, parallelism)
        operator.checkpoints.starts.note_checkpoint(operator.run, CHECKPOINT)
        self.runs.append(operator)
        # Spark begins a run with the epoch after the last committed epoch.
        self.replays = True
        self.first_epoch = None

    def apply(self, step: ModelStep) -> None:
        self.attempt += 1
        self.objects.now = float(self.attempt)
        take(self, [step])

    def restart(self, parallelism: int, back: int) -> None:
        """Start a new run at another parallelism, some epochs back."""
        for epoch in sorted(self.states)[-back:] if back else []:
            if epoch > self.retained_from:
                del self.states[epoch]
        self.start(parallelism)

    def stop(self, changes: Mapping[int, int]) -> None:
        """Let a subtask publish its part of the next epoch. Then the run dies."""
        epoch = self.newest() + 1
        base = self.runs[-1].checkpoints.latest_before(epoch)
        self.runs[-1].run_subtask(epoch, 0, changes, base, attempt=self.attempt)
        self.start(self.runs[-1].parallelism)

    def epoch(self, step: int, changes: Mapping[int, int], kind: StateFileKind) -> None:
        """Run the next epoch, an epoch after a gap, or the last epoch again."""
        epoch = max(self.newest() + (1 if self.replays else step), 0)
        if epoch == self.newest() and epoch <= self.retained_from:
            return
        self.replays = False
        is_first = self.first_epoch is None
        self.first_epoch = epoch if self.first_epoch is None else self.first_epoch
        before = max((e for e in self.states if e < epoch), default=None)
        state = {} if before is None else self.states[before]
        operator = self.runs[-1]
        operator.run_epoch(epoch, changes, kind, self.attempt)
        self.states[epoch] = {**state, **changes}
        if is_first:
            # The driver says that Spark has committed the first epoch of the run.
            operator.checkpoints.starts.note_reached(operator.run.run_id, epoch + 1)

    def zombie(self) -> None:
        """Let the previous run publish, late and whole, the epoch it had been running."""
        # Only after a newer run has completed an epoch is the older run certainly a zombie.
        if len(self.runs) < 2 or self.first_epoch is None:
            return
        zombie, epoch = self.runs[-2], self.first_epoch
        for subtask in range(zombie.parallelism):
            zombie.run_subtask(epoch, subtask, {0: -1}, None, attempt=self.attempt)
        zombie.checkpoints.complete(epoch, zombie.run, zombie.parallelism)

    def clean(self) -> None:
        """Run retention and the orphan sweep."""
        # An epoch that was whole at the end of its run counts until the next run replaces the
        # epoch.
        whole = {name.epoch for name in PublishedObjects(self.objects).manifests()}
        live = {each.epoch for each in self.runs[-1].checkpoints.bases.lineage().epochs}
        later = {epoch for epoch in live & whole if epoch > self.newest()}
        if self.runs[-1].checkpoints.retain(MIN_EPOCHS):
            self.retained_from = sorted({*self.states, *later})[-MIN_EPOCHS]
        CompletedCheckpointStore(self.objects).sweep_orphans(
            grace_seconds=0.0, now=self.attempt + 1.0
        )

    def check(self) -> None:
        for epoch, state in self.states.items():
            if epoch >= self.retained_from:
                following = min((e for e in self.states if e > epoch), default=epoch + 1)
                if following in self.states or epoch == self.newest():
                    assert state_of(self.objects, epoch, following) == state
        for name in PublishedObjects(self.objects).manifests():
            if name.epoch >= self.retained_from:
                checkpoint = PublishedObjects(self.objects).read_manifest(name)
                missing = checkpoint.object_names() - self.objects.objects.keys()
                assert missing == set(), f"named by the manifest of epoch {name.epoch}"


def state_of(objects: DictObjectStore, epoch: int, following: int) -> dict[int, int]:
    """The state from which epoch `following` starts. The start must be `epoch`."""
    checkpoint = CompletedCheckpointStore(objects).latest_before(following)
    assert checkpoint is not None
    assert checkpoint.epoch == epoch
    return restored(CompletedCheckpointStore(objects), checkpoint, whole_range(3))


@examples(100)
@given(st.lists(steps, max_size=16))
def test_every_retained_epoch_restores_to_its_state(history: list[ModelStep]) -> None:
    query = QueryHistory()
    query.start(2)
    for each in history:
        query.apply(each)
        query.check()


DAMAGES: list[Callable[[bytes], bytes]] = [
    lambda data: bytes([*data[:-1], data[-1] ^ 1]),
    lambda data: data[:-1],
    lambda data: b"",
]
damages = st.sampled_from(DAMAGES)


@dataclass
class DamagedQuery:
    """The store of a query with damaged objects. `originals` has the undamaged objects."""

    query: QueryHistory
    originals: dict[str, bytes] = field(default_factory=dict)

    def damage(self, number: int, how: Callable[[bytes], bytes]) -> None:
        """Damage a manifest or a barrier, but not of the newest epoch, from which the query
        continues."""
        objects = self.query.objects.objects
        candidates = [
            name
            for name in sorted(objects)
            if (parsed := parse_manifest(name) or parse_barrier(name))
            and directory_of(parsed).epoch < self.query.newest()
        ]
        if candidates:
            name = candidates[number % len(candidates)]
            objects[name] = how(self.originals[name])

    def remember(self) -> None:
        for name, data in self.query.objects.objects.items():
            self.originals.setdefault(name, data)

    def check(self) -> None:
        """Assert that every retained epoch restores to its state once damaged objects are repaired
        (I8). A later manifest of the same epoch and run replaces a damaged manifest, so clean-up
        may delete the files of the damaged manifest."""
        damaged = self.query.objects
        self.query.objects = damaged.copy()
        self.query.objects.objects.update({name: self.originals[name] for name in damaged.objects})
        for name in self._replaced(damaged):
            del self.query.objects.objects[name]
        self.query.check()
        self.query.objects = damaged

    def _replaced(self, damaged: DictObjectStore) -> list[str]:
        """The damaged manifests with an intact later manifest of the same epoch and run."""
        names = PublishedObjects(damaged).manifests()
        intact = {n for n in names if damaged.objects[str(n)] == self.originals[str(n)]}
        return [
            str(name)
            for name in {*names} - intact
            if any(o.directory == name.directory and o.attempts >= name.attempts for o in intact)
        ]


def directory_of(name: ManifestName | BarrierName) -> EpochDirectory:
    if isinstance(name, BarrierName):
        return name.directory
    return EpochDirectory(name.epoch, name.run_number)


@examples(100)
@example(
    history=[("restart", 3, 0), *2 * [("epoch", 1, {}, "changelog")], *2 * [("zombie",)]],
    damaged=[(7, DAMAGES[0])],
    epochs=[("epoch", 1, {}, "changelog")],
)
@given(
    st.lists(steps, max_size=10),
    st.lists(st.tuples(st.integers(0, 999), damages), max_size=6),
    st.lists(epochs, min_size=1, max_size=6),
)
def test_clean_up_of_a_damaged_store_goes_on_and_deletes_nothing_that_is_named(
    history: list[ModelStep],
    damaged: list[tuple[int, Callable[[bytes], bytes]]],
    epochs: list[ModelStep],
) -> None:
    query = QueryHistory()
    query.start(2)
    for each in history:
        query.apply(each)
    store = DamagedQuery(query)
    store.remember()
    for number, how in damaged:
        store.damage(number, how)
    for each in epochs:
        query.apply(each)
        store.remember()
        query.apply(("clean",))
        store.check()
    assert (
        state_of(query.objects, query.newest(), query.newest() + 1) == query.states[query.newest()]
    )


@given(st.lists(st.tuples(changes_of_state, kinds, st.integers(1, 8)), min_size=1, max_size=8))
def test_state_is_the_same_at_every_parallelism(
    epochs: list[tuple[dict[int, int], StateFileKind, int]],
) -> None:
    objects = DictObjectStore()
    state: dict[int, int] = {}
    for epoch, (changes, kind, parallelism) in enumerate(epochs):
        CountsOperator(objects, f"run-{epoch}", parallelism).run_epoch(epoch, changes, kind)
        state |= changes
    for readers in (1, 2, 3, 5, 8):
        assert state_before(objects, len(epochs), readers) == state


def test_a_history_with_every_kind_of_step_is_checked() -> None:
    query = QueryHistory()
    query.start(2)
    script: list[ModelStep] = [
        ("epoch", 1, {0: 1, 7: 1}, "changelog"),
        ("epoch", 1, {0: 2}, "snapshot"),
        ("stop", {0: 3}),
        ("epoch", 1, {1: 4}, "changelog"),
        ("restart", 3, 1),
        ("epoch", 1, {1: 5}, "changelog"),
        ("zombie",),
        *[("epoch", 1, {2: n}, "changelog") for n in range(4)],
        ("clean",),
        ("epoch", 0, {2: 99}, "changelog"),
    ]
    for each in script:
        query.apply(each)
        query.check()
    assert query.states[query.newest()] == {0: 2, 7: 1, 1: 5, 2: 99}
    assert query.retained_from == query.newest() - 2
    completed = CompletedCheckpointStore(query.objects).latest_before(query.newest() + 1)
    assert isinstance(completed, CompletedCheckpoint)
