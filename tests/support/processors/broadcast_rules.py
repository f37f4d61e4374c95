"""A processor that checks payments against changing rules from a stream of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row

from tests.support.processors.processors import Processor

ALERTS = "card string, country string, amount bigint, most bigint, payments bigint"


class Judges(Processor):
    """Processor that emits the payments of a card above the limit of the payment's country, with
    the number of the card's payments so far."""

    def init(self, handle: Any) -> None:
        self._payments = handle.getValueState("payments", "n bigint")
        self._limits = handle.getBroadcastState(
            "limits", "country string", "version bigint, most bigint"
        )

    def handleBroadcastRows(self, name: str, rows: Iterator[Row], state: Any) -> None:
        assert name == "limits"
        for row in rows:
            held = state["limits"].getValue((row.country,))
            if held is None or held.version < row.version:
                state["limits"].updateValue((row.country,), (row.version, row.most))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        payments = self._payments.get()[0] if self._payments.exists() else 0
        for row in rows:
            payments += 1
            limit = self._limits.getValue((row.country,))
            if limit is not None and row.amount > limit.most:
                yield Row(
                    card=key[0],
                    country=row.country,
                    amount=row.amount,
                    most=limit.most,
                    payments=payments,
                )
        self._payments.update((payments,))
