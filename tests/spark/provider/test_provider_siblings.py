"""Stores of one operator that a task writes side by side, as for a join, commit the same
attempt."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.provider.provider_state import PartitionReader, StorePartition
from checkpoint_store.provider.query_partitions import QueryPartitions
from tests.support.provider.provider_jvm import STEP, ProviderJvm, Tasks, WordValue, shown

pytestmark = pytest.mark.spark
SCRIPT = "StoresOfTaskScript"
SIDES = ("left", "right")
STORES_OF_JOIN = [
    f"0/{side}-{store}" for side in SIDES for store in ("keyToNumValues", "keyWithIndexToValue")
]
VALUE = WordValue(3, 7)


@pytest.fixture
def run(provider_jvm: ProviderJvm, tmp_path: Path) -> Tasks:
    return partial(provider_jvm.results, SCRIPT, tmp_path)


def written(partition: int, *names: str) -> list[str]:
    """Lines that begin these stores and put a row into each."""
    stores = [f"{partition}/{name}" for name in names]
    puts = [f"put {store} {number} {VALUE}" for number, store in enumerate(stores)]
    return [*(f"begin {store} 0" for store in stores), *puts]


def test_a_store_writes_its_file_when_the_first_of_the_operator_commits(run: Tasks) -> None:
    results = run(
        *written(0, *SIDES),
        *("commit 0/left", "put 0/right 5 1:1", "wait 0/right", "commit 0/right", "end"),
        *("begin 0/right 1", "entries 0/right"),
    )
    assert "Cannot put after already committed or aborted" in results[5]
    assert results[6:8] == ["1", "1"]
    assert results[10] == shown({1: VALUE})


def test_a_store_that_has_written_its_file_may_be_aborted(run: Tasks) -> None:
    results = run(
        *written(0, *SIDES),
        *("commit 0/left", "abort 0/right", "begin 0/right 0", "entries 0/right"),
        *(f"put 0/right 0 {VALUE}", "commit 0/right", "end"),
    )
    assert results[4:] == ["1", "", "", "", "", "1", ""]
    # The first file is like the file of a killed task. The second file counts.
    assert run("begin 0/right 1", "entries 0/right")[1] == shown({0: VALUE})


def test_stores_of_other_partitions_of_the_task_go_on(run: Tasks) -> None:
    """A task that reads several partitions may have several partitions open."""
    results = run(
        *written(0, *SIDES),
        *written(1, "left"),
        *("commit 1/left", "put 0/left 9 1:1", "put 0/right 9 1:1"),
        *("commit 0/left", "commit 0/right"),
    )
    assert results[6:] == ["1", "", "", "1", "1"]


def test_a_store_reports_the_keys_that_it_committed(run: Tasks) -> None:
    """Two jobs may run a batch at the same time. Spark asks for metrics after the commit."""
    results = run(
        *written(0, "left"),
        *("commit 0/left", "keep 0/left first", "begin 0/left 0"),
        *("put 0/left 8 1:1", "put 0/left 9 1:1", "keys first", "keys 0/left"),
    )
    assert results[-2:] == ["1", "2"]


def test_a_file_that_could_not_be_written_fails_the_commit_of_its_store(
    run: Tasks, tmp_path: Path
) -> None:
    blocked = tmp_path / "0" / "0" / "right"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("not a directory")
    results = run(*written(0, *SIDES), "commit 0/left", "commit 0/right", "end")
    assert results[4] == "1"
    assert str(blocked) in results[5]
    blocked.unlink()
    lines = [*written(0, "right"), "commit 0/right", "end", "begin 0/right 1", "entries 0/right"]
    assert run(*lines)[-1] == shown({0: VALUE})


def test_a_commit_waits_for_what_was_begun_ahead(provider_jvm: ProviderJvm) -> None:
    assert provider_jvm.new("CommitAheadScript").commit(False) == "committed"
    assert provider_jvm.new("CommitAheadScript").commit(True) == "failed: no room"


@pytest.mark.parametrize("is_interrupted", [True, False])
def test_cancelling_waits_until_the_file_is_used_no_more(
    provider_jvm: ProviderJvm, is_interrupted: bool
) -> None:
    result = provider_jvm.new("CommitAheadScript").cancel(is_interrupted)
    noted = " still interrupted" if is_interrupted else ""
    assert result == f"interrupted ended cancelled{noted}"


def test_a_task_that_is_killed_waits_no_longer(provider_jvm: ProviderJvm) -> None:
    """An object store may not answer for minutes."""
    result = provider_jvm.new("CommitAheadScript").interrupt()
    assert result == "waited no longer interrupted ended cancelled"


def attempts_of(run: Tasks, *lines: str) -> list[str]:
    """The generation and unique of each changelog of both sides, after the lines."""
    results = run(*lines, *(f"attempts 0/{side}" for side in SIDES))
    assert not [result for result in results if result.startswith("error")]
    return results[-2:]


def test_a_task_gives_the_stores_of_an_operator_one_unique(run: Tasks) -> None:
    first, second = ([*written(0, *SIDES), *(f"commit 0/{side}" for side in SIDES)],) * 2
    left, right = attempts_of(run, *first, "end", "task 1", *second)
    assert left == right
    assert len({attempt.split("-")[1] for attempt in left.split()}) == 2


def test_a_task_that_writes_a_store_once_more_takes_another_unique(run: Tasks) -> None:
    again = [*written(0, *SIDES), *(f"commit 0/{side}" for side in SIDES)] * 2
    left, right = attempts_of(run, *again)
    assert left == right
    assert len({attempt.split("-")[1] for attempt in left.split()}) == 2


def test_the_same_one_of_two_attempts_counts_in_each_store(
    provider_jvm: ProviderJvm, tmp_path: Path
) -> None:
    """The second attempt looks when the first attempt has written one of its two files."""
    for number in range(8):
        root = tmp_path / str(number)
        first = [f"begin 0/{side} 0" for side in SIDES] + [f"put 0/{side} 1 1:1" for side in SIDES]
        second = [f"begin 0/{side} 0" for side in SIDES] + [f"put 0/{side} 2 1:2" for side in SIDES]
        lines = [*first, "commit 0/left", "task 1", *second, "commit 0/left", "commit 0/right"]
        lines += ["task 2", *(f"begin 0/{side} 1" for side in SIDES)]
        lines += [f"entries 0/{side}" for side in SIDES]
        results = provider_jvm.results(SCRIPT, root, *lines)
        assert results[-2] == results[-1] != ""


KILLED, SUCCESSOR = WordValue(2, 2), WordValue(2, 4)


def begun_join(version: int) -> list[str]:
    return [f"begin {store} {version}" for store in STORES_OF_JOIN]


def put_in_join(value: WordValue) -> list[str]:
    return [f"put {store} 1 {value}" for store in STORES_OF_JOIN]


def committed(stores: list[str]) -> list[str]:
    return [f"commit {store}" for store in stores]


def rows_of_join(run: Tasks, *lines: str) -> list[str]:
    """The rows of the four stores after the lines, whose last task has begun all four stores."""
    results = run(*lines, *(f"entries {store}" for store in STORES_OF_JOIN))
    assert not [result for result in results if result.startswith("error")]
    return results[-4:]


def attempts_in(root: Path, store: str) -> list[str]:
    """The attempts with changelogs of a store, in rising order."""
    return sorted(
        path.name.split("-")[2] for path in (root / "0" / store).glob("*.changelog.arrow")
    )


def value_without_spark(root: Path, store: str) -> int:
    """The value of the only row, as an unsigned number."""
    where = StorePartition(0, 0, store.removeprefix("0/"))
    files = LocalObjectStore(root.parent)
    reader = PartitionReader(files, where, QueryPartitions(files))
    (row,) = reader.state_table(reader.state_at(1, None))["value"].to_pylist()
    return int(row["value"]) % (1 << 64)


def leave_of_attempt(root: Path, attempt: str, stores: list[str]) -> None:
    """Delete an attempt's files in all stores but these, as if a kill had come earlier."""
    for store in STORES_OF_JOIN:
        (path,) = (root / "0" / store).glob(f"*-{attempt}-*.changelog.arrow")
        if store not in stores:
            path.unlink()


