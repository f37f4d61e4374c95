"""Operator state is dealt out right at changes of parallelism: all pairs up to 8, with 11 and
16."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_state.operator_state.operator_state_backend import OperatorStateBackend

PARALLELISMS = (*range(1, 9), 11, 16)
MOST_SUBTASKS = 8
ITEM = pa.schema([("item", pa.int64()), ("text", pa.string())])
KEY = pa.schema([("key", pa.string())])
Item = tuple[int, str]


def snapshots_of(lists: list[list[Item]], options: dict[str, Item]) -> list[bytes]:
    """Build one subtask's snapshot for each list. The union state holds the length of the list."""
    snapshots = []
    for subtask, items in enumerate(lists):
        backend = OperatorStateBackend()
        broadcast = backend.broadcast_state("options", KEY, ITEM)
        for key, value in options.items():
            broadcast.put((key,), value)
        backend.union_state("lengths", ITEM).add((len(items), f"of {subtask}"))
        backend.list_state("items", ITEM).update(items)
        snapshots.append(backend.snapshot().to_bytes())
    return snapshots


def restored(snapshots: list[bytes], parallelism: int) -> list[OperatorStateBackend]:
    return [
        OperatorStateBackend.restore(snapshots, subtask, parallelism)
        for subtask in range(parallelism)
    ]


def items_of(backend: OperatorStateBackend) -> list[tuple[int, str]]:
    return [(item, text) for item, text in backend.list_state("items", ITEM).get()]


def check(
    snapshots: list[bytes], lists: list[list[Item]], parallelism: int
) -> list[OperatorStateBackend]:
    """Restore `lists` at another parallelism, check the backends, and return the backends."""
    backends = restored(snapshots, parallelism)
    dealt = [items_of(backend) for backend in backends]
    if parallelism == len(lists):
        assert dealt == lists
    else:
        in_order = [item for items in lists for item in items]
        hands: list[list[Item]] = [[] for _ in range(parallelism)]
        for place, item in enumerate(in_order):
            hands[place % parallelism].append(item)
        assert dealt == hands
        fewest, with_one_more = divmod(len(in_order), parallelism)
        assert [len(hand) - fewest for hand in dealt] == [
            int(subtask < with_one_more) for subtask in range(parallelism)
        ]
    everyones = [(len(items), f"of {subtask}") for subtask, items in enumerate(lists)]
    for backend in backends:
        assert backend.union_state("lengths", ITEM).get() == everyones
    return backends


@pytest.mark.parametrize("before", PARALLELISMS)
def test_from_any_parallelism_to_any_other_nothing_is_lost_or_doubled(before: int) -> None:
    lists = [[(i, f"{s}") for i in range((5 * s) % 7)] for s in range(before)]
    options = {"a": (1, "x"), "b": (2, "y")}
    snapshots = snapshots_of(lists, options)
    for after in PARALLELISMS:
        for backend in check(snapshots, lists, after):
            entries = backend.broadcast_state("options", KEY, ITEM).items()
            assert {key: value for (key,), value in entries} == options


items = st.tuples(st.integers(-(1 << 63), (1 << 63) - 1), st.text(max_size=5))
subtasks = st.integers(1, MOST_SUBTASKS)


@settings(max_examples=100)
@given(
    st.lists(st.lists(items, max_size=9), min_size=1, max_size=MOST_SUBTASKS),
    st.lists(subtasks, max_size=4),
)
def test_over_several_changes_every_item_stays_on_exactly_one_subtask(
    lists: list[list[Item]], parallelisms: list[int]
) -> None:
    all_items = Counter(item for items in lists for item in items)
    options = {"k": (7, "")}
    for parallelism in parallelisms:
        snapshots = snapshots_of(lists, options)
        lists = [items_of(backend) for backend in check(snapshots, lists, parallelism)]
        assert Counter(item for items in lists for item in items) == all_items
