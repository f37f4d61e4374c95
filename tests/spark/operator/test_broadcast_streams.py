"""Payments are judged by rules that change in a broadcast stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import SessionNotSameException
from pyspark.sql import DataFrame, Row, SparkSession

import spark_state
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from spark_state.errors import ConfigurationError
from tests.support.applications.streams import Stream
from tests.support.processors.broadcast_rules import ALERTS, Judges
from tests.support.processors.processors import RunningTotals
from tests.support.provider.provider_jobs import configured

pytestmark = pytest.mark.spark

PAYMENT = "card string, country string, amount bigint"
RULE = "country string, version bigint, most bigint"
Payment = tuple[str, str, int]
Rule = tuple[str, int, int]
Alert = tuple[str, str, int, int, int]


class Payments(Stream):
    """A query over files of payments and of rules; a run takes all new files in one batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        self.batches: list[tuple[list[Payment], list[Rule]]] = []
        for name in ("payments", "rules"):
            (folder / name).mkdir()

    def rows_of(self, name: str, schema: str) -> DataFrame:
        return self.spark.readStream.schema(schema).parquet(str(self.folder / name))

    def judged(self, **options: Any) -> DataFrame:
        """The operator on payments grouped by card, or with these arguments instead."""
        arguments: dict[str, Any] = {
            "grouped": self.rows_of("payments", PAYMENT).groupBy("card"),
            "processor": Judges(),
            "output_schema": ALERTS,
            "output_mode": "append",
            "time_mode": "None",
            "broadcast": {"limits": self.rows_of("rules", RULE)},
        }
        return spark_state.transform_with_state(**arguments | options)

    def batch(
        self, payments: list[Payment], rules: list[Rule], parallelism: int = 3, **options: Any
    ) -> None:
        self.batches.append((payments, rules))
        for name, rows, schema in (("payments", payments, PAYMENT), ("rules", rules, RULE)):
            if rows:
                names = [field.split()[0] for field in schema.split(", ")]
                columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
                file = self.folder / name / f"{len(self.batches)}.parquet"
                pq.write_table(pa.table(columns), file)
        with configured(self.spark, {"spark.cowstate.parallelism": str(parallelism)}):
            self.run(self.judged(**options), output_mode="append")

    def alerts(self) -> list[Alert]:
        files = sorted((self.folder / "output").iterdir())
        return sorted(tuple(row.values()) for f in files for row in pq.read_table(f).to_pylist())

    def expected(self) -> list[Alert]:
        """Compute the alerts by hand, from batch to batch. The order of a card's payments in a
        batch is unknown, so a batch has one payment of a card."""
        limits: dict[str, tuple[int, int]] = {}
        counts: Counter[str] = Counter()
        alerts = []
        for payments, rules in self.batches:
            for country, version, most in rules:
                limits[country] = max((version, most), limits.get(country, (0, 0)))
            for card, country, amount in payments:
                counts[card] += 1
                if country in limits and amount > limits[country][1]:
                    alerts.append((card, country, amount, limits[country][1], counts[card]))
        return sorted(alerts)

    def broadcast_checksums(self) -> list[tuple[tuple[str, str], ...]]:
        """The checksums of each subtask's broadcast states in the newest epoch."""
        store = open_object_store(self.store().as_uri())
        newest = CompletedCheckpointStore(store).latest_before(2**62)
        assert newest is not None
        states = [barrier.operator_state for barrier in newest.barriers]
        return [() if state is None else state.broadcast for state in states]


@pytest.fixture
def payments(spark: SparkSession, tmp_path: Path) -> Payments:
    return Payments(spark, tmp_path)


def payments_of(batch: int) -> list[Payment]:
    countries = ("de", "fr", "it")
    return [(f"card{n}", countries[(n + batch) % 3], 10 * n) for n in range(batch % 3, 20)]


