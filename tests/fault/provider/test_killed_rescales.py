"""A rescale that ends at any moment leaves either the former number of partitions or the new
number.

Wherever a rescale stopped, the query goes on at once, with the output of a query without the
rescale. A user can undo a partial rescale, and repeat the rescale.
"""

from __future__ import annotations

import random
import re
import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from checkpoint_store.objects.object_info import UNPUBLISHED
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from tests.support.applications.lost_commits import forget_last_commit
from tests.support.applications.whole_applications import kill, start
from tests.support.provider.adoption_jobs import (
    AGGREGATION,
    FORMAT_2,
    JOIN,
    SEGMENTS,
    Adopted,
    FirstSegments,
    contents,
    first_segments,
)
from tests.support.provider.provider_jobs import COWSTATE, HDFS, THROUGH_MANAGER, Options
from tests.support.provider.provider_stores import directory_store
from tests.support.provider.rescaled_jobs import rescaled, revert, rows_of_state
from tests.support.provider.stopped_changes import StoppedError, stop_after
from tests.support.stores.misbehaving_gateway import misbehaving_python

__all__ = ["first_segments"]
pytestmark = [pytest.mark.spark, pytest.mark.fault]

CHANGING = {
    CheckpointFiles: ["write_text", "copy", "delete", "start_rescaling", "discard_rescaled"]
}
MOST_WRITES = 200
FOLDER = "_cowstate_rescale"
# Hadoop leaves this checksum of a file that did not exist yet. Hadoop lists no checksums.
UNFINISHED = (".tmp.crc",)
# Hadoop removes the checksum before it edits a file, and reads a file without checksum unchecked.
CHECKSUM_OF_EDITED_FILE = re.compile(
    r"(offsets|commits)/\.\d+\.crc|state/\d+/_metadata/\.metadata\.crc"
)
SOAK = [pytest.mark.soak, pytest.mark.timeout(3600)]
# Part of the names of the last partition's objects, for an operator with four partitions.
LAST_PARTITION = "/0/3/"
KEY = "spark.sql.shuffle.partitions"
Outcome = tuple[dict[int, list[str]], dict[int, list[str]]]


@dataclass(frozen=True)
class Scenario:
    """A query after two batches of input, and the number of partitions after its rescale."""

    name: str
    settings: Options
    number: int
    is_open: bool
    """Whether its last batch is not committed."""


SCENARIOS = {
    "fewer, an open batch": Scenario(AGGREGATION, THROUGH_MANAGER, 1, True),
    "more, an open batch, ids": Scenario(AGGREGATION, FORMAT_2, 4, True),
    "more, ids, a join": Scenario(JOIN, FORMAT_2, 3, False),
}
# Together, the two scenarios have every value of a scenario.
OPPOSITES = ("fewer, an open batch", "more, ids, a join")


@pytest.fixture(scope="module")
def uninterrupted(
    first_segments: FirstSegments, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Outcome]:
    """The output and state of the same job on HDFSBacked without a rescale."""

    @cache
    def run(name: str) -> Outcome:
        folder = tmp_path_factory.mktemp("uninterrupted")
        return outcome_of(first_segments.copy(name, HDFS, folder, THROUGH_MANAGER))

    return run


def outcome_of(query: Adopted) -> Outcome:
    """Process one more batch of input, and return the output and the state."""
    query.go_on(1)
    outputs = {batch: attempts[-1] for batch, attempts in query.run.outputs.items()}
    return outputs, rows_of_state(query.run, query.run.batches[-1])


def begun(first_segments: FirstSegments, scenario: Scenario, folder: Path) -> Adopted:
    query = first_segments.copy(scenario.name, COWSTATE, folder, scenario.settings)
    if scenario.is_open:
        forget_last_commit(query.checkpoint)
    return query


@dataclass
class StoppedRescale:
    """A query whose rescale is stopped again and again, with the earlier content of its checkpoint
    and its output without a rescale."""

    query: Adopted
    number: int
    folder: Path
    expected: Outcome
    before: dict[str, bytes]
    seen: list[dict[str, bytes]] = field(default_factory=list)

    def apply(self) -> None:
        rescaled(self.query.checkpoint, self.number)

    def put_back(self, writes: int) -> None:
        put_back(self.query)
        assert contents(self.query.checkpoint) == self.before, f"after {writes} writes"

    def assert_it_goes_on(self, writes: int) -> None:
        """Assert that a copy of the query goes on, once for each relevant content of the
        checkpoint."""
        left = {
            path: content
            for path, content in contents(self.query.checkpoint).items()
            if FOLDER not in path and ".rescaled." not in path
        }
        if left not in self.seen:
            self.seen.append(left)
            stopped = self.query.copy(self.folder / f"stopped-{writes}")
            assert outcome_of(stopped) == self.expected, f"after {writes} writes"


