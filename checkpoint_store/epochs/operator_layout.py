"""The names of all objects of an operator's store. Pure.

    store.json
    runs/<run>-<run id>-<unique>-<level>.json
    begun/<run>-<first epoch>-<base epoch>-<base run>-<way>-<checkpoint>-<run id>.json
    manifests/<epoch>-<run>-<attempts>-<unique>[-<summary>].json
    epochs/<epoch>-<run>/group-<first>-<last>-of-<parallelism>-<base>-<attempts>-<unique>
                         [-<summary>].json
    epochs/<epoch>-<run>/barrier-<subtask>-of-<parallelism>-<attempt>-<unique>.json
    epochs/<epoch>-<run>/changelog-<subtask>-<attempt>-<unique>.arrow
    epochs/<epoch>-<run>/snapshot-<subtask>-<attempt>-<unique>.arrow
    epochs/<epoch>-<run>/database-<subtask>-<attempt>-<unique>.json
    epochs/<epoch>-<run>/table-<subtask>-<attempt>-<unique>.sst
    epochs/<epoch>-<run>/operator-state-<subtask>-<attempt>-<unique>.arrow
    epochs/<epoch>-<run>/alive-<subtask>-<attempt>-<unique>.json

Numbers are decimal and padded with zeros: epoch, attempt and attempts to 19 digits, run to 10,
level, subtask and parallelism to 5. `unique` is 12 hex digits drawn by the writer, so two writers
never use the same name (I1). `attempts` is the sum of the attempts of a manifest's barriers. The
sum grows whenever the barrier of a later attempt replaces a barrier. `summary`: see
checkpoint_summary; left out if too long for a name.

A name in `runs/` gives a number to a run, see RunMark. In `runs/`, `unique` is a digest of the rest
of the name.

A group holds the barriers of the subtasks from `first` to `last`, see subtask_groups. `base` is the
base epoch of the barriers, or 19 letters n if the barriers start from nothing.

A name in `begun/` says how a run began, see BegunName. For a run that started from nothing, `none`
takes the place of the base epoch and run. `checkpoint` is the first part of a digest of the
checkpoint's location, or `none` if the location is not known.

The run is part of the directory. So one listing of `epochs/` shows which runs wrote in which
epochs, and a restore reads only the directories that matter. A name that does not parse belongs to
another program: cowstate leaves the object alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, cast

from checkpoint_store.epochs.checkpoint_summary import CheckpointSummary, summary_of_text
from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.epochs.subtask_groups import SubtaskGroup
from checkpoint_store.files.epoch_file_name import parse_epoch_file_name
from checkpoint_store.object_names import (
    BARRIER_PREFIX,
    BEGUN,
    EPOCHS,
    GROUP_PREFIX,
    MANIFESTS,
    RUNS,
)

Way = Literal["forward", "back", "reached", "cut"]

_NO_BASE = "n" * 19
_UNIQUE = r"(?P<unique>[0-9a-f]{12})"
_RUN = re.compile(rf"runs/(?P<run>\d{{10}})-(?P<run_id>[^/]+)-{_UNIQUE}-(?P<level>\d{{5}})\.json")
_BEGUN = re.compile(
    r"begun/(?P<run>\d{10})-(?P<first>\d{19})-(?:none|(?P<base>\d{19})-(?P<base_run>\d{10}))"
    r"-(?P<way>forward|back|reached|cut)-(?:none|(?P<checkpoint>[0-9a-f]{12}))"
    r"-(?P<run_id>[^/]+)\.json"
)
_MANIFEST = re.compile(
    r"manifests/(?P<epoch>\d{19})-(?P<run>\d{10})-(?P<attempts>\d{19,})"
    rf"-{_UNIQUE}(?:-(?P<summary>[a-z0-9._]+))?\.json"
)
_GROUP = re.compile(
    r"group-(?P<first>\d{5})-(?P<last>\d{5})-of-(?P<parallelism>\d{5})-(?P<base>\d{19}|n{19})"
    rf"-(?P<attempts>\d{{19,}})-{_UNIQUE}(?:-(?P<summary>[a-z0-9._]+))?\.json"
)
_DIRECTORY = re.compile(r"epochs/(?P<epoch>\d{19})-(?P<run>\d{10})")
_BARRIER = re.compile(
    r"barrier-(?P<subtask>\d{5})-of-(?P<parallelism>\d{5})-(?P<attempt>\d{19})"
    rf"-{_UNIQUE}\.json"
)


@dataclass(frozen=True, slots=True)
class RunMark:
    """A host's proposal to give the number `run.number` to the run with the id `run.run_id`. If
    hosts propose different runs for a number, the levels of the proposals decide: see
    run_registry."""

    run: Run
    level: int

    def __str__(self) -> str:
        """The name of the mark. Equal marks have equal names. So ten thousand hosts that begin at
        once write only a few objects, and each host's listing of all marks is short."""
        text = f"{self.run.number}/{self.run.run_id}/{self.level}"
        unique = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"{RUNS}/{self.run.number:010d}-{self.run.run_id}-{unique}-{self.level:05d}.json"


@dataclass(frozen=True, slots=True)
class EpochDirectory:
    """The directory of the objects that one run wrote in one epoch."""

    epoch: int
    run_number: int

    def __str__(self) -> str:
        return f"{EPOCHS}/{self.epoch:019d}-{self.run_number:010d}"


