"""Random damage to the objects of a table, of an operator's store and of a provider's checkpoint.

Whatever is asked afterwards has its right answer, or an older one that says so, or is refused with
an error of ours. An older one is only given when an object is gone: what is cut, emptied or changed
was there, and nobody may go on as if it had not been.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_store.errors import CheckpointStoreError
from checkpoint_store.provider_checkpoint import committed_batches, read_changes, read_state
from tests.support import asked_operator, asked_table
from tests.support.damage import HOWS, Damage, DamagedStore, answer_or_error, sorted_rows
from tests.support.fake_object_store import DictObjectStore

MOST_QUESTIONS = 6
EXAMPLES = settings(max_examples=150)
FIXTURES = Path(__file__).parents[1] / "compatibility" / "provider_checkpoints"
PROVIDER_CHECKPOINTS = sorted(FIXTURES.glob("*/*"))


@st.composite
def damages(draw: st.DrawFn, names: Sequence[str]) -> tuple[Damage, ...]:
    """One or two objects, each damaged somewhere."""
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    places = st.floats(0, 1)
    return tuple(Damage(one, draw(st.sampled_from(HOWS)), draw(places)) for one in chosen)


def questions(names: Sequence[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(names), min_size=1, max_size=MOST_QUESTIONS, unique=True)


def is_older(asked: ModuleType, question: str, found: Any) -> bool:
    """Whether an answer is that of an older version, and says so."""
    if question in ("retain", "sweep"):
        # What is gone is not known of, so what only it named is an orphan.
        return all(
            isinstance(state, str) or state == asked.state_at(version)
            for version, state in found.items()
        )
    if not isinstance(found, tuple) or found[0] >= asked.NEWEST:
        return False
    version, *_, rows = found
    if question.startswith("stream"):
        return bool(rows == asked.right_changes(int(question.split()[-1]), version))
    whole = question in ("newest", "changes from the beginning")
    return whole and bool(rows == asked.state_at(version))


@pytest.mark.parametrize("asked", [asked_table, asked_operator], ids=["table", "operator"])
@EXAMPLES
@given(st.data())
def test_a_damaged_store_never_answers_wrongly(asked: ModuleType, data: st.DataObject) -> None:
    intact, right = asked.written(), asked.right_answers()
    found_damages = data.draw(damages(sorted(intact.objects)))
    is_gone = any(one.how == "delete" for one in found_damages)
    of_compaction = any(one.name.startswith("compactions/") for one in found_damages)
    for question in data.draw(questions(sorted(asked.QUESTIONS))):
        found = asked.answer(question, DamagedStore(intact, found_damages))
        if isinstance(found, CheckpointStoreError) or found == right[question]:
            continue
        assert is_gone or (of_compaction and question == "sweep"), (question, found)
        assert is_older(asked, question, found), (question, found)


@cache
def provider_checkpoint(path: Path) -> DictObjectStore:
    """The files of a checkpoint that Spark and the provider wrote."""
    objects = DictObjectStore()
    for file in sorted(path.rglob("*")):
        if file.is_file():
            objects.put(str(file.relative_to(path)), file.read_bytes())
    return objects


def provider_answer(question: tuple[str, int], store: DamagedStore) -> Any:
    what, batch = question
    read = {"state": read_state, "changes": read_changes}[what]
    return answer_or_error(lambda store: sorted_rows(read(store.objects, batch)), store)


@cache
def right_provider_answers(path: Path) -> dict[tuple[str, int], Any]:
    intact = provider_checkpoint(path)
    asked = [(what, batch) for what in ("state", "changes") for batch in committed_batches(intact)]
    found = {question: provider_answer(question, DamagedStore(intact, ())) for question in asked}
    assert not [one for one in found.values() if isinstance(one, CheckpointStoreError)]
    return found


@pytest.mark.parametrize("path", PROVIDER_CHECKPOINTS, ids=lambda path: path.name)
@EXAMPLES
@given(st.data())
def test_a_damaged_checkpoint_of_the_provider_never_answers_wrongly(
    path: Path, data: st.DataObject
) -> None:
    intact, right = provider_checkpoint(path), right_provider_answers(path)
    found_damages = data.draw(damages(sorted(intact.objects)))
    for question in data.draw(st.lists(st.sampled_from(sorted(right)), min_size=1, unique=True)):
        found = provider_answer(question, DamagedStore(intact, found_damages))
        assert isinstance(found, CheckpointStoreError) or found == right[question], question
