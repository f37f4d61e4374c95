"""All operators of a new query begin with the same epoch, chosen at planning.

Scripted operators write the stores, without Spark.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.operators.operator_history import OperatorHistory
from spark_state.errors import ConfigurationError
from spark_state.spark.queries.restore_source import check_one_epoch, restore_source
from spark_state.spark.session.operator_configuration import SessionFacts, parse_configuration
from spark_state.subtasks.epoch_request import RestoreSource
from tests.support.operators.counts_operator import MAX_PARALLELISM, NO_COLUMNS, CountsOperator

FACTS = SessionFacts("local[2]", 2, 2, speculation=False)


class Query:
    """A query with operators in a folder; an operator may be some epochs ahead."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        self.operators = {
            name: CountsOperator(open_object_store(str(folder / name))) for name in names
        }
        self._next = dict.fromkeys(names, 0)

    def run(self, epochs: int, *names: str) -> None:
        for name in names or self.operators:
            for _ in range(epochs):
                self.operators[name].run_epoch(self._next[name], {0: 1})
                self._next[name] += 1

    def skip(self, epoch: int, name: str) -> None:
        """Let an operator not run in an epoch."""
        assert self._next[name] == epoch
        self._next[name] += 1


def planned(url: object, operator: str = "totals", **settings: str) -> RestoreSource:
    """Return the restore source of an operator planned now."""
    texts = {
        "store": "/unused",
        "maxParallelism": str(MAX_PARALLELISM),
        "restoreFrom": str(url),
        **settings,
    }
    configuration = parse_configuration(
        {f"spark.cowstate.{key}": text for key, text in texts.items()}, FACTS
    )
    no_session: Any = None
    source = restore_source(no_session, configuration, operator, NO_COLUMNS)
    assert source is not None
    return source


def test_operators_of_a_directory_begin_with_the_newest_epoch_that_all_have(
    tmp_path: Path,
) -> None:
    query = Query(tmp_path, "totals", "others")
    query.run(3)
    query.run(2, "totals")
    url = f"file://{tmp_path}"
    assert planned(tmp_path) == RestoreSource(f"{url}/totals", 2, str(tmp_path))
    assert planned(tmp_path, "others") == RestoreSource(f"{url}/others", 2, str(tmp_path))


def test_the_other_query_may_go_on_between_two_operators(tmp_path: Path) -> None:
    query = Query(tmp_path, "totals", "others")
    query.run(3)
    assert planned(tmp_path, "others").epoch == 2
    query.run(4)
    assert planned(tmp_path, "totals").epoch == 2


def test_a_query_that_is_defined_again_begins_with_the_newest(tmp_path: Path) -> None:
    query = Query(tmp_path, "totals", "others")
    query.run(3)
    assert {planned(tmp_path, name).epoch for name in ("totals", "others")} == {2}
    query.run(4)
    assert {planned(tmp_path, name).epoch for name in ("totals", "others")} == {6}


def test_a_query_that_is_planned_after_another_one_has_started_begins_with_the_newest(
    tmp_path: Path,
) -> None:
    query = Query(tmp_path, "totals", "others", "counts")
    query.run(3)
    check_one_epoch([("totals", planned(tmp_path, "totals"))])
    query.run(4)
    assert {planned(tmp_path, name).epoch for name in ("others", "counts")} == {6}


def test_a_query_that_is_refused_does_not_change_what_was_chosen(tmp_path: Path) -> None:
    query = Query(tmp_path, "totals", "others", "counts")
    query.run(3)
    first = planned(tmp_path, "totals")
    query.run(4)
    refused = RestoreSource(f"file://{tmp_path}/others", 6, str(tmp_path))
    with pytest.raises(ConfigurationError, match="planned or started in between"):
        check_one_epoch([("totals", first), ("others", refused)])
    assert planned(tmp_path, "others").epoch == first.epoch


def test_an_epoch_that_was_chosen_and_is_gone_is_not_chosen_again(tmp_path: Path) -> None:
    query = Query(tmp_path, "totals", "others")
    query.run(3)
    first = planned(tmp_path, "totals")
    query.run(4)
    for name in query.operators:
        CompletedCheckpointStore(open_object_store(str(tmp_path / name))).retain(2)
    second = planned(tmp_path, "others")
    assert (first.epoch, second.epoch) == (2, 6)
    with pytest.raises(ConfigurationError, match=r"totals .*epoch 2 of it, and others .*epoch 6"):
        check_one_epoch([("totals", first), ("others", second), ("new", None)])


