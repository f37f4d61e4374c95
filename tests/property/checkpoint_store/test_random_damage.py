"""After random damage, each question gets a right answer, an honest older answer, or an error.

The damage hits objects of a table, of an operator's store and of a provider's checkpoint. Errors
are errors of cowstate. An older answer says its version, and is only allowed if an object was
deleted. An object that is cut, emptied or changed did exist, so no answer may ignore the object.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_store.errors import CheckpointStoreError
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.open_history import history_in
from checkpoint_store.provider.provider_checkpoint import (
    committed_batches,
    read_changes,
    read_state,
)
from checkpoint_store.state_reader import StateReader
from tests.support.examples import examples
from tests.support.operators.asked_operator import OPERATOR
from tests.support.stores.damage import (
    HOWS,
    AskedStore,
    Damage,
    DamagedStore,
    answer_or_error,
    sorted_rows,
)
from tests.support.stores.fake_object_store import DictObjectStore
from tests.support.tables.asked_table import TABLE

pytestmark = pytest.mark.usefixtures("without_threads")

MOST_QUESTIONS = 6
_Q = TypeVar("_Q")
EXAMPLES = examples(50)
FIXTURES = Path(__file__).parents[2] / "compatibility" / "version_1" / "provider"
PROVIDER_CHECKPOINTS = sorted(FIXTURES.iterdir())


@st.composite
def damages(draw: st.DrawFn, names: Sequence[str]) -> tuple[Damage, ...]:
    """Draw damage to one or two objects."""
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    places = st.floats(0, 1)
    return tuple(Damage(name, draw(st.sampled_from(HOWS)), draw(places)) for name in chosen)


def questions(names: Sequence[_Q]) -> st.SearchStrategy[list[_Q]]:
    return st.lists(st.sampled_from(names), min_size=1, max_size=MOST_QUESTIONS, unique=True)


@pytest.mark.parametrize("asked", [TABLE, OPERATOR], ids=["table", "operator"])
@EXAMPLES
@given(st.data())
def test_a_damaged_store_never_answers_wrongly(asked: AskedStore, data: st.DataObject) -> None:
    drawn = data.draw(damages(sorted(asked.intact.objects)))
    is_gone = any(damage.how == "delete" for damage in drawn)
    of_compaction = any(damage.name.startswith("compactions/") for damage in drawn)
    for question in data.draw(questions(sorted(asked.questions))):
        answer = asked.answer(question, *drawn)
        if isinstance(answer, CheckpointStoreError) or answer == asked.right_answers[question]:
            continue
        assert is_gone or (of_compaction and question == "sweep"), (question, answer)
        assert asked.is_older(question, answer), (question, answer)


@cache
def provider_checkpoint(path: Path) -> DictObjectStore:
    """Read the files of a checkpoint that Spark and the provider wrote."""
    objects = DictObjectStore()
    for file in sorted(path.rglob("*")):
        if file.is_file():
            objects.put(str(file.relative_to(path)), file.read_bytes())
    return objects


def provider_answer(question: tuple[str, int], store: DamagedStore) -> Any:
    """Answer with rows by column position. Names of columns and fields may be wrong: Spark's schema
    file has no checksum, and a query may have renamed a column since."""
    what, batch = question
    read = {
        "state": read_state,
        "changes": read_changes,
        "state of a reader": lambda objects, batch: reader_of(objects).read(batch),
        "changes of a reader": lambda objects, batch: reader_of(objects).changes(
            batch - 1 if batch else None, batch
        ),
    }[what]
    return answer_or_error(lambda store: nameless(sorted_rows(read(store.objects, batch))), store)


def nameless(value: Any) -> Any:
    """The value, with struct fields by position instead of name."""
    if isinstance(value, list | tuple):
        return [nameless(item) for item in value]
    return nameless(list(value.values())) if isinstance(value, dict) else value


def reader_of(objects: ObjectStore) -> StateReader:
    return StateReader(history_in(objects))


@cache
def right_provider_answers(path: Path) -> dict[tuple[str, int], Any]:
    intact = provider_checkpoint(path)
    kinds = ("state", "changes", "state of a reader", "changes of a reader")
    asked = [(what, batch) for what in kinds for batch in committed_batches(intact)]
    answers = {question: provider_answer(question, DamagedStore(intact, ())) for question in asked}
    assert not [a for a in answers.values() if isinstance(a, CheckpointStoreError)]
    return answers


@pytest.mark.parametrize("path", PROVIDER_CHECKPOINTS, ids=lambda path: path.name)
@EXAMPLES
@given(st.data())
def test_a_damaged_checkpoint_of_the_provider_never_answers_wrongly(
    path: Path, data: st.DataObject
) -> None:
    intact, right = provider_checkpoint(path), right_provider_answers(path)
    drawn = data.draw(damages(sorted(intact.objects)))
    for question in data.draw(questions(sorted(right))):
        answer = provider_answer(question, DamagedStore(intact, drawn))
        assert isinstance(answer, CheckpointStoreError) or answer == right[question], question