def after_each_write(
    patching: pytest.MonkeyPatch, command: Callable[[], None]
) -> Iterator[tuple[int, bool]]:
    """Stop a command after no write, after one write, and so on, until the command ends by
    itself."""
    for writes in range(MOST_WRITES):
        is_done = True
        with patching.context() as patch:
            stop_after(patch, writes, CHANGING)
            try:
                command()
            except StoppedError:
                is_done = False
        yield writes, is_done
        if is_done:
            return
    raise AssertionError(f"it has more than {MOST_WRITES} writes")


def put_back(query: Adopted) -> None:
    if [*query.checkpoint.glob(f"{FOLDER}/*")]:
        revert(query.checkpoint)


@pytest.fixture(params=SCENARIOS)
def stopped(
    request: pytest.FixtureRequest,
    first_segments: FirstSegments,
    tmp_path: Path,
    uninterrupted: Callable[[str], Outcome],
) -> StoppedRescale:
    scenario = SCENARIOS[request.param]
    query = begun(first_segments, scenario, tmp_path / "query")
    expected, before = uninterrupted(scenario.name), contents(query.checkpoint)
    return StoppedRescale(query, scenario.number, tmp_path, expected, before)


def test_one_that_stops_at_any_write_leaves_the_former_number_or_the_new_one(
    stopped: StoppedRescale, monkeypatch: pytest.MonkeyPatch
) -> None:
    for writes, is_done in after_each_write(monkeypatch, stopped.apply):
        stopped.assert_it_goes_on(writes)
        if not is_done:
            stopped.put_back(writes)
    assert len(stopped.seen) >= 3


