"""The names of all objects of a store. Pure.

    store.json
    runs/<run>-<run id>-<unique>.json
    runs/<run>-<run id>-<unique>-<level>.json
    begun/<run>-<first epoch>-<base epoch>-<base run>-<way>-<checkpoint>-<run id>.json
    manifests/<epoch>-<run>-<attempts>-<unique>-<length>[-<summary>].json
    epochs/<epoch>-<run>/group-<first>-<last>-of-<parallelism>-<base>-<attempts>-<unique>-
                         <length>[-<summary>].json
    epochs/<epoch>-<run>/barrier-<subtask>-of-<parallelism>-<attempt>-<unique>-<length>.json
    epochs/<epoch>-<run>/changelog-<subtask>-<attempt>-<unique>.arrow
    epochs/<epoch>-<run>/snapshot-<subtask>-<attempt>-<unique>.arrow
    epochs/<epoch>-<run>/database-<subtask>-<attempt>-<unique>.json
    epochs/<epoch>-<run>/table-<subtask>-<attempt>-<unique>.sst
    epochs/<epoch>-<run>/operator-state-<subtask>-<attempt>-<unique>.arrow
    epochs/<epoch>-<run>/alive-<subtask>-<attempt>-<unique>.json

Numbers are decimal and padded with zeros: epoch, attempt and attempts to 19 digits, run to 10,
subtask and parallelism to 5; a length is not padded. `unique` is 12 hex digits that the writer
draws, so two writers never meet in one name (I1). `attempts` is the sum of the attempts of a
manifest's barriers: it grows whenever a barrier is replaced by a later attempt's. `summary`: see
checkpoint_summary; manifests of earlier releases have none.

A group has the barriers of the subtasks from `first` to `last`, see subtask_groups. `base` is the
epoch that they start from, or 19 letters n if they start from nothing.

A name in `begun/` says how a run began, see BegunName. A run that started from nothing has `none`
in place of the base epoch and run. `checkpoint` is the beginning of a digest of the checkpoint's
location, or `none` if the location is not known.

The run is part of the directory, so one listing of `epochs/` tells which runs touched which epochs
and a restore reads only the directories that matter. Barriers and manifests carry the length of
their body, which early builds needed. Names that do not parse are not ours and are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, cast

from checkpoint_store.files.sign_of_life import directory_of_sign
from checkpoint_store.files.state_file_name import parse_state_file_name
from checkpoint_store.object_names import BEGUN, EPOCHS, MANIFESTS, RUNS
from checkpoint_store.operators.checkpoint_summary import CheckpointSummary, summary_of_text
from checkpoint_store.operators.completed_checkpoint import Run
from checkpoint_store.operators.subtask_groups import SubtaskGroup

BARRIER_PREFIX = "barrier-"
GROUP_PREFIX = "group-"

Way = Literal["forward", "back", "reached", "cut"]

_NO_BASE = "n" * 19
_UNIQUE = r"(?P<unique>[0-9a-f]{12})"
_RUN = re.compile(
    rf"runs/(?P<run>\d{{10}})-(?P<run_id>[^/]+)-{_UNIQUE}(?:-(?P<level>\d{{5}}))?\.json"
)
_BEGUN = re.compile(
    r"begun/(?P<run>\d{10})-(?P<first>\d{19})-(?:none|(?P<base>\d{19})-(?P<base_run>\d{10}))"
    r"-(?P<way>forward|back|reached|cut)-(?:none|(?P<checkpoint>[0-9a-f]{12}))"
    r"-(?P<run_id>[^/]+)\.json"
)
_MANIFEST = re.compile(
    r"manifests/(?P<epoch>\d{19})-(?P<run>\d{10})-(?P<attempts>\d{19,})"
    rf"-{_UNIQUE}-(?P<length>\d+)(?:-(?P<summary>[a-z0-9._]+))?\.json"
)
_GROUP = re.compile(
    r"group-(?P<first>\d{5})-(?P<last>\d{5})-of-(?P<parallelism>\d{5})-(?P<base>\d{19}|n{19})"
    rf"-(?P<attempts>\d{{19,}})-{_UNIQUE}-(?P<length>\d+)(?:-(?P<summary>[a-z0-9._]+))?\.json"
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
class EpochDirectory:
    """The directory of what one run wrote in one epoch."""

    epoch: int
    run_number: int

    def __str__(self) -> str:
        return f"{EPOCHS}/{self.epoch:019d}-{self.run_number:010d}"


@dataclass(frozen=True, slots=True)
class BegunName:
    """Says that a run has begun to publish barriers, and how; or how far it has come.

    `first_epoch`: the first epoch that it publishes barriers of; `base`: the epoch, and its run,
    that this epoch starts from, None for an empty state. `way`:

    - `forward`: when the run began, no older run had gone past its first epoch;
    - `back`: the query was taken back to `base`. Later epochs of older runs do not count;
    - `reached`: a second object of a run. Spark has committed all epochs of the run before
      `first_epoch`, as this run wrote them;
    - `cut`: a second object of a run that took the query back while another driver may have been
      alive. `base`: an older run, and the last of its epochs that was there. See run_lineage.

    `checkpoint`: 12 hex digits for the location of the query's checkpoint, None if not known.
    """

    run: Run
    first_epoch: int
    base: EpochDirectory | None
    way: Way = "forward"
    checkpoint: str | None = None

    @property
    def is_start(self) -> bool:
        """True for an object that says how the run began."""
        return self.way in ("forward", "back")

    def __str__(self) -> str:
        base = "none"
        if self.base is not None:
            base = f"{self.base.epoch:019d}-{self.base.run_number:010d}"
        return (
            f"{BEGUN}/{begun_prefix(self.run.number)}{self.first_epoch:019d}-{base}-{self.way}"
            f"-{self.checkpoint or 'none'}-{self.run.run_id}.json"
        )


def begun_prefix(run_number: int) -> str:
    """The beginning of the names of a run's BegunName."""
    return f"{run_number:010d}-"


