"""Random damage over all files of a store on the provider: what is read is right, or an error.

The store has changelogs, merged files and snapshots. Files are flipped, cut, emptied and deleted.
Then every retained version is as it was, or reading it fails with a condition of loading; and the
newest one, if it is still there, is there after more batches, cleaning and a restart.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.provider_jvm import ProviderJvm, Value, provider_jvm, shown

__all__ = ["provider_jvm"]
pytestmark = pytest.mark.spark

KEYS = 2500
BATCHES = 90
RETAINED = 4
# The rows of scripts are bytes that tell their seed, not values of a schema.
START = " ".join(
    [
        "start",
        "stateStore.coordinatorReportSnapshotUploadLag=false",
        "stateStore.formatValidation.enabled=false",
        "stateStore.minDeltasForSnapshot=1",
        f"minBatchesToRetain={RETAINED}",
    ]
)
FAILED = "error CANNOT_LOAD_STATE_STORE."
State = dict[int, Value]


@dataclass(frozen=True)
class Harm:
    """What happens to the file at a place among those of the store, by name."""

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
    """Where it is, and its states by version."""

    folder: Path
    states: list[State]


def run(provider_jvm: ProviderJvm, root: Path, lines: list[str]) -> list[str]:
    results: str = provider_jvm.new("ProviderScript", str(root)).run("\n".join(lines))
    return results.split("\n")


@pytest.fixture(scope="module")
def store(provider_jvm: ProviderJvm, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Two snapshots, one of them forced on the way, and a merged file."""
    folder = tmp_path_factory.mktemp("store")
    states: list[State] = [{}, {number: Value(20, number) for number in range(KEYS)}]
    puts = [f"put {number} {value}" for number, value in states[1].items()]
    lines = [START, "begin", *puts, "commit", "maintain"]
    for version in range(2, BATCHES + 2):
        value = Value(1 + version % 3, version)
        begin = "begin-forced" if version == 5 else "begin"
        lines += [begin, f"remove {version}", f"put {version * 7 % KEYS},9999 {value}", "commit"]
        state = {n: v for n, v in states[-1].items() if n != version}
        states.append(state | {version * 7 % KEYS: value, 9999: value})
    lines += ["write-if-due", "begin", "put 1 1:1", "commit", "write-if-due"]
    states.append(states[-1] | {1: Value(1, 1)})
    run(provider_jvm, folder, lines)
    kinds = [file.name.split(".")[1] for file in folder.glob("0/0/*.arrow")]
    assert (kinds.count("snapshot"), kinds.count("merged")) == (2, 1)
    return Store(folder, states)


def test_what_is_read_after_damage_is_right_or_an_error(
    provider_jvm: ProviderJvm, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> None:
    newest = len(store.states) - 1
    retained = range(newest - RETAINED, newest + 1)
    seen = {"right": 0, "failed": 0}

    def read(root: Path) -> list[str]:
        """What each retained version is: right, or failed."""
        lines = [line for version in retained for line in (START, f"entries {version}")]
        shown_entries = run(provider_jvm, root, lines)[1::2]
        for version, entries in zip(retained, shown_entries, strict=True):
            right = entries == shown(store.states[version])
            assert right or entries.startswith(FAILED), (version, entries[:200])
        return ["failed" if entries.startswith(FAILED) else "right" for entries in shown_entries]

    @settings(max_examples=12)
    @given(st.lists(harms, min_size=1, max_size=40))
    @example([Harm(0, "flip", 0.5)])
    @example([Harm(place, "delete", 0.0) for place in range(2 * BATCHES)])
    def agree(harms: list[Harm]) -> None:
        root = tmp_path_factory.mktemp("damaged") / "store"
        shutil.copytree(store.folder, root)
        files = sorted(root.glob("0/0/*.arrow"))
        for harm in harms:
            harm.do(files)
        outcomes = read(root)
        for outcome in outcomes:
            seen[outcome] += 1
        if outcomes[-1] == "right":
            more = ["begin", "put 2 1:2", "commit"] * (RETAINED + 2)
            more[0] = f"begin {newest}"
            last = newest + RETAINED + 2
            lines = [START, "clean", *more, "clean", "maintain", START, f"entries {last}"]
            expected = store.states[-1] | {2: Value(1, 2)}
            assert run(provider_jvm, root, lines)[-1] == shown(expected)
        shutil.rmtree(root)

    agree()
    assert min(seen.values()) > 0
