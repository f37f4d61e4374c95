"""The names of the files of the state store provider, and what they say. Pure.

    <checkpoint>/state/<operator>/<partition>[/<store>]/
        <version>-<generation>-<unique>-<base>.changelog.arrow    what one batch changed
        <version>-<generation>-<unique>.snapshot.arrow            everything at the end of one

Batch n makes version n + 1. `unique` stands for the state that an attempt made; `base` is the
unique of the state that it started from, "0" for the empty one. Of two attempts of one version the
one of the higher generation counts, unless Spark's commit log names one (checkpoint format 2). A
state is restored along its lineage: from the version asked for, over the bases, to a snapshot or to
the empty state. `StateFileName.scala` has the same rules for the provider itself.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass

_UNIQUE = "[0-9a-f]{16}"
_NAME = re.compile(
    rf"(?P<version>[0-9]{{19}})-(?P<generation>[0-9]{{10}})-(?P<unique>{_UNIQUE})"
    rf"(-(?P<base>0|{_UNIQUE})\.changelog|\.snapshot)\.arrow"
)
_FOREIGN = re.compile(r"(?P<version>[0-9]+)\.(?P<kind>delta|snapshot)")
_EMPTY_UNIQUE = "0"
# The base of the first version on top of files of Spark's own provider.
_ADOPTED_UNIQUE = "0000000000000adf"


@dataclass(frozen=True, slots=True)
class StateId:
    """A state of a store: its version, and which attempt's it is."""

    version: int
    unique: str


@dataclass(frozen=True, slots=True)
class ProviderFileName:
    """A changelog, or a snapshot, which has no base."""

    version: int
    generation: int
    unique: str
    base: str | None

    @property
    def state(self) -> StateId:
        """The state that the file ends in."""
        return StateId(self.version, self.unique)

    @property
    def kind(self) -> str:
        """As in the file's metadata."""
        return "snapshot" if self.base is None else "changelog"

    def __str__(self) -> str:
        start = f"{self.version:019d}-{self.generation:010d}-{self.unique}"
        return (
            f"{start}.snapshot.arrow"
            if self.base is None
            else f"{start}-{self.base}.changelog.arrow"
        )


@dataclass(frozen=True, slots=True)
class Lineage:
    """The files that a state is restored from, in the order in which they apply.

    `foreign`: the name of the file of Spark's HDFSBackedStateStoreProvider that all of it is built
    upon. `missing`: the state on the way whose file is not there; the other two are empty then.
    """

    files: tuple[ProviderFileName, ...] = ()
    foreign: str | None = None
    missing: StateId | None = None


def parse_provider_file(name: str) -> ProviderFileName | None:
    """The parts of a name; None if it is not ours."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return ProviderFileName(
        int(match["version"]), int(match["generation"]), match["unique"], match["base"]
    )


class ProviderFiles:
    """What a listing of a store's directory says."""

    def __init__(self, names: Iterable[str]) -> None:
        self._snapshots: dict[StateId, list[ProviderFileName]] = defaultdict(list)
        self._changelogs: dict[int, list[ProviderFileName]] = defaultdict(list)
        self._foreign: dict[int, set[str]] = defaultdict(set)
        for name in names:
            file = parse_provider_file(name)
            foreign = _FOREIGN.fullmatch(name)
            if file is not None and file.base is None:
                self._snapshots[file.state].append(file)
            elif file is not None:
                self._changelogs[file.version].append(file)
            elif foreign is not None:
                self._foreign[int(foreign["version"])].add(foreign["kind"])

    @property
    def versions(self) -> list[int]:
        """The versions that some file ends in, rising."""
        of_snapshots = {state.version for state in self._snapshots}
        return sorted({*of_snapshots, *self._changelogs, *self._foreign})

    def state_at(self, version: int, uniques: Collection[str] | None = None) -> StateId | None:
        """The state that counts as `version`, of those in `uniques` if that is given; None if there
        is no file of it. A state has the generation of its changelog, or of a snapshot if that is
        gone."""
        there = [*self._changelogs.get(version, [])]
        made = {file.unique for file in there}
        for state, files in self._snapshots.items():
            there += files if state.version == version and state.unique not in made else []
        if uniques is not None:
            there = [file for file in there if file.unique in uniques]
        if there:
            return max(there, key=lambda file: (file.generation, file.unique)).state
        if uniques is None and version in self._foreign:
            return StateId(version, _ADOPTED_UNIQUE)
        return None

    def lineage_of(self, state: StateId, damaged: Set[ProviderFileName] = frozenset()) -> Lineage:
        """What `state` is restored from, without the snapshots in `damaged`."""
        applied: list[ProviderFileName] = []
        at = state
        while at.unique != _EMPTY_UNIQUE:
            snapshot = max(
                self._snapshots.get(at, []), key=lambda file: file.generation, default=None
            )
            if snapshot is not None and snapshot not in damaged:
                return Lineage((snapshot, *reversed(applied)))
            if at.unique == _ADOPTED_UNIQUE:
                return self._adopted(at)
            changelog = self.changelog_of(at)
            if changelog is None or changelog.base is None:
                return Lineage(missing=at)
            applied.append(changelog)
            at = StateId(at.version - 1, changelog.base)
        return Lineage(tuple(reversed(applied)))

    def changelog_of(self, state: StateId) -> ProviderFileName | None:
        """The changelog that made `state`, if it is there."""
        made = (
            file for file in self._changelogs.get(state.version, []) if file.unique == state.unique
        )
        return next(made, None)

    def _adopted(self, at: StateId) -> Lineage:
        kinds = self._foreign.get(at.version)
        return Lineage(foreign=f"{at.version}.{max(kinds)}") if kinds else Lineage(missing=at)
