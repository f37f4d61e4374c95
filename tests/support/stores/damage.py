"""Objects of a store damaged on purpose, what is asked of the store, and how answers are judged.

An answer is a plain value, so that those of a damaged store can be compared with those of the store
as it was. It is the right one, that of an older version, which says so, or a clear error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

import pyarrow as pa

from checkpoint_store.errors import CheckpointStoreError, CorruptObjectError, ObjectMissingError
from checkpoint_store.objects.object_store import ObjectInfo
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
    """What is done to one object; `place`: where in it, as a fraction of its length."""

    name: str
    how: How
    place: float = 0.5

    def of(self, data: bytes) -> bytes | None:
        """The damaged bytes; None if the object is gone."""
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
        """What is there now, with what was damaged as it was."""
        healed = self.objects.copy()
        for damage in self.damages:
            healed.objects[damage.name] = self.intact.objects[damage.name]
            healed.modified[damage.name] = self.intact.modified[damage.name]
        return healed


class LengthlessObjectStore(DictObjectStore):
    """A store whose listings say of each object that it is empty."""

    def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
        """See ObjectStore."""
        return [replace(info, length=0) for info in super().list(directory, prefix)]


@dataclass(frozen=True, slots=True)
class Failure:
    """The error that is to come instead of an answer, and words that it has."""

    error: type[CheckpointStoreError]
    words: tuple[str, ...] = ()

    def fits(self, answer: Answer) -> bool:
        """Whether an answer is that error."""
        return type(answer) is self.error and all(word in str(answer) for word in self.words)


def unusable(damage: Damage, *advice: str) -> Failure:
    """The error for who needs the damaged object, with what is to be done."""
    if damage.how == "delete":
        return Failure(ObjectMissingError, (damage.name, "is missing from", *advice))
    return Failure(CorruptObjectError, (damage.name, "is damaged (", *advice))


def answer_or_error(ask: Callable[[DamagedStore], Answer], store: DamagedStore) -> Answer:
    """The answer, or the CheckpointStoreError that comes instead."""
    try:
        return ask(store)
    except CheckpointStoreError as error:
        return error


def sorted_rows(rows: pa.Table) -> list[tuple[Any, ...]]:
    """The rows, in an order that does not depend on that of the table."""
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=repr)


def described(names: Iterable[str]) -> dict[str, str]:
    """Objects by what they are: their names without what is drawn at random, and without zeros."""
    objects: dict[str, str] = {}
    for name in sorted(names):
        what = re.sub(r"-[0-9a-f]{12}(-\d+)?", "", re.sub(r"\.(json|arrow)$", "", name))
        what = re.sub(r"\b0+(?=\d)", "", what)
        while what in objects:
            what += "'"
        objects[what] = name
    return objects


def subject_of(question: str) -> str:
    """Its first word."""
    return question.split()[0]


def numbers_in(question: str) -> list[int]:
    """The numbers of versions that it names."""
    return [int(number) for number in re.findall(r"\d+", question)]


@dataclass(frozen=True)
class AskedStore:
    """A store as it was, and all that is asked of it.

        newest, version 3, time of 3, shortly after 3    the state
        changes 2 to 4, all changes, stream from 2       the changes; all: from the first version on
        retain, sweep                                    the versions that are to be there still

    and what is in `further`, by subject, which is asked with the numbers of the question.

    `kept`: the versions that `retain` is to keep. `rows`: the state in rows that were read.
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
        """The answer, or the CheckpointStoreError that comes instead."""
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
        """What is read of each version once what was damaged is as it was, or the name of the
        error that comes instead."""
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
        """Each question's answer by the store as it was, and the objects that were read for it."""
        outcomes = {}
        for question in self.questions:
            store = DamagedStore(self.intact, ())
            outcomes[question] = self._asked_of(store, question), set(store.objects.reads)
        return outcomes

    @cached_property
    def right_answers(self) -> dict[str, Answer]:
        """Those of the store as it was."""
        answers = {question: answer for question, (answer, _) in self._undamaged.items()}
        assert not [a for a in answers.values() if isinstance(a, CheckpointStoreError)]
        assert answers["newest"] == self.older("newest", self.newest)
        assert answers["retain"] == {version: self.state_at(version) for version in self.kept}
        assert answers["sweep"] == self.swept()
        return answers

    def lengthless(self) -> AskedStore:
        """The same store, whose listings say of each object that it is empty."""
        copied = self.intact.copy()
        return replace(self, intact=LengthlessObjectStore(**vars(copied)))

    def older(self, question: str, version: int) -> Answer:
        """The answer that an older version gives, and says so; None where only the right one may
        be given."""
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
        """The answer to "sweep" if nobody knows of some versions any more: what only they named
        are orphans."""
        states = {version: self.state_at(version) for version in range(self.newest + 1)}
        return {**states, **dict.fromkeys(unknown, "ObjectMissingError")}

    def is_older(self, question: str, answer: Answer) -> bool:
        """Whether an answer is that of an older version, and says so; or, of a clean-up, that it
        took nothing but orphans."""
        if question in ("retain", "sweep"):
            return all(
                isinstance(state, str) or state == self.state_at(version)
                for version, state in answer.items()
            )
        if not isinstance(answer, tuple) or answer[0] >= self.newest:
            return False
        return bool(answer == self.older(question, answer[0]))

    def versions_needed(self, question: str) -> set[int]:
        """The versions that the answer rests on."""
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
                # A stream that has seen the newest version looks for later ones only.
                return {*range(numbers[0], self.newest + 1)} if numbers[0] < self.newest else set()
            case "restore" | "run":
                return {numbers[0] - 1}
            case "retain" | "sweep":
                # They pass over what is damaged.
                return set()
        return {numbers[0]}

    def files_needed(self, question: str) -> set[str]:
        """The files of rows that the answer rests on."""
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
        """The questions to the damaged store whose answer is another than the one expected.

        Where nobody read the object, only its deletion could change the answer: a listing says
        nothing else of it than its length. See `lengthless`.
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