def two_attempts(run: Tasks, root: Path) -> list[str]:
    """Run two attempts at a version, of KILLED and SUCCESSOR, that have not seen each other."""
    lines = [*begun_join(0), *put_in_join(KILLED), "task 1", *begun_join(0)]
    lines += [*put_in_join(SUCCESSOR), *committed(STORES_OF_JOIN), "end"]
    lines += [f"attempts {STORES_OF_JOIN[0]}", "task 0", *committed(STORES_OF_JOIN), "end"]
    results = run(*lines)
    assert not [result for result in results if result.startswith("error")]
    successor = results[-7].split("-")[1]
    (killed,) = set(attempts_in(root, STORES_OF_JOIN[0])) - {successor}
    return [killed, successor]


def test_an_attempt_that_was_killed_in_the_middle_counts_in_no_store_of_a_join(
    provider_jvm: ProviderJvm, tmp_path: Path
) -> None:
    """The successor has not seen the killed attempt's files, so only `unique` could choose."""
    greater_was_killed = set()
    for number in range(40):
        root = tmp_path / str(number) / "state"
        run = partial(provider_jvm.results, SCRIPT, root)
        killed, successor = two_attempts(run, root)
        leave_of_attempt(root, killed, STORES_OF_JOIN[: 1 + number % 3])
        assert rows_of_join(run, *begun_join(1)) == [shown({1: SUCCESSOR})] * 4
        values = {value_without_spark(root, store) for store in STORES_OF_JOIN}
        assert values == {SUCCESSOR.seed + STEP}
        greater_was_killed.add(killed > successor)
        if len(greater_was_killed) == 2:
            break
    assert greater_was_killed == {True, False}


def test_what_a_killed_attempt_left_in_memory_counts_in_no_store_of_a_join(run: Tasks) -> None:
    """The executor of the killed attempt runs the next batch, after another executor repeated the
    batch."""
    lines = [*begun_join(0), *put_in_join(KILLED), *committed(STORES_OF_JOIN[:2]), "end"]
    lines += ["task 1", *begun_join(0), *put_in_join(SUCCESSOR), *committed(STORES_OF_JOIN), "end"]
    rows = rows_of_join(run, *lines, "task 0", *begun_join(1))
    assert rows == [shown({1: SUCCESSOR})] * 4


def test_stores_of_a_join_of_different_attempts_are_an_error(run: Tasks, tmp_path: Path) -> None:
    """A user has deleted files: each attempt is in two stores only."""
    attempts = two_attempts(run, tmp_path)
    leave_of_attempt(tmp_path, attempts[0], STORES_OF_JOIN[::2])
    leave_of_attempt(tmp_path, attempts[1], STORES_OF_JOIN[1::2])
    results = run(*begun_join(1))
    assert f"of attempt {attempts[1]}, and another store of the same join" in results[1]
    assert f"that of attempt {attempts[0]}" in results[1]
    assert "restart the query from batch 0" in results[1]