def test_a_partial_epoch_of_a_running_query_is_not_begun_with(tmp_path: Path) -> None:
    query = Query(tmp_path, "totals")
    query.run(2)
    running = query.operators["totals"]
    running.run_subtask(2, 0, {0: 1}, running.checkpoints.latest_before(2))
    assert planned(tmp_path / "totals").epoch == 1


def test_one_store_has_its_own_newest_epoch_whatever_is_beside_it(tmp_path: Path) -> None:
    query = Query(tmp_path, "totals", "others")
    query.run(1)
    query.run(4, "totals")
    assert planned(tmp_path / "totals") == RestoreSource(f"file://{tmp_path}/totals", 4)
    assert planned(tmp_path / "totals", "other name").epoch == 4


def test_a_named_epoch_needs_only_the_operator_to_have_it(tmp_path: Path) -> None:
    query = Query(tmp_path, "totals", "others")
    query.run(1)
    query.run(4, "totals")
    assert planned(f"{tmp_path}@3") == RestoreSource(f"file://{tmp_path}/totals", 3)
    with pytest.raises(
        ConfigurationError, match=r"version 3 of .*others is not written yet.* 0 to 0"
    ):
        planned(f"{tmp_path}@3", "others")


def test_operators_that_never_ran_in_the_same_epoch_since_an_old_one_are_refused(
    tmp_path: Path,
) -> None:
    """Spark does not run an operator whose sources have no new rows."""
    query = Query(tmp_path, "totals", "others")
    query.run(1)
    for epoch in range(1, 5):
        query.skip(epoch, "totals" if epoch % 2 else "others")
        query.run(1, "others" if epoch % 2 else "totals")
    way_out = rf"that all operators have is 0\. .*{tmp_path}@<epoch>; or the store of one"
    with pytest.raises(ConfigurationError, match=way_out):
        planned(tmp_path)


def test_a_query_that_goes_on_while_it_is_looked_at_has_no_operator_that_lags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(tmp_path, "others", "totals")
    query.run(2)
    versions, looks = OperatorHistory.versions, 0

    def look(history: OperatorHistory) -> list[int]:
        nonlocal looks
        looks += 1
        if looks == 2:
            query.run(4)
        return versions(history)

    monkeypatch.setattr(OperatorHistory, "versions", look)
    assert planned(tmp_path).epoch == 5


def test_an_operator_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    Query(tmp_path, "totals", "others").run(1)
    with pytest.raises(ConfigurationError, match=r"nor new below it .*; there are others, totals:"):
        planned(tmp_path, "new")


def test_a_store_whose_description_is_gone_is_told_of_it(tmp_path: Path) -> None:
    Query(tmp_path, "totals").run(1)
    (tmp_path / "totals" / "store.json").unlink()
    for url in (tmp_path, tmp_path / "totals"):
        with pytest.raises(ConfigurationError, match=r"store\.json.*take another savepoint"):
            planned(url)


def test_a_store_without_an_epoch_is_refused(tmp_path: Path) -> None:
    query = Query(tmp_path, "totals", "others")
    query.run(1, "totals")
    with pytest.raises(ConfigurationError, match="others holds no version yet"):
        planned(tmp_path)
    with pytest.raises(ConfigurationError, match="others holds no version yet"):
        planned(f"{tmp_path / 'others'}@0")


def test_what_is_no_operator_is_refused_without_words_of_progress(tmp_path: Path) -> None:
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits/0").write_text("v1\n{}")
    with pytest.raises(ConfigurationError, match="neither the store of an operator") as raised:
        planned(tmp_path)
    assert "progress" not in str(raised.value).lower()


def test_operators_of_several_directories_may_begin_with_several_epochs() -> None:
    check_one_epoch(
        [
            ("a", RestoreSource("s3://b/one/a", 3, "s3://b/one")),
            ("b", RestoreSource("s3://b/two/b", 4, "s3://b/two")),
            ("c", RestoreSource("s3://b/one/c", 9)),
            ("d", RestoreSource("s3://b/one/d", 3, "s3://b/one")),
        ]
    )
