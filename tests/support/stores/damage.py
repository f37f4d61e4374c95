"""Damaged objects of a store, questions to the damaged store, and the check of each answer.

An answer is a plain value, so that answers of the damaged store can be compared with answers of the
intact store. An acceptable answer is the right answer, the answer of an older version together with
the version's number, or a clear error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

import pyarrow as pa

from checkpoint_store.errors import CheckpointStoreError, CorruptObjectError, ObjectMissingError
from checkpoint_store.objects.object_info import ObjectInfo
from checkpoint_store.open_history import history_in
from checkpoint_store.state_reader import StateReader
from checkpoint_store.states.state_history import StateVersion
from tests.support.stores.fake_object_store import DictObjectStore

Answer = Any
State = dict[Any, Any]
How = Literal["flip", "truncate", "empty", "delete"]
HOWS: tuple[How, ...] = get_args(How)


@dataclass(frozen=True, slots=True)
class Damage:
    """The damage to one object. `place`: position in the object, as a fraction of its length."""

    name: str
    how: How
    place: float = 0.5

    def of(self, data: bytes) -> bytes | None:
        """The damaged bytes; None for a deleted object."""
        at = min(int(len(data) * self.place), len(data) - 1)
        match self.how:
            case "flip":
                return data[:at] + bytes([data[at] ^ 0x01]) + data[at + 1 :]
            case "truncate":
                return data[:at]
            case "empty":
                return b""
            case "delete":
                return None


@dataclass
class DamagedStore:
    """A copy of `intact` with damages."""

    intact: DictObjectStore
    damages: tuple[Damage, ...]
    objects: DictObjectStore = field(init=False)

    def __post_init__(self) -> None:
        self.objects = self.intact.copy()
        for damage in self.damages:
            data = damage.of(self.intact.objects[damage.name])
            if data is None:
                self.objects.delete([damage.name])
            else:
                self.objects.objects[damage.name] = data

    def restored_from_a_backup(self) -> DictObjectStore:
        """A copy of the current store, with the damaged objects as in `intact`."""
        healed = self.objects.copy()
        for damage in self.damages:
            healed.objects[damage.name] = self.intact.objects[damage.name]
            healed.modified[damage.name] = self.intact.modified[damage.name]
        return healed


class LengthlessObjectStore(DictObjectStore):
    """A store whose listings give length 0 for each object."""

    def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
        """See ObjectStore."""
        return [replace(info, length=0) for info in super().list(directory, prefix)]


@dataclass(frozen=True, slots=True)
class Failure:
    """An expected error, and words in the error's message."""

    error: type[CheckpointStoreError]
    words: tuple[str, ...] = ()

    def fits(self, answer: Answer) -> bool:
        """True if an answer is the expected error."""
        return type(answer) is self.error and all(word in str(answer) for word in self.words)


def unusable(damage: Damage, *advice: str) -> Failure:
    """The expected error of a reader that needs the damaged object. `advice`: expected words on the
    way out."""
    if damage.how == "delete":
        return Failure(ObjectMissingError, (damage.name, "is missing from", *advice))
    return Failure(CorruptObjectError, (damage.name, "is damaged (", *advice))


def answer_or_error(ask: Callable[[DamagedStore], Answer], store: DamagedStore) -> Answer:
    """The answer, or the CheckpointStoreError instead of an answer."""
    try:
        return ask(store)
    except CheckpointStoreError as error:
        return error


def sorted_rows(rows: pa.Table) -> list[tuple[Any, ...]]:
    """The sorted rows, so that the table's order does not matter."""
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=repr)


def described(names: Iterable[str]) -> dict[str, str]:
    """Object names by description. A description is a name without random parts and leading
    zeros."""
    objects: dict[str, str] = {}
    for name in sorted(names):
        what = re.sub(r"-[0-9a-f]{12}", "", re.sub(r"\.(json|arrow)$", "", name))
        what = re.sub(r"\b0+(?=\d)", "", what)
        while what in objects:
            what += "'"
        objects[what] = name
    return objects


def subject_of(question: str) -> str:
    """The first word of a question."""
    return question.split()[0]


def numbers_in(question: str) -> list[int]:
    """The version numbers in a question."""
    return [int(number) for number in re.findall(r"\d+", question)]


