"""The names of all objects of a store. Pure.

    store.json
    runs/<run>-<run id>-<unique>.json
    runs/<run>-<run id>-<unique>-<level>.json
    manifests/<epoch>-<run>-<attempts>-<unique>-<length>.json
    epochs/<epoch>-<run>/barrier-<subtask>-of-<parallelism>-<attempt>-<unique>-<length>.json
    epochs/<epoch>-<run>/changelog-<subtask>-<attempt>-<unique>.arrow
    epochs/<epoch>-<run>/snapshot-<subtask>-<attempt>-<unique>.arrow
    epochs/<epoch>-<run>/database-<subtask>-<attempt>-<unique>.json
    epochs/<epoch>-<run>/table-<subtask>-<attempt>-<unique>.sst
    epochs/<epoch>-<run>/operator-state-<subtask>-<attempt>-<unique>.arrow

Numbers are decimal and padded with zeros: epoch, attempt and attempts to 19 digits, run to 10,
subtask and parallelism to 5; a length is not padded. `unique` is 12 hex digits that the writer
draws, so two writers never meet in one name (I1). `attempts` is the sum of the attempts of a
manifest's barriers: it grows whenever a barrier is replaced by a later attempt's.

The run is part of the directory, so one listing of `epochs/` tells which runs touched which epochs
and a restore reads only the directories that matter. Barriers and manifests carry the length of
their body, which early builds needed. Names that do not parse are not ours and are left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from checkpoint_store.files.state_file_name import parse_state_file_name
from checkpoint_store.object_names import EPOCHS, MANIFESTS, RUNS
from checkpoint_store.operators.completed_checkpoint import Run

_UNIQUE = r"(?P<unique>[0-9a-f]{12})"
_RUN = re.compile(rf"runs/(?P<run>\d{{10}})-(?P<run_id>.+)-{_UNIQUE}(?:-(?P<level>\d{{5}}))?\.json")
_MANIFEST = re.compile(
    r"manifests/(?P<epoch>\d{19})-(?P<run>\d{10})-(?P<attempts>\d{19,})"
    rf"-{_UNIQUE}-(?P<length>\d+)\.json"
)
_DIRECTORY = re.compile(r"epochs/(?P<epoch>\d{19})-(?P<run>\d{10})")
_BARRIER = re.compile(
    r"barrier-(?P<subtask>\d{5})-of-(?P<parallelism>\d{5})-(?P<attempt>\d{19})"
    rf"-{_UNIQUE}-(?P<length>\d+)\.json"
)
_OPERATOR_STATE = re.compile(
    rf"operator-state-(?P<subtask>\d{{5}})-(?P<attempt>\d{{19}})-{_UNIQUE}\.arrow"
)


@dataclass(frozen=True, slots=True)
class RunName:
    """A mark for a run; see run_registry. A name without a level is of the first one."""

    run: Run
    unique: str
    level: int = 1

    def __str__(self) -> str:
        level = f"-{self.level:05d}" if self.level > 1 else ""
        return f"{RUNS}/{self.run.number:010d}-{self.run.run_id}-{self.unique}{level}.json"


@dataclass(frozen=True, slots=True)
class ManifestName:
    """A completed checkpoint's manifest."""

    epoch: int
    run_number: int
    attempts: int
    unique: str
    length: int

    def __str__(self) -> str:
        return (
            f"{MANIFESTS}/{self.epoch:019d}-{self.run_number:010d}-{self.attempts:019d}"
            f"-{self.unique}-{self.length}.json"
        )


@dataclass(frozen=True, slots=True)
class EpochDirectory:
    """The directory of what one run wrote in one epoch."""

    epoch: int
    run_number: int

    def __str__(self) -> str:
        return f"{EPOCHS}/{self.epoch:019d}-{self.run_number:010d}"


@dataclass(frozen=True, slots=True)
class BarrierName:
    """A subtask's barrier."""

    directory: EpochDirectory
    subtask: int
    parallelism: int
    attempt: int
    unique: str
    length: int

    def __str__(self) -> str:
        return (
            f"{self.directory}/barrier-{self.subtask:05d}-of-{self.parallelism:05d}"
            f"-{self.attempt:019d}-{self.unique}-{self.length}.json"
        )


@dataclass(frozen=True, slots=True)
class OperatorStateName:
    """The operator state of a subtask."""

    directory: EpochDirectory
    subtask: int
    attempt: int
    unique: str

    def __str__(self) -> str:
        return (
            f"{self.directory}/operator-state-{self.subtask:05d}-{self.attempt:019d}"
            f"-{self.unique}.arrow"
        )


def parse_run(name: str) -> RunName | None:
    """The parts of a name under `runs/`; None if it is not ours. A run id may contain '-'."""
    match = _RUN.fullmatch(name)
    if match is None:
        return None
    run = Run(int(match["run"]), match["run_id"])
    return RunName(run, match["unique"], int(match["level"] or 1))


def parse_manifest(name: str) -> ManifestName | None:
    """The parts of a name under `manifests/`; None if it is not ours."""
    match = _MANIFEST.fullmatch(name)
    if match is None:
        return None
    return ManifestName(
        epoch=int(match["epoch"]),
        run_number=int(match["run"]),
        attempts=int(match["attempts"]),
        unique=match["unique"],
        length=int(match["length"]),
    )


def parse_epoch_directory(name: str) -> EpochDirectory | None:
    """The parts of a directory's name under `epochs/`; None if it is not ours."""
    match = _DIRECTORY.fullmatch(name)
    return None if match is None else EpochDirectory(int(match["epoch"]), int(match["run"]))


def parse_barrier(name: str) -> BarrierName | None:
    """The parts of a barrier's name; None if it is not one."""
    parent, _, file = name.rpartition("/")
    directory, match = parse_epoch_directory(parent), _BARRIER.fullmatch(file)
    if directory is None or match is None:
        return None
    return BarrierName(
        directory=directory,
        subtask=int(match["subtask"]),
        parallelism=int(match["parallelism"]),
        attempt=int(match["attempt"]),
        unique=match["unique"],
        length=int(match["length"]),
    )


def parse_state_file(name: str) -> EpochDirectory | None:
    """The directory of a state file, of keyed state or of operator state; None if the name is not
    that of one."""
    parent, _, file = name.rpartition("/")
    if parse_state_file_name(name) is None and _OPERATOR_STATE.fullmatch(file) is None:
        return None
    return parse_epoch_directory(parent)
