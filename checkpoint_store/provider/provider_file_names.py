"""The names of the provider's files, and the rules that lead from names to a state. Pure.

    <checkpoint>/state/<operator>/<partition>[/<store>]/
        <version>-<generation>-<unique>-<base>.changelog.arrow    changes of one batch
        <version>-<generation>-<unique>-<base>-<versions>-<attempt>.merged.arrow
                                             changes of several batches
        <version>-<generation>-<unique>-<attempt>.snapshot.arrow    the whole state after a batch
        <version>-<generation>-<unique>-<base>-<former>-<partitions>-<attempt>.rescaled.arrow
                                             the whole state, for another number of partitions

    generation  greater than all generations that the writer has seen in the directory
    unique      id of the state, drawn by the attempt that made the state
    base        `unique` of the state from which the attempt started, "0" for the empty state
    versions    the number of versions from the state `base` to the state of a merged file
    attempt     random id of the writer of the file
    former      the number of partitions before a rescale; `partitions`: after the rescale

Batch n makes version n + 1. If two task attempts made one version, the higher generation counts. In
checkpoint format 2, Spark's commit log names the `unique` that counts. An attempt that has not
written all stores of a join counts in none of the stores. A state is restored along its lineage:
from the requested version, over the bases, to a snapshot or to the empty state.

`cowstate rescale` makes a rescaled file from the former partitions of a version. The new state
`unique` replaces the state `base` of the same version; `base` is "0" for a partition that did not
exist before the rescale. A rescaled file counts while the query has `partitions` partitions at the
version, according to the offset log.
`StateFiles.scala` has the same rules for the provider itself.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

_UNIQUE = "[0-9a-f]{16}"
_NAME = re.compile(
    rf"(?P<version>[0-9]{{19}})-(?P<generation>[0-9]{{10}})-(?P<unique>{_UNIQUE})"
    rf"(-(?P<base>0|{_UNIQUE})"
    rf"(\.changelog|-(?P<versions>[0-9]{{10}})-(?P<merger>{_UNIQUE})\.merged"
    r"|-(?P<former>[0-9]{10})-(?P<partitions>[0-9]{10})"
    rf"-(?P<rescale>{_UNIQUE})\.rescaled)"
    rf"|-(?P<taker>{_UNIQUE})\.snapshot)"
    r"\.arrow"
)
_FOREIGN = re.compile(r"(?P<version>[0-9]+)\.(?P<kind>delta|snapshot)")
_EMPTY_UNIQUE = "0"
_MOST_PARTITIONS = (1 << 31) - 1
_ROCKSDB = re.compile(r"(?P<version>[0-9]+)(_[^.]+)?\.(zip|changelog)")
# The base of the first version that builds on files of Spark's own provider.
_ADOPTED_UNIQUE = "0000000000000adf"


@dataclass(frozen=True, slots=True)
class StateId:
    """A state of a store: the version, and the id (`unique`) that the attempt gave the state."""

    version: int
    unique: str


@dataclass(frozen=True, slots=True)
class ProviderFileName:
    """The parsed name of a provider file: a changelog, a merged file (several versions), a snapshot
    (no base) or a rescaled file (with the number of partitions and the former number). `attempt`:
    empty for a changelog."""

    version: int
    generation: int
    unique: str
    base: str | None
    versions: int = 1
    attempt: str = ""
    former: int | None = None
    partitions: int | None = None

    @property
    def state(self) -> StateId:
        """The state after the file is applied."""
        return StateId(self.version, self.unique)

    @property
    def is_whole(self) -> bool:
        """True if the file holds the whole state and needs no further file."""
        return self.base is None or self.partitions is not None

    @property
    def origin(self) -> StateId | None:
        """The state to which the file is applied; None for a whole file."""
        if self.base is None or self.is_whole:
            return None
        return StateId(self.version - self.versions, self.base)

    @property
    def replaced(self) -> str | None:
        """The id (`unique`) of the state that a rescaled file replaces; None for other kinds of
        files."""
        return None if self.partitions is None else self.base

    @property
    def kind(self) -> str:
        """The kind of the file, as in the file's metadata."""
        if self.partitions is not None:
            return "rescaled"
        if self.base is None:
            return "snapshot"
        return "merged" if self.versions > 1 else "changelog"

    def __str__(self) -> str:
        upon = "" if self.base is None else f"-{self.base}"
        span = f"-{self.versions:010d}" if self.versions > 1 else ""
        if self.partitions is not None:
            span = f"-{self.former:010d}-{self.partitions:010d}"
        by = f"-{self.attempt}" if self.attempt else ""
        start = f"{self.version:019d}-{self.generation:010d}-{self.unique}"
        return f"{start}{upon}{span}{by}.{self.kind}.arrow"