def test_payments_are_judged_by_the_newest_rules_over_restarts_at_any_parallelism(
    payments: Payments,
) -> None:
    rules: list[list[Rule]] = [
        [("de", 1, 100), ("fr", 1, 50)],
        [],
        [("de", 3, 20), ("de", 2, 500), ("it", 1, 150)],
        [("fr", 2, 1000)],
    ]
    for number, (changed, parallelism) in enumerate(zip(rules, (3, 3, 5, 2), strict=True)):
        batch = [] if number == 3 else payments_of(number)
        payments.batch(batch, changed, parallelism, time_mode="ProcessingTime")
        checksums = payments.broadcast_checksums()
        assert len(checksums) == parallelism
        assert len(set(checksums)) == 1
        assert [name for name, _ in checksums[0]] == ["limits"]
    payments.batch(payments_of(7), [], 4, time_mode="ProcessingTime")
    assert payments.alerts() == payments.expected()
    assert len(payments.alerts()) > 10


class JudgesFrames(Judges):
    """Judges in the pandas form."""

    def handleBroadcastRows(self, name: str, rows: Iterator[Any], state: Any) -> None:
        as_rows = (Row(**row) for frame in rows for row in frame.to_dict("records"))
        super().handleBroadcastRows(name, as_rows, state)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas as pd

        as_rows = (Row(**row) for frame in rows for row in frame.to_dict("records"))
        alerts = [row.asDict() for row in super().handleInputRows(key, as_rows, timerValues)]
        if alerts:
            yield pd.DataFrame(alerts)


def test_the_pandas_form_gets_data_frames(
    payments: Payments, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged(**_: Any) -> DataFrame:
        return spark_state.transform_with_state_in_pandas(
            payments.rows_of("payments", PAYMENT).groupBy("card"),
            JudgesFrames(),
            ALERTS,
            "append",
            "None",
            name="Judges",
            broadcast={"limits": payments.rows_of("rules", RULE)},
        )

    monkeypatch.setattr(payments, "judged", judged)
    payments.batch(payments_of(0), [("de", 1, 100), ("fr", 1, 50)])
    payments.batch(payments_of(1), [("de", 2, 30)])
    assert payments.alerts() == payments.expected() != []


REFUSED: list[tuple[Callable[[Payments], dict[str, Any]], type[Exception], str]] = [
    (
        lambda p: {"broadcast": p.rows_of("rules", RULE)},
        ConfigurationError,
        "is a dict .* DataFrame",
    ),
    (lambda p: {"broadcast": {"limits": 1}}, ConfigurationError, "is a dict .* got {'limits': 1}"),
    (lambda p: {"broadcast": {7: p.rows_of("rules", RULE)}}, ConfigurationError, "got {7: Data"),
    (
        lambda p: {"broadcast": {"limits": p.spark.createDataFrame([("de", 1, 2)], RULE)}},
        ConfigurationError,
        "'limits' is a batch DataFrame",
    ),
    (
        lambda p: {"broadcast": {"limits": Payments.rows_of(_elsewhere(p), "rules", RULE)}},
        SessionNotSameException,
        "Both Datasets must belong to the same SparkSession",
    ),
    (
        lambda p: {"broadcast": {"limits": p.rows_of("rules", RULE).selectExpr("1 x", "2 x")}},
        ConfigurationError,
        "several columns called 'x'",
    ),
    (
        lambda p: {"processor": RunningTotals()},
        ConfigurationError,
        "RunningTotals has no method handleBroadcastRows",
    ),
    (
        lambda p: {"grouped": p.spark.createDataFrame([("a", "de", 1)], PAYMENT).groupBy("card")},
        ConfigurationError,
        "needs an operator on a streaming DataFrame",
    ),
]


def _elsewhere(payments: Payments) -> Any:
    elsewhere = object.__new__(Payments)
    elsewhere.spark, elsewhere.folder = payments.spark.newSession(), payments.folder
    return elsewhere


@pytest.mark.parametrize(("options", "error", "message"), REFUSED)
def test_what_cannot_be_broadcast_is_refused_when_the_query_is_planned(
    payments: Payments,
    options: Callable[[Payments], dict[str, Any]],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        payments.judged(**options(payments))


def test_it_does_not_fall_back_to_spark_which_has_no_broadcast_streams(payments: Payments) -> None:
    maps = payments.rows_of("payments", PAYMENT).selectExpr("map(card, 1) m").groupBy("m")
    with (
        configured(payments.spark, {"spark.cowstate.fallback": "spark"}),
        pytest.raises(spark_state.KeyGroupError),
    ):
        payments.judged(grouped=maps)