@dataclass(frozen=True, slots=True)
class ManifestName:
    """A completed checkpoint's manifest."""

    epoch: int
    run_number: int
    attempts: int
    unique: str
    length: int
    summary_text: str = ""

    def __str__(self) -> str:
        return (
            f"{MANIFESTS}/{manifest_prefix(self.epoch, self.run_number)}{self.attempts:019d}"
            f"-{self.unique}-{self.length}{_suffix(self.summary_text)}.json"
        )

    @property
    def directory(self) -> EpochDirectory:
        """The directory of the epoch and run."""
        return EpochDirectory(self.epoch, self.run_number)

    @property
    def summary(self) -> CheckpointSummary | None:
        """The summary of the barriers; None if the name has none that this release reads."""
        return _summary(self.summary_text)


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
            f"{self.directory}/{BARRIER_PREFIX}{self.subtask:05d}-of-{self.parallelism:05d}"
            f"-{self.attempt:019d}-{self.unique}-{self.length}.json"
        )


@dataclass(frozen=True, slots=True)
class GroupName:
    """The barriers of a group of subtasks, as one object. `base_epoch`: that of its barriers."""

    directory: EpochDirectory
    group: SubtaskGroup
    parallelism: int
    base_epoch: int | None
    attempts: int
    unique: str
    length: int
    summary_text: str = ""

    def __str__(self) -> str:
        base = _NO_BASE if self.base_epoch is None else f"{self.base_epoch:019d}"
        return (
            f"{self.directory}/{GROUP_PREFIX}{self.group.first:05d}-{self.group.last:05d}"
            f"-of-{self.parallelism:05d}-{base}-{self.attempts:019d}-{self.unique}-{self.length}"
            f"{_suffix(self.summary_text)}.json"
        )

    @property
    def summary(self) -> CheckpointSummary | None:
        """The summary of the barriers; None if the name has none that this release reads."""
        return _summary(self.summary_text)


def manifest_prefix(epoch: int, run_number: int | None = None) -> str:
    """What the names of an epoch's manifests begin with, of all runs or of one."""
    run = "" if run_number is None else f"{run_number:010d}-"
    return f"{epoch:019d}-{run}"


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


def parse_begun(name: str) -> BegunName | None:
    """The parts of a name under `begun/`; None if it is not ours."""
    match = _BEGUN.fullmatch(name)
    if match is None:
        return None
    base = None
    if match["base"] is not None:
        base = EpochDirectory(int(match["base"]), int(match["base_run"]))
    return BegunName(
        run=Run(int(match["run"]), match["run_id"]),
        first_epoch=int(match["first"]),
        base=base,
        way=cast(Way, match["way"]),
        checkpoint=match["checkpoint"],
    )


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
        summary_text=match["summary"] or "",
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


def parse_group(name: str) -> GroupName | None:
    """The parts of a group's name; None if it is not one."""
    parent, _, file = name.rpartition("/")
    directory, match = parse_epoch_directory(parent), _GROUP.fullmatch(file)
    if directory is None or match is None:
        return None
    return GroupName(
        directory=directory,
        group=SubtaskGroup(int(match["first"]), int(match["last"])),
        parallelism=int(match["parallelism"]),
        base_epoch=None if match["base"] == _NO_BASE else int(match["base"]),
        attempts=int(match["attempts"]),
        unique=match["unique"],
        length=int(match["length"]),
        summary_text=match["summary"] or "",
    )


def parse_state_file(name: str) -> EpochDirectory | None:
    """The directory of a state file, of keyed state or of operator state; None if the name is not
    that of one."""
    file = parse_state_file_name(name)
    return parse_operator_state(name) if file is None else parse_epoch_directory(file.directory)


def parse_operator_state(name: str) -> EpochDirectory | None:
    """The directory of a subtask's operator state; None if the name is not that of one."""
    parent, _, file = name.rpartition("/")
    return None if _OPERATOR_STATE.fullmatch(file) is None else parse_epoch_directory(parent)


def is_sign_of_life(name: str) -> bool:
    """True for the name of a sign of life in the directory of an epoch."""
    directory = directory_of_sign(name)
    return directory is not None and parse_epoch_directory(directory) is not None


def _suffix(summary_text: str) -> str:
    return f"-{summary_text}" if summary_text else ""


def _summary(text: str) -> CheckpointSummary | None:
    with suppress(ValueError):
        return summary_of_text(text)
    return None


def agreed_summary(manifests: Sequence[ManifestName]) -> CheckpointSummary | None:
    """What these manifests of one epoch and run say, if there is one and nobody contests it."""
    summaries = {name.summary for name in manifests}
    if len(summaries) != 1:
        return None
    summary = summaries.pop()
    return None if summary is None or summary.is_contested else summary