@dataclass(frozen=True, slots=True)
class Lineage:
    """The files from which a state is restored, in the order in which they apply. `foreign`: the
    name of the file of Spark's HDFSBackedStateStoreProvider from which the lineage begins.
    `missing`: a state on the way that has no file. If either is set, `files` is empty."""

    files: tuple[ProviderFileName, ...] = ()
    foreign: str | None = None
    missing: StateId | None = None


def parse_provider_file(name: str) -> ProviderFileName | None:
    """Parse the name of a provider file; None if the name has another form."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    version, versions = int(match["version"]), int(match["versions"] or 1)
    if match["versions"] and not 1 < versions <= version:
        return None
    former, partitions = (int(match[name] or 0) for name in ("former", "partitions"))
    if match["partitions"] and not (0 < former <= _MOST_PARTITIONS >= partitions > 0):
        return None
    return ProviderFileName(
        version,
        int(match["generation"]),
        match["unique"],
        match["base"],
        versions,
        match["merger"] or match["taker"] or match["rescale"] or "",
        former or None,
        partitions or None,
    )


class ProviderFiles:
    """Index of the files in a store's directory, made from the names of a listing."""

    def __init__(self, names: Iterable[str]) -> None:
        self._snapshots: dict[StateId, list[ProviderFileName]] = defaultdict(list)
        self._changes: dict[StateId, list[ProviderFileName]] = defaultdict(list)
        self._foreign: dict[int, set[str]] = defaultdict(set)
        self._rocksdb: dict[int, str] = {}
        for name in names:
            file = parse_provider_file(name)
            foreign = _FOREIGN.fullmatch(name)
            rocksdb = _ROCKSDB.fullmatch(name)
            if file is not None:
                by_state = self._snapshots if file.is_whole else self._changes
                by_state[file.state].append(file)
            elif foreign is not None:
                self._foreign[int(foreign["version"])].add(foreign["kind"])
            elif rocksdb is not None:
                self._rocksdb[int(rocksdb["version"])] = name
        for files in self._changes.values():
            files.sort(key=lambda file: (file.versions, file.generation))

    @property
    def has_rescaled(self) -> bool:
        """True if there is a rescaled file: the query was given another number of partitions."""
        return any(self._rescaled())

    def is_rescaled_at(self, version: int) -> bool:
        """True if a version has rescaled files. For such a version `state_at` needs the number of
        partitions that the query has at the version."""
        return any(file.version == version for file in self._rescaled())

    def _rescaled(self) -> Iterator[ProviderFileName]:
        return (file for files in self._snapshots.values() for file in files if file.partitions)

    def rocksdb_file_of(self, version: int) -> str | None:
        """The name of the file that Spark's RocksDBStateStoreProvider wrote for a version. Without
        such a file: the newest RocksDB file if the directory has only RocksDB files, else None."""
        if version in self._rocksdb or self.versions or not self._rocksdb:
            return self._rocksdb.get(version)
        return self._rocksdb[max(self._rocksdb)]

    def first_with_changes(self) -> int | None:
        """The oldest version from which on every version, up to the newest, has a changelog; None
        if the newest version has no changelog."""
        newest = max((state.version for state in {*self._snapshots, *self._changes}), default=0)
        at = self.state_at(newest)
        while at is not None and (changelog := self.changelog_of(at)) is not None:
            at = changelog.origin
        return at.version + 1 if at is not None and at.version < newest else None

    def oldest_restorable(self) -> int | None:
        """The oldest version with a complete lineage, down to a snapshot or to the empty state;
        None if no lineage is complete."""
        for version in self.versions:
            state = self.state_at(version)
            if state is not None and self.lineage_of(state).missing is None:
                return version
        return None

    @property
    def versions(self) -> list[int]:
        """The versions to which at least one file leads, ascending."""
        states = {*self._snapshots, *self._changes}
        return sorted({*(state.version for state in states), *self._foreign})

    def state_at(
        self,
        version: int,
        uniques: Collection[str] | None = None,
        partitions: int | None = None,
    ) -> StateId | None:
        """The state that counts as `version`: the state with the greatest generation. None if the
        version has no file.

        The generation of a state is the generation of its changelog or, if the state has no
        changelog, of its newest file. `uniques`: the ids of the states that may count; None for all
        states. The id of a rescaled state also stands for the state that it replaced, and the other
        way round, so a caller need not know if the query was rescaled. `partitions`: the number of
        partitions; a state rescaled to another number does not count.
        """
        there = self._newest_first(version, partitions)
        if uniques is not None:
            named = self._with_replaced(version, uniques)
            there = [file for file in there if {file.unique, file.replaced} & named]
        if there:
            return there[0].state
        if uniques is None and version in self._foreign:
            return StateId(version, _ADOPTED_UNIQUE)
        return None

    def _newest_first(self, version: int, partitions: int | None) -> list[ProviderFileName]:
        """Files of all states of a version, newest generation first."""
        there: list[ProviderFileName] = []
        for state in {*self._snapshots, *self._changes}:
            if state.version == version:
                made = self.changelog_of(state)
                others = [*self._snapshots.get(state, ()), *self._changes.get(state, ())]
                there += others if made is None else [made]
        there = [file for file in there if file.partitions in (None, partitions)]
        return sorted(there, key=lambda file: (file.generation, file.unique), reverse=True)

    def attempts_at(self, version: int, partitions: int | None = None) -> list[str]:
        """The attempts that made a version, newest generation first. Empty if the version was
        rescaled to `partitions` partitions: then the rescaled state counts, and no attempt."""
        there = self._newest_first(version, partitions)
        if there and there[0].partitions is not None:
            return []
        return [*dict.fromkeys(file.unique for file in there if file.partitions is None)]

    def _with_replaced(self, version: int, uniques: Collection[str]) -> set[str]:
        """`uniques`, and the ids of the states that were replaced by rescaled states in
        `uniques`."""
        named = {*uniques}
        for unique in uniques:
            replacing = self._replacing(StateId(version, unique))
            named |= {file.base for file in replacing if file.base not in (None, _EMPTY_UNIQUE)}
        return named

    def lineage_of(self, state: StateId, damaged: Set[ProviderFileName] = frozenset()) -> Lineage:
        """Find the files from which `state` is restored, without the files in `damaged`. Merged
        files of many versions are preferred."""
        open_: list[tuple[StateId, ProviderFileName | None]] = [(state, None)]
        # For each state that was seen: the file that applies on it, on the way to `state`.
        applied: dict[StateId, ProviderFileName | None] = {}
        missing: StateId | None = None
        while open_:
            at, file_on = open_.pop()
            if at in applied:
                continue
            applied[at] = file_on
            begin = self._beginning_at(at, damaged)
            if begin is not None:
                return begin if begin.foreign else Lineage((*begin.files, *_from(at, applied)))
            changes = [file for file in self._changes.get(at, ()) if file not in damaged]
            if not changes and missing is None:
                missing = at
            for file in changes:
                assert file.origin is not None, "a whole file is a beginning"
                open_.append((file.origin, file))
        return Lineage(missing=missing)

    def _beginning_at(self, at: StateId, damaged: Set[ProviderFileName]) -> Lineage | None:
        """The lineage of a state that needs no files of changes: a snapshot, a file of Spark's own
        provider, or the empty state. None for every other state."""
        snapshots = [file for file in self._snapshots.get(at, ()) if file not in damaged]
        if snapshots:
            newest = max(snapshots, key=lambda file: (file.generation, file.attempt))
            return Lineage((newest,))
        if at.unique == _ADOPTED_UNIQUE and at.version in self._foreign:
            return Lineage(foreign=f"{at.version}.{max(self._foreign[at.version])}")
        return Lineage() if at.unique == _EMPTY_UNIQUE else None

    def made_by_batch(self, state: StateId) -> StateId | None:
        """The state that a batch made, and from which `state` was rescaled; `state` itself if it
        was not rescaled. None if the partition did not exist in the batch."""
        for rescaled in self._replacing(state):
            assert rescaled.base is not None
            state = StateId(state.version, rescaled.base)
        return None if state.unique == _EMPTY_UNIQUE else state

    def partitions_of_batch(self, state: StateId) -> int | None:
        """The number of partitions in the batch that made a state, if the state was rescaled after
        the batch. None if the state was not rescaled."""
        return next((file.former for file in reversed([*self._replacing(state)])), None)

    def _replacing(self, state: StateId) -> Iterator[ProviderFileName]:
        """Yield the rescaled file of a state, then the rescaled file of the replaced state, and so
        on."""
        while rescaled := next((f for f in self._snapshots.get(state, ()) if f.partitions), None):
            yield rescaled
            assert rescaled.base is not None
            state = StateId(state.version, rescaled.base)

    def changelog_of(self, state: StateId) -> ProviderFileName | None:
        """The changelog that made `state`; None if the changelog is gone."""
        return next((file for file in self._changes.get(state, ()) if file.versions == 1), None)


def _from(
    state: StateId, applied: Mapping[StateId, ProviderFileName | None]
) -> Iterator[ProviderFileName]:
    """Yield the files that lead on from a state, in the order in which they apply. `applied`: for
    each state, the file to apply next; None at the end."""
    while file := applied[state]:
        yield file
        state = file.state
