"""Clients of a local Spark Connect server get the results of batch computations and Spark's
operator."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import ANY

import pytest

from tests.support.applications.connect_jobs import CHECKPOINT_SUFFIX
from tests.support.applications.streams import Row, random_rows, totals_of
from tests.support.operators.subtasks import stored_totals
from tests.support.sessions.connect_server import (
    Client,
    client_of,
    connect_server,
    emitted,
    feed,
)

pytestmark = [pytest.mark.spark, pytest.mark.process]

IN_EVENT_TIME = (
    [("a", 1_000), ("b", 15_000), ("a", 1_500)],
    [("b", 16_000), ("c", 31_000)],
    [("c", 60_000), ("a", 58_000)],
    [("d", 100_000)],
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a server without cowstate's jar."""
    folder = tmp_path_factory.mktemp("server")
    with connect_server(folder, {}) as url, client_of(url, folder) as client:
        yield client


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client that starts a server with `configure`."""
    with client_of("local[*]", tmp_path_factory.mktemp("own-server")) as client:
        yield client


def roll_back(checkpoint: Path, batch: int) -> None:
    """Let a batch run again, as after a crash before its commit."""
    for name in (f"{batch}", f".{batch}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


def test_each_row_counts_once_over_restarts_another_server_and_parallelism(
    server: Client, own_server: Client, tmp_path: Path
) -> None:
    batches = [random_rows(seed, count=60, keys=25) for seed in range(6)]
    runs = zip((server, server, own_server), ("2", "3", "1"), strict=True)
    for number, (client, parallelism) in enumerate(runs):
        feed(tmp_path / "input", batches[2 * number : 2 * number + 2], first=2 * number)
        query = client.run("run_totals", tmp_path, parallelism=parallelism)
        roll_back(tmp_path / f"totals{CHECKPOINT_SUFFIX}", 2 * number + 1)
    rows: list[Row] = [row for batch in batches for row in batch]
    newest: dict[str, tuple[int, int]] = {}
    for key, count, total in sorted(emitted(tmp_path / "totals"), key=lambda row: row[1]):
        newest[key] = (count, total)
    assert newest == totals_of(rows)
    store = tmp_path / "store" / query / "RunningTotals"
    assert stored_totals(store) == totals_of(rows)
    assert len(emitted(tmp_path / "totals")) == sum(len(totals_of(batch)) for batch in batches)


def test_a_query_may_be_taken_back_and_a_copy_of_its_checkpoint_is_refused(
    server: Client, tmp_path: Path
) -> None:
    batches = [random_rows(seed, count=40, keys=15) for seed in range(4)]
    feed(tmp_path / "input", batches)
    query = server.run("run_totals", tmp_path, parallelism="2")
    checkpoint = tmp_path / f"totals{CHECKPOINT_SUFFIX}"
    # Back to batch 1, as "Restart from an earlier batch" says.
    for batch in (1, 2, 3):
        roll_back(checkpoint, batch)
    for batch in (2, 3):
        for name in (f"{batch}", f".{batch}.crc"):
            (checkpoint / "offsets" / name).unlink(missing_ok=True)
    shutil.rmtree(tmp_path / "totals")
    server.run("run_totals", tmp_path, parallelism="2")
    rows: list[Row] = [row for batch in batches for row in batch]
    store = tmp_path / "store" / query / "RunningTotals"
    assert stored_totals(store) == totals_of(rows)
    staging = tmp_path / "staging"
    shutil.copytree(checkpoint, staging / checkpoint.name)
    for name in ("input", "store"):
        (staging / name).symlink_to(tmp_path / name)
    with pytest.raises(AssertionError, match="StoreOfOtherCheckpointError"):
        server.run("run_totals", staging, parallelism="2")


def test_an_existing_job_emits_what_it_emits_on_spark(server: Client, tmp_path: Path) -> None:
    feed(tmp_path / "input", IN_EVENT_TIME)
    for enabled in (False, True):
        server.run("run_existing", tmp_path, enabled=enabled)
    on_cowstate = emitted(tmp_path / "existing-True")
    assert on_cowstate == emitted(tmp_path / "existing-False")
    assert len(on_cowstate) > 8


def test_whole_arrow_batches_are_handled(server: Client, tmp_path: Path) -> None:
    feed(tmp_path / "input", [[("a", 1), ("b", 2)], [("a", 3)]])
    server.run("run_in_arrow", tmp_path)
    assert emitted(tmp_path / "arrow") == [("a", 1, 1), ("a", 2, 4), ("b", 1, 2)]


def test_operators_behind_a_view_are_numbered(server: Client, tmp_path: Path) -> None:
    feed(tmp_path / "input", [[("a", 1), ("b", 2)], [("a", 3)]])
    assert server.run("through_a_view", tmp_path) == ["operator-0", "operator-1"]
    assert emitted(tmp_path / "view") == [("a", 1, 1, 1), ("a", 5, 1, 5), ("b", 2, 1, 2)]


def test_metrics_have_operators_and_aggregations(server: Client, tmp_path: Path) -> None:
    feed(tmp_path / "input", [[("a", 1), ("b", 2)], [("a", 3)]])
    samples = server.run("metrics", tmp_path)
    rows = {operator: value for name, operator, value in samples if name == "cowstate_state_rows"}
    assert rows == {"0-totals": 2, "0-stateStoreSave": 2}
    read = [value for name, _, value in samples if name == "cowstate_query_input_rows_total"]
    assert read == [3, 3]


def test_timers_fire_without_rows(server: Client, tmp_path: Path) -> None:
    feed(tmp_path / "input", [[("a", 1), ("b", 2)]])
    assert server.run("in_processing_time", tmp_path, keys=2) == [
        ["a", -1, 1],
        ["a", 1, 1],
        ["b", -1, 2],
        ["b", 1, 2],
    ]
    # Connect knows which epochs must exist, from the two sources, one of them the clock.
    shutil.rmtree(tmp_path / "store")
    feed(tmp_path / "input", [[("c", 1)]], first=1)
    with pytest.raises(AssertionError, match="holds no state of the epochs before"):
        server.run("in_processing_time", tmp_path, keys=3)


def test_progress_has_the_operators_wherever_a_client_sees_it(
    server: Client, tmp_path: Path
) -> None:
    feed(tmp_path / "input", [[("a", 1), ("b", 2)], [("c", 3)]])
    with client_of(server.url, tmp_path) as unpatched:
        given = unpatched.run("progress", tmp_path)
    kind, message = given.pop("refused")
    assert kind.startswith("ConfigurationError")
    assert "has no operator of cowstate" in message
    assert given == {
        # In the order of the plan. With an unknown plan, the order by name would be the reverse.
        "heard": {"0": ["operator-1", "totals"], "1": ["operator-1", "totals"]},
        "last": [["operator-1", ANY], ["totals", 3]],
        "json": ["operator-1", "totals"],
        "recent": [2, 2],
        "told": [["operator-1", 1, ANY, 2], ["totals", 1, 3, 2]],
        "jobs, of plain": [1, 0],
        "plain, disabled": [0, 0],
    }


def test_a_module_of_the_client_is_sent(server: Client, tmp_path: Path) -> None:
    feed(tmp_path / "input", [[("a", 1)]])
    server.run("with_artifact", tmp_path)
    assert emitted(tmp_path / "sent") == [("a", 1, 1)]


def test_an_initial_state_is_handled_once(server: Client, tmp_path: Path) -> None:
    feed(tmp_path / "input", [[("a", 1), ("c", 2)], [("a", 5), ("only here", 6)]])
    server.run("with_initial_state", tmp_path)
    assert emitted(tmp_path / "initial") == [
        ("a", 21, 1101),
        ("a", 22, 1106),
        ("c", 1, 2),
        ("only here", 11, 11),
    ]


def test_broadcast_rows_reach_every_subtask(server: Client, tmp_path: Path) -> None:
    feed(tmp_path / "limits", [[("NO", 100)]])
    feed(tmp_path / "payments", [[(f"card{number}", 90 + number) for number in range(20)]])
    server.run("with_broadcast", tmp_path)
    assert emitted(tmp_path / "alerts") == sorted(
        ((f"card{number}", "NO", 90 + number, 100, 1) for number in range(11, 20)), key=repr
    )


def test_keys_of_all_forms_are_what_they_are_in_classic_spark(
    server: Client, tmp_path: Path
) -> None:
    plain = [["a", 2, 4], ["b", 1, 2]]
    assert server.run("keys", tmp_path) == {
        **dict.fromkeys(("dotted", "case", "qualified", "field", "repeated"), plain),
        "upper": [["A", 2, 4], ["B", 1, 2]],
    }


def test_what_cannot_run_runs_on_spark_if_the_session_allows_it(
    server: Client, tmp_path: Path
) -> None:
    warned, is_on_spark = server.run("on_spark_instead", tmp_path)
    assert "transformWithState of Sums runs on Spark and not on cowstate: key column" in warned
    assert is_on_spark


def test_what_cannot_work_is_an_error_at_once_with_the_way_out(
    server: Client, tmp_path: Path
) -> None:
    feed(tmp_path / "input", [[("a", 1)]])
    refused = server.run("refusals", tmp_path)
    for name, kind, message in (
        ("foreachBatch", "UnsupportedOperationError", "Write the stream with a sink"),
        ("watermarks", "UnsupportedOperationError", "call withWatermark once"),
        ("behind an aggregation", "UnsupportedOperationError", "Aggregate in the processor"),
        ("no watermark", "ConfigurationError", "needs a watermark"),
        ("output column", "AnalysisException", "EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE"),
        ("no store", "ConfigurationError", "spark.cowstate.store is not set"),
        ("relative store", "ConfigurationError", "an absolute path of the server"),
        ("bad store", "StoreAccessError", "cannot use the store file:///proc/nothing"),
        ("restoreFrom", "ConfigurationError", "neither this nor RunningTotals below it"),
        ("state", "UnsupportedOperationError", '/operator-0"), with option "stateVarName"'),
        ("metadata", "UnsupportedOperationError", 'spark.read.format("cowstate").load("/'),
        ("state of Spark", "ConfigurationError", "cowstate adopt"),
        ("configure", "ConfigurationError", "start the server with --jars"),
    ):
        kinds, told = refused.pop(name)
        assert kind in kinds.split(","), (name, kinds, told)
        assert message in told
    assert refused == {}


def test_tables_are_read_and_written_without_the_jar(server: Client, tmp_path: Path) -> None:
    feed(tmp_path / "input", [[("a", 3)], [("c", 4)]])
    assert server.run("tables", tmp_path) == [["a", 3], ["b", 2], ["c", 4]]
    assert ("a", "update_postimage") in emitted(tmp_path / "changes")


def test_a_configured_session_has_the_provider_tables_and_update_mode(
    own_server: Client, tmp_path: Path
) -> None:
    feed(tmp_path / "input", [[("a", 1), ("b", 2)], [("a", 3)]])
    given = own_server.run("configured", tmp_path)
    assert given["table"] == [["a", 2], ["b", 1]]
    assert ".arrow" in given["state"]
    assert given["enabled"]
    assert given["sockets"] == "true"
    assert given["cores"] == [given["cores of the server"]] * 2
    assert "partitionBy is not for streams" in given["partitions"][1]
    assert ("a", "update_postimage") in emitted(tmp_path / "changes")
