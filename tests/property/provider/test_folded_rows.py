"""A fold of a state's files gives the rows that the provider restores.

The history is random, with puts, removals and snapshots. Each row comes once, however little memory
there is for the changed keys.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.provider.provider_jvm import START, ProviderJvm, Script, WordValue, shown

pytestmark = pytest.mark.spark

KEYS = 200
SNAPSHOTS = f"{START} stateStore.minDeltasForSnapshot=2"
PLENTY = 1 << 20
LITTLE = 21_000
State = dict[int, WordValue]
ValueChange = tuple[int, WordValue | None]

changes = st.lists(
    st.tuples(
        st.integers(0, KEYS - 1),
        st.one_of(st.none(), st.builds(WordValue, st.integers(1, 4), st.integers(0, 99))),
    ),
    max_size=80,
)
histories = st.lists(st.tuples(changes, st.booleans()), min_size=1, max_size=12)


def written(script: Script, history: list[tuple[list[ValueChange], bool]]) -> list[State]:
    """Add a history to the script, and return the states by version."""
    states: list[State] = [{}]
    script.add(SNAPSHOTS, "")
    for batch, maintains in history:
        state = dict(states[-1])
        script.add("begin", "")
        for number, value in batch:
            script.add(f"remove {number}" if value is None else f"put {number} {value}", None)
            state.pop(number, None)
            if value is not None:
                state[number] = value
        script.add("commit", "")
        if maintains:
            script.add("maintain", None)
        states.append(state)
    return states


def folded(provider_jvm: ProviderJvm, folder: Path, version: int, memory: int) -> tuple[int, str]:
    """Fold a version. Return the number of parts into which the keys were cut, and the rows."""
    line: str = provider_jvm.new("FoldScript", str(folder)).run(f"{version} {memory}")
    parts, _, rows = line.partition(" ")
    return int(parts), rows


def test_they_are_the_rows_of_a_random_history(
    provider_jvm: ProviderJvm, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @examples(10)
    @given(histories)
    def agree(history: list[tuple[list[ValueChange], bool]]) -> None:
        folder = tmp_path_factory.mktemp("folded")
        script = Script()
        states = written(script, history)
        script.run_on(provider_jvm.new("ProviderScript", str(folder)))
        for version in {len(history), (len(history) + 1) // 2}:
            for memory in (PLENTY, LITTLE):
                _, rows = folded(provider_jvm, folder, version, memory)
                assert rows == shown(states[version])

    agree()


def test_keys_that_do_not_fit_the_memory_are_read_in_parts(
    provider_jvm: ProviderJvm, tmp_path: Path
) -> None:
    script = Script()
    state = {number: WordValue(3, number) for number in range(6_000)}
    many: list[ValueChange] = [*state.items()]
    changed: list[ValueChange] = [(number, WordValue(2, 7)) for number in range(0, 6_000, 2)]
    gone: list[ValueChange] = [(number, None) for number in range(0, 6_000, 5)]
    states = written(
        script, [(many, True), (many, False), (many, True), (changed, False), (gone, False)]
    )
    script.run_on(provider_jvm.new("ProviderScript", str(tmp_path)))
    assert [*tmp_path.glob("0/0/*.snapshot.arrow")]
    expected = shown(states[5])
    assert folded(provider_jvm, tmp_path, 5, 8 << 20) == (1, expected)
    parts, rows = folded(provider_jvm, tmp_path, 5, 64 << 10)
    assert rows == expected
    assert parts > 4