@dataclass(frozen=True, slots=True)
class BegunName:
    """The name of an object under `begun/`: how a run began, or how far a run has come.

    `first_epoch`: the first epoch whose barriers the run publishes. `base`: the epoch from which
    the run starts, and the run that wrote the base; None if the run starts from an empty state.
    `way`:

    - `forward`: when the run began, no older run had gone past the run's first epoch;
    - `back`: the query was taken back to `base`. Later epochs of older runs do not count;
    - `reached`: a second object of a run. Spark has committed all epochs of the run before
      `first_epoch`, with the run's results;
    - `cut`: a further object of a run that took the query back. The object notes how far an older
      run had come, because the driver of the older run may still be alive. In this object, `base`
      is not a base, but the older run and its last epoch at that time. See run_lineage.

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
    """The first part of a run's names under `begun/`."""
    return f"{run_number:010d}-"


@dataclass(frozen=True, slots=True)
class ManifestName:
    """The name of a completed checkpoint's manifest."""

    epoch: int
    run_number: int
    attempts: int
    unique: str
    summary_text: str = ""

    def __str__(self) -> str:
        return (
            f"{MANIFESTS}/{manifest_prefix(self.epoch, self.run_number)}{self.attempts:019d}"
            f"-{self.unique}{_suffix(self.summary_text)}.json"
        )

    @property
    def directory(self) -> EpochDirectory:
        """The directory of the epoch and run."""
        return EpochDirectory(self.epoch, self.run_number)

    @property
    def summary(self) -> CheckpointSummary | None:
        """The summary of the barriers; None if the name has no summary, or a summary that this
        release cannot parse."""
        return _summary(self.summary_text)


@dataclass(frozen=True, slots=True)
class BarrierName:
    """The name of a subtask's barrier."""

    directory: EpochDirectory
    subtask: int
    parallelism: int
    attempt: int
    unique: str

    def __str__(self) -> str:
        return (
            f"{self.directory}/{BARRIER_PREFIX}{self.subtask:05d}-of-{self.parallelism:05d}"
            f"-{self.attempt:019d}-{self.unique}.json"
        )


@dataclass(frozen=True, slots=True)
class GroupName:
    """The name of an object with the barriers of a group of subtasks. `base_epoch`: the base epoch
    of the barriers."""

    directory: EpochDirectory
    group: SubtaskGroup
    parallelism: int
    base_epoch: int | None
    attempts: int
    unique: str
    summary_text: str = ""

    def __str__(self) -> str:
        base = _NO_BASE if self.base_epoch is None else f"{self.base_epoch:019d}"
        return (
            f"{self.directory}/{GROUP_PREFIX}{self.group.first:05d}-{self.group.last:05d}"
            f"-of-{self.parallelism:05d}-{base}-{self.attempts:019d}-{self.unique}"
            f"{_suffix(self.summary_text)}.json"
        )

    @property
    def summary(self) -> CheckpointSummary | None:
        """The summary of the barriers; None if the name has no summary, or a summary that this
        release cannot parse."""
        return _summary(self.summary_text)


def manifest_prefix(epoch: int, run_number: int | None = None) -> str:
    """The first part of the names of an epoch's manifests, of all runs or of one run."""
    run = "" if run_number is None else f"{run_number:010d}-"
    return f"{epoch:019d}-{run}"


def parse_run(name: str) -> RunMark | None:
    """Parse a name under `runs/`; None for any other name. A run id may contain '-'."""
    match = _RUN.fullmatch(name)
    if match is None:
        return None
    return RunMark(Run(int(match["run"]), match["run_id"]), int(match["level"]))


def parse_begun(name: str) -> BegunName | None:
    """Parse a name under `begun/`; None for any other name."""
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
    """Parse a name under `manifests/`; None for any other name."""
    match = _MANIFEST.fullmatch(name)
    if match is None:
        return None
    return ManifestName(
        epoch=int(match["epoch"]),
        run_number=int(match["run"]),
        attempts=int(match["attempts"]),
        unique=match["unique"],
        summary_text=match["summary"] or "",
    )


def parse_epoch_directory(name: str) -> EpochDirectory | None:
    """Parse the name of a directory under `epochs/`; None for any other name."""
    match = _DIRECTORY.fullmatch(name)
    return None if match is None else EpochDirectory(int(match["epoch"]), int(match["run"]))


def parse_barrier(name: str) -> BarrierName | None:
    """Parse the name of a barrier; None for any other name."""
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
    )


def parse_group(name: str) -> GroupName | None:
    """Parse the name of a group; None for any other name."""
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
        summary_text=match["summary"] or "",
    )


def parse_state_file(name: str) -> EpochDirectory | None:
    """The directory in the name of a file of keyed state or of operator state; None for any other
    name."""
    file = parse_epoch_file_name(name)
    if file is None or file.kind == "alive":
        return None
    return parse_epoch_directory(file.directory)


def _suffix(summary_text: str) -> str:
    return f"-{summary_text}" if summary_text else ""


def _summary(text: str) -> CheckpointSummary | None:
    with suppress(ValueError):
        return summary_of_text(text)
    return None


def agreed_summary(manifests: Sequence[ManifestName]) -> CheckpointSummary | None:
    """The summary in the names of these manifests of one epoch and run. None if the manifests
    disagree, have no summary, or say that the epoch is contested."""
    summaries = {name.summary for name in manifests}
    if len(summaries) != 1:
        return None
    summary = summaries.pop()
    return None if summary is None or summary.is_contested else summary
