"""A replaced `load` gives its answer the call's arguments and Spark's own read."""

from __future__ import annotations

from typing import Any

from spark_state.spark.stored.statestore_reads import answer_loads


class Reader:
    """A reader that notes all arguments, as PySpark's readers do."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}

    def format(self, source: str) -> None:
        self.told["format"] = source

    def options(self, **options: Any) -> None:
        self.told |= options

    def load(self, path: Any = None, schema: Any = None) -> Any:
        return ("of Spark", path, schema, self.told)


def test_the_answer_has_all_that_the_call_says_and_spark_s_own_read() -> None:
    def answer(reader: Any, path: Any, on_spark: Any) -> Any:
        return on_spark() if path is None else ("of cowstate", path, reader.told)

    for _ in range(2):
        answer_loads(Reader, answer)
    reader: Any = Reader()
    told = {"format": "statestore", "stateVarName": "n"}
    assert reader.load("/rows", format="statestore", stateVarName="n") == (
        *("of cowstate", "/rows"),
        told,
    )
    assert reader.load(schema="n int") == ("of Spark", None, "n int", told)
