"""A store of the provider with random damage gives right reads or an error.

The store has changelogs, merged files and snapshots, in a checkpoint or in an object store. Files
are flipped, cut, emptied and deleted. Then every retained version is as before, or reading the
version fails with a condition of loading. If the newest version can still be read, it can also be
read after more batches, cleaning and a restart.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.provider.provider_jvm import START, ProviderJvm, WordValue, shown

pytestmark = pytest.mark.spark

KEYS = 7000
BATCHES = 90
RETAINED = 4
SETTINGS = f"stateStore.minDeltasForSnapshot=1 minBatchesToRetain={RETAINED}"
FAILED = "error CANNOT_LOAD_STATE_STORE."
State = dict[int, WordValue]


@dataclass(frozen=True)
class Harm:
    """Damage to one file: `place` is the index among the store's files by name."""

    place: int
    how: Literal["flip", "cut", "empty", "delete"]
    where: float

    def do(self, files: list[Path]) -> None:
        file = files[self.place % len(files)]
        if not file.exists():
            return
        data = bytearray(file.read_bytes())
        at = int(len(data) * self.where)
        match self.how:
            case "delete":
                file.unlink()
            case "flip" if data:
                data[at] ^= 1
                file.write_bytes(data)
            case "cut" | "flip":
                file.write_bytes(data[:at])
            case "empty":
                file.write_bytes(b"")


harms = st.builds(
    Harm,
    st.integers(0, 10_000),
    st.sampled_from(["flip", "cut", "empty", "delete"]),
    st.floats(0, 1, exclude_max=True),
)


@dataclass(frozen=True)
class Store:
    """A provider store: the folder of its checkpoint and of its files, and its states by
    version."""

    folder: Path
    is_in_checkpoint: bool
    states: list[State]

    @property
    def start(self) -> str:
        """The line of a script that starts a provider."""
        setting = f" stateStore.cowstate.store={self.folder / 'store'}"
        return f"{START} {SETTINGS}{'' if self.is_in_checkpoint else setting}"

    @property
    def files(self) -> list[Path]:
        places = "checkpoint/state" if self.is_in_checkpoint else "store/*/state"
        return sorted(self.folder.glob(f"{places}/0/0/*.arrow"))

    def run(self, provider_jvm: ProviderJvm, lines: list[str]) -> list[str]:
        root = self.folder / "checkpoint" / "state"
        return provider_jvm.results("ProviderScript", root, *lines)

    def copy_from(self, intact: Path) -> None:
        """Restore the intact files into this folder. A copy in another folder may not write to the
        store."""
        shutil.rmtree(self.folder)
        shutil.copytree(intact, self.folder)


@pytest.fixture(scope="module", params=[True, False], ids=["a checkpoint", "a store"])
def store(
    request: pytest.FixtureRequest,
    provider_jvm: ProviderJvm,
    tmp_path_factory: pytest.TempPathFactory,
) -> Store:
    """A store with two snapshots, the second forced between others, and a merged file."""
    folder = tmp_path_factory.mktemp("store")
    (folder / "checkpoint").mkdir()
    (folder / "checkpoint" / "metadata").write_text('{"id":"query"}')
    states: list[State] = [{}, {number: WordValue(20, number) for number in range(KEYS)}]
    store = Store(folder, request.param, states)
    puts = [f"put {number} {value}" for number, value in states[1].items()]
    lines = [store.start, "begin", *puts, "commit", "write-if-due"]
    for version in range(2, BATCHES + 2):
        value = WordValue(1 + version % 3, version)
        begin = "begin-forced" if version == 5 else "begin"
        # Maintenance writes a forced snapshot to an object store.
        end = ["write-if-due"] if version == 5 else []
        lines += [
            begin,
            f"remove {version}",
            f"put {version * 7 % KEYS},9999 {value}",
            "commit",
            *end,
        ]
        state = {n: v for n, v in states[-1].items() if n != version}
        states.append(state | {version * 7 % KEYS: value, 9999: value})
    lines += ["write-if-due", "begin", "put 1 1:1", "commit", "write-if-due"]
    states.append(states[-1] | {1: WordValue(1, 1)})
    store.run(provider_jvm, lines)
    kinds = [file.name.split(".")[1] for file in store.files]
    assert (kinds.count("snapshot"), kinds.count("merged")) == (2, 1)
    return store


def test_what_is_read_after_damage_is_right_or_an_error(
    provider_jvm: ProviderJvm, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> None:
    newest = len(store.states) - 1
    retained = range(newest - RETAINED, newest + 1)
    seen = {"right": 0, "failed": 0}
    intact = tmp_path_factory.mktemp("intact")
    shutil.copytree(store.folder, intact, dirs_exist_ok=True)

    def read() -> list[str]:
        """Read each retained version; the answer is right or failed."""
        lines = [line for version in retained for line in (store.start, f"entries {version}")]
        shown_entries = store.run(provider_jvm, lines)[1::2]
        for version, entries in zip(retained, shown_entries, strict=True):
            right = entries == shown(store.states[version])
            assert right or entries.startswith(FAILED), (version, entries[:200])
        return ["failed" if entries.startswith(FAILED) else "right" for entries in shown_entries]

    @settings(max_examples=12)
    @given(st.lists(harms, min_size=1, max_size=40))
    @example([Harm(0, "flip", 0.5)])
    @example([Harm(place, "delete", 0.0) for place in range(2 * BATCHES)])
    def agree(harms: list[Harm]) -> None:
        store.copy_from(intact)
        files = store.files
        for harm in harms:
            harm.do(files)
        outcomes = read()
        for outcome in outcomes:
            seen[outcome] += 1
        if outcomes[-1] == "right":
            more = ["begin", "put 2 1:2", "commit"] * (RETAINED + 2)
            more[0] = f"begin {newest}"
            last = newest + RETAINED + 2
            lines = [store.start, "clean", *more, "write-if-due", "clean"]
            expected = store.states[-1] | {2: WordValue(1, 2)}
            lines += [store.start, f"entries {last}"]
            assert store.run(provider_jvm, lines)[-1] == shown(expected)

    agree()
    assert min(seen.values()) > 0