@pytest.mark.parametrize("stopped", OPPOSITES, indirect=True)
def test_an_undoing_that_stops_at_any_write_leaves_one_of_both_numbers_too(
    stopped: StoppedRescale, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped.apply()
    undo = partial(revert, stopped.query.checkpoint)
    for writes, is_done in after_each_write(monkeypatch, undo):
        stopped.assert_it_goes_on(writes)
        stopped.put_back(writes)
        if not is_done:
            stopped.apply()
    assert len(stopped.seen) >= 3


def test_one_that_stopped_after_it_took_effect_is_finished_by_the_next_command(
    first_segments: FirstSegments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = SCENARIOS["more, an open batch, ids"]
    query = begun(first_segments, scenario, tmp_path / "query")
    newest, entry_before = (query.checkpoint / "offsets" / batch for batch in "21")
    before = newest.read_text()

    def apply() -> None:
        rescaled(query.checkpoint, scenario.number)

    for _ in after_each_write(monkeypatch, apply):
        if newest.read_text() != before:
            break
        put_back(query)
    assert KEY not in entry_before.read_text()
    rescaled(query.checkpoint, 3)
    revert(query.checkpoint)
    for log in (newest, entry_before):
        assert f'"{KEY}":"{scenario.number}"' in log.read_text()
    noted = (query.checkpoint / "state" / "0" / "_metadata" / "metadata").read_text()
    assert f'"numPartitions":{scenario.number}' in noted


@dataclass(frozen=True)
class Moment:
    """The moment of a kill: some seconds after a condition becomes true."""

    has_come: Callable[[], bool]
    seconds: float


def killed(query: Adopted, number: int, moment: Moment, log: Path, *options: str) -> int:
    """Run and kill the command at the given moment. Return the exit code, 0 if the command was
    faster."""
    command = ("rescale", str(query.checkpoint), "--partitions", str(number), "--apply", "--force")
    running = start("cowstate", *command, *options, log=log)
    try:
        while running.poll() is None and not moment.has_come():
            time.sleep(0.002)
        time.sleep(moment.seconds)
    finally:
        code = kill(running)
    assert code in (0, -signal.SIGKILL), log.read_text()[-5_000:]
    return code


def assert_is_put_back(query: Adopted, before: dict[str, bytes]) -> None:
    """Assert that the checkpoint is as before, except checksums of edited files, which may be
    missing."""
    after = contents(query.checkpoint, without=UNFINISHED)
    missing = before.keys() - after.keys()
    assert [path for path in missing if not CHECKSUM_OF_EDITED_FILE.fullmatch(path)] == []
    assert after == {path: content for path, content in before.items() if path not in missing}


@pytest.mark.parametrize("kills", [1, pytest.param(30, marks=SOAK)])
def test_a_killed_process_leaves_the_former_number_or_the_new_one(
    first_segments: FirstSegments,
    tmp_path: Path,
    uninterrupted: Callable[[str], Outcome],
    kills: int,
) -> None:
    scenario = SCENARIOS["more, an open batch, ids"]
    query = begun(first_segments, scenario, tmp_path / "query")
    before = contents(query.checkpoint, without=UNFINISHED)
    chance, codes = random.Random(kills), list[int]()
    for kill_number in range(kills):
        # The first kill is immediate, because the duration of the whole command depends on the
        # machine.
        seconds = chance.uniform(0, 3) if kill_number else 0.0
        moment = Moment((query.checkpoint / FOLDER).exists, seconds)
        codes.append(killed(query, scenario.number, moment, tmp_path / "log"))
        stopped = query.copy(tmp_path / f"stopped-{kill_number}")
        assert outcome_of(stopped) == uninterrupted(scenario.name)
        put_back(query)
        assert_is_put_back(query, before)
    assert -signal.SIGKILL in codes
    rescaled(query.checkpoint, scenario.number)
    assert outcome_of(query) == uninterrupted(scenario.name)


@dataclass
class QueryInStore:
    """A query with its state in a store; `folder` holds both the checkpoint and the store."""

    query: Adopted
    folder: Path

    @classmethod
    def begun(cls, spark: SparkSession, scenario: Scenario, folder: Path) -> QueryInStore:
        store = directory_store(folder / "store")
        settings = {**scenario.settings, **store.settings}
        query = Adopted.new(spark, scenario.name, COWSTATE, folder, settings)
        query.go_on(SEGMENTS[0])
        if scenario.is_open:
            forget_last_commit(query.checkpoint)
        return cls(query, folder)

    def stored(self) -> dict[str, bytes]:
        """All objects, except the objects that killed gateways began."""
        objects = contents(self.folder / "store")
        return {name: data for name, data in objects.items() if UNPUBLISHED not in name}

    def new_objects(self) -> int:
        return sum(1 for _ in self.folder.glob("store/*/state/0/*/*.rescaled.arrow"))

    def outcome_if_it_went_on(self, aside: Path) -> Outcome:
        """Run the query once more, and then restore the folder. A copy may not write to the store,
        so the original query runs."""
        shutil.copytree(self.folder, aside)
        outputs = defaultdict(
            list, {batch: [*rows] for batch, rows in self.query.run.outputs.items()}
        )
        run = replace(self.query.run, outputs=outputs)
        outcome = outcome_of(Adopted(run, replace(self.query.segments)))
        shutil.rmtree(self.folder)
        aside.rename(self.folder)
        return outcome


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=SOAK)])
def test_a_killed_process_leaves_the_former_number_or_the_new_one_in_a_store(
    spark: SparkSession, tmp_path: Path, uninterrupted: Callable[[str], Outcome], kills: int
) -> None:
    """The first kill is immediate, the second during the put of the last object, the third after
    the put of the first object. Later kills follow some time after these moments."""
    scenario = SCENARIOS["more, an open batch, ids"]
    there = QueryInStore.begun(spark, scenario, tmp_path / "query")
    query, held = there.query, tmp_path / "held"
    before, stored = contents(query.checkpoint, without=UNFINISHED), there.stored()
    python = misbehaving_python(tmp_path, kills, held=str(held), holding=LAST_PARTITION)
    has_come = [
        (query.checkpoint / FOLDER).exists,
        lambda: there.new_objects() == scenario.number - 1 and bool(held.read_text()),
        lambda: there.new_objects() > 0,
    ]
    chance, codes = random.Random(kills), list[int]()
    for kill_number in range(kills):
        turn, place = divmod(kill_number, len(has_come))
        moment = Moment(has_come[place], chance.uniform(0, 3) if turn else 0.0)
        held.unlink(missing_ok=True)
        if place == 1:
            held.touch()
        options = ("--conf", f"spark.pyspark.python={python}")
        codes.append(killed(query, scenario.number, moment, tmp_path / "log", *options))
        if place == 1:
            assert codes[-1] == -signal.SIGKILL
            assert there.new_objects() == scenario.number - 1
        aside = tmp_path / f"aside-{kill_number}"
        assert there.outcome_if_it_went_on(aside) == uninterrupted(scenario.name)
        put_back(query)
        assert_is_put_back(query, before)
        assert there.stored() == stored
    rescaled(query.checkpoint, scenario.number)
    assert outcome_of(query) == uninterrupted(scenario.name)
    assert there.new_objects() == scenario.number
