"""Object names have the documented form, and parsing finds the parts of a name."""

from __future__ import annotations

import pytest

from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.epochs.operator_layout import (
    BarrierName,
    EpochDirectory,
    ManifestName,
    RunMark,
    parse_barrier,
    parse_epoch_directory,
    parse_manifest,
    parse_run,
    parse_state_file,
)
from checkpoint_store.files.epoch_file_name import EpochFileName

UNIQUE = "0123456789ab"
DIRECTORY = EpochDirectory(epoch=12, run_number=3)
RUN_ID = "f47ac10b-58cc-4372-a567-0e02b2c3d479"
# sha256 of "3/<run id>/2"
DIGEST = "dae0c59e9f85"


def test_names_are_those_that_the_format_documents() -> None:
    assert str(RunMark(Run(3, RUN_ID), 2)) == f"runs/0000000003-{RUN_ID}-{DIGEST}-00002.json"
    assert str(ManifestName(12, 3, 40, UNIQUE)) == (
        "manifests/0000000000000000012-0000000003-0000000000000000040-0123456789ab.json"
    )
    assert str(DIRECTORY) == "epochs/0000000000000000012-0000000003"
    assert str(BarrierName(DIRECTORY, 1, 8, 40, UNIQUE)) == (
        "epochs/0000000000000000012-0000000003/"
        "barrier-00001-of-00008-0000000000000000040-0123456789ab.json"
    )
    assert str(EpochFileName(str(DIRECTORY), "changelog", 1, 40, UNIQUE)) == (
        "epochs/0000000000000000012-0000000003/"
        "changelog-00001-0000000000000000040-0123456789ab.arrow"
    )
    assert str(EpochFileName(str(DIRECTORY), "operator-state", 1, 40, UNIQUE)) == (
        "epochs/0000000000000000012-0000000003/"
        "operator-state-00001-0000000000000000040-0123456789ab.arrow"
    )


@pytest.mark.parametrize("level", [1, 2, 99_999])
@pytest.mark.parametrize(
    "run_id", [RUN_ID, "a", "with-some-dashes", f"ends-like-{UNIQUE}", f"ends-like-{UNIQUE}-00002"]
)
def test_a_run_id_may_contain_dashes(run_id: str, level: int) -> None:
    mark = RunMark(Run(3, run_id), level)
    assert parse_run(str(mark)) == mark


def test_names_parse_into_their_parts() -> None:
    manifest = ManifestName(2**62, 10**9, 2**63 * 8, UNIQUE)
    barrier = BarrierName(DIRECTORY, 99_999, 99_999, 2**62, UNIQUE)
    assert parse_manifest(str(manifest)) == manifest
    assert parse_barrier(str(barrier)) == barrier
    for kind in ("changelog", "snapshot", "operator-state"):
        file = EpochFileName(str(DIRECTORY), kind, 0, 0, UNIQUE)
        assert parse_state_file(str(file)) == DIRECTORY
    sign = EpochFileName(str(DIRECTORY), "alive", 0, 0, UNIQUE)
    assert parse_state_file(str(sign)) is None
    assert parse_epoch_directory(str(DIRECTORY)) == DIRECTORY


def test_each_kind_of_name_is_taken_for_no_other() -> None:
    names = [
        str(RunMark(Run(3, RUN_ID), 1)),
        str(ManifestName(12, 3, 40, UNIQUE)),
        str(DIRECTORY),
        str(BarrierName(DIRECTORY, 1, 8, 40, UNIQUE)),
        str(EpochFileName(str(DIRECTORY), "changelog", 1, 40, UNIQUE)),
    ]
    parsers = [parse_run, parse_manifest, parse_epoch_directory, parse_barrier, parse_state_file]
    for row, parse in enumerate(parsers):
        understood = [parse(name) is not None for name in names]
        assert understood == [column == row for column in range(len(names))]


@pytest.mark.parametrize(
    "name",
    [
        "manifests/.tmp",
        "manifests/12-3-40-0123456789ab.json",
        str(ManifestName(12, 3, 40, UNIQUE)) + ".crc",
        str(ManifestName(12, 3, 40, "not-hex-here")),
        f"epochs/elsewhere/barrier-00001-of-00008-{40:019d}-{UNIQUE}.json",
        f"barrier-00001-of-00008-{40:019d}-{UNIQUE}.json",
    ],
)
def test_what_is_not_ours_does_not_parse(name: str) -> None:
    assert parse_manifest(name) is None
    assert parse_barrier(name) is None
    assert parse_run(name) is None


def test_names_of_later_epochs_sort_after_earlier_ones() -> None:
    epochs = [0, 9, 10, 99, 2**62]
    names = [str(ManifestName(epoch, 1, 1, UNIQUE)) for epoch in epochs]
    assert sorted(names) == names