@dataclass(frozen=True)
class AskedStore:
    """An intact store, and all questions to the store.

        newest, version 3, time of 3, shortly after 3    the state
        changes 2 to 4, all changes, stream from 2       the changes; all: from the first version on
        retain, sweep                                    the versions that must still be there

    `further` has more questions: functions by subject, called with the store and the question's
    numbers. `kept`: the versions that `retain` must keep. `rows`: turns read rows into a state.
    """

    intact: DictObjectStore
    newest: int
    kept: range
    state_at: Callable[[int], State]
    time_of: Callable[[int], int]
    rows: Callable[[pa.Table], State]
    retain: Callable[[DictObjectStore], object]
    sweep: Callable[[DictObjectStore], object]
    further: Mapping[str, Callable[..., Answer]]
    questions: Sequence[str]

    def answer(self, question: str, *damages: Damage) -> Answer:
        """The answer of the store with `damages`, or the CheckpointStoreError instead of an
        answer."""
        return self._asked_of(DamagedStore(self.intact, damages), question)

    def _asked_of(self, store: DamagedStore, question: str) -> Answer:
        return answer_or_error(lambda store: self._asked(question, store), store)

    def _asked(self, question: str, store: DamagedStore) -> Answer:
        subject, numbers = subject_of(question), numbers_in(question)
        if subject in self.further:
            return self.further[subject](store, *numbers)
        match subject:
            case "retain":
                self.retain(store.objects)
                return self._states(store, self.kept)
            case "sweep":
                self.sweep(store.objects)
                return self._states(store, range(self.newest + 1))
        reader = StateReader(history_in(store.objects))
        match subject:
            case "newest":
                info = reader.info()
                return info.version, info.timestamp_ms, self.rows(reader.read(info.version))
            case "version":
                return self.rows(reader.read(numbers[0]))
            case "time" | "shortly":
                time_ms = self.time_of(numbers[0]) + (500 if subject == "shortly" else 0)
                version = reader.latest_at(time_ms)
                return version, self.rows(reader.read(version))
            case "changes":
                changes = reader.changes(*numbers)
                return sorted_rows(changes.drop_columns(["_commit_timestamp"]))
        raise AssertionError(question)

    def _states(self, store: DamagedStore, versions: range) -> dict[int, State | str]:
        """The state of each version after a restore of the damaged objects from a backup, or the
        name of the error instead of a state."""
        reader = StateReader(history_in(store.restored_from_a_backup()))
        states: dict[int, State | str] = {}
        for version in versions:
            try:
                states[version] = self.rows(reader.read(version))
            except CheckpointStoreError as error:
                states[version] = type(error).__name__
        return states

    @cached_property
    def _undamaged(self) -> dict[str, tuple[Answer, set[str]]]:
        """The intact store's answer to each question, and the objects that were read for the
        answer."""
        outcomes = {}
        for question in self.questions:
            store = DamagedStore(self.intact, ())
            outcomes[question] = self._asked_of(store, question), set(store.objects.reads)
        return outcomes

    @cached_property
    def right_answers(self) -> dict[str, Answer]:
        """The answers of the intact store, checked against the expected states."""
        answers = {question: answer for question, (answer, _) in self._undamaged.items()}
        assert not [a for a in answers.values() if isinstance(a, CheckpointStoreError)]
        assert answers["newest"] == self.older("newest", self.newest)
        assert answers["retain"] == {version: self.state_at(version) for version in self.kept}
        assert answers["sweep"] == self.swept()
        return answers

    def lengthless(self) -> AskedStore:
        """The same store with listings that give length 0 for each object."""
        copied = self.intact.copy()
        return replace(self, intact=LengthlessObjectStore(**vars(copied)))

    def older(self, question: str, version: int) -> Answer:
        """The acceptable answer of an older version, including the version's number. None for
        questions that allow only the right answer."""
        match subject_of(question):
            case "newest":
                return version, self.time_of(version), self.state_at(version)
            case "all":
                return version, self.state_at(version)
            case "stream":
                (start,) = numbers_in(question)
                return version, self.answer(f"changes {start} to {version}")
        return None

    def swept(self, *unknown: int) -> Answer:
        """The right answer to "sweep" if the store no longer knows the versions `unknown`. Files
        that only these versions named are orphans."""
        states = {version: self.state_at(version) for version in range(self.newest + 1)}
        return {**states, **dict.fromkeys(unknown, "ObjectMissingError")}

    def is_older(self, question: str, answer: Answer) -> bool:
        """True if an answer is the answer of an older version with the version's number. For a
        clean-up: True if only orphans were deleted."""
        if question in ("retain", "sweep"):
            return all(
                isinstance(state, str) or state == self.state_at(version)
                for version, state in answer.items()
            )
        if not isinstance(answer, tuple) or answer[0] >= self.newest:
            return False
        return bool(answer == self.older(question, answer[0]))

    def versions_needed(self, question: str) -> set[int]:
        """The versions that the answer depends on."""
        numbers = numbers_in(question)
        match subject_of(question):
            case "newest" | "commit":
                return {self.newest}
            case "shortly":
                return {numbers[0], numbers[0] + 1}
            case "changes":
                return {*range(numbers[0], numbers[1] + 1)}
            case "all":
                return {*range(self.newest + 1)}
            case "stream":
                # A stream that has seen the newest version looks only for later versions.
                return {*range(numbers[0], self.newest + 1)} if numbers[0] < self.newest else set()
            case "restore" | "run":
                return {numbers[0] - 1}
            case "retain" | "sweep":
                # Clean-ups skip damaged objects.
                return set()
        return {numbers[0]}

    def files_needed(self, question: str) -> set[str]:
        """The files of rows that the answer depends on."""
        subject, versions = subject_of(question), sorted(self.versions_needed(question))
        if not versions or subject in ("commit", "run"):
            return set()
        first, *later = (self._versions[version] for version in versions)
        files = {file.name for file in first.state}
        if subject in ("changes", "all", "stream"):
            files |= {file.name for version in later for file in version.changes}
        return files

    @cached_property
    def _versions(self) -> dict[int, StateVersion]:
        history = history_in(self.intact)
        return {version: history.at(version) for version in history.versions()}

    def misjudged(
        self, damage: Damage, expected: Callable[[Damage, str], Answer | Failure]
    ) -> dict[str, str]:
        """The questions that the damaged store answers differently from `expected`.

        If no answer reads the object, only a deletion can change an answer, because a listing shows
        only the object's length. See `lengthless` for wrong lengths.
        """
        wrong = {}
        for question in self.questions:
            answer, read = self._undamaged[question]
            if damage.how == "delete" or damage.name in read:
                answer = self.answer(question, damage)
            outcome = expected(damage, question)
            is_right = outcome.fits(answer) if isinstance(outcome, Failure) else outcome == answer
            if not is_right:
                wrong[question] = f"{answer!s} instead of {outcome}"
        return wrong
