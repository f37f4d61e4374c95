"""File names tell the files of a version. test_state_files_model tests the provider's rules."""

from __future__ import annotations

import pytest

from checkpoint_store.provider.provider_file_names import (
    Lineage,
    ProviderFileName,
    ProviderFiles,
    StateId,
    parse_provider_file,
)
from tests.support.provider.provider_file_bytes import changelog, merged, snapshot, unique

ADOPTED = "0000000000000adf"
ZOMBIE = ProviderFileName(2, 1, "f" * 16, unique(1))


def files(*names: ProviderFileName | str) -> ProviderFiles:
    return ProviderFiles(map(str, names))


def at(version: int) -> StateId:
    return StateId(version, unique(version))


@pytest.mark.parametrize(
    "name",
    [
        changelog(1),
        changelog(7),
        snapshot(7, generation=12),
        merged(7, 6),
    ],
)
def test_a_name_is_what_it_was_made_of(name: ProviderFileName) -> None:
    assert parse_provider_file(str(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        f".{changelog(1)}.tmp",
        f"{changelog(1)}.crc",
        str(changelog(1)).replace("-", "_"),
        str(snapshot(1)).upper(),
        f"{'1' * 18}\N{ARABIC-INDIC DIGIT ONE}-{1:010}-{unique(1)}.snapshot.arrow",
        str(merged(7, 3)).replace(f"-{3:010}-", f"-{1:010}-"),
        str(merged(7, 3)).replace(f"-{3:010}-", f"-{8:010}-"),
        str(merged(7, 3)).replace(f"-{unique(1)}.merged", "-.merged"),
        str(merged(7, 3)).replace("merged", "changelog"),
        str(snapshot(7)).replace(".snapshot", "-.snapshot"),
        str(snapshot(7)).replace(f"-{unique(1)}.snapshot", ".snapshot"),
        str(merged(7, 3)).replace(f"-{unique(1)}.merged", ".merged"),
        str(snapshot(7)).replace(".snapshot", f"-{unique(2)}.snapshot"),
        str(changelog(7)).replace("changelog", "merged"),
        "1.delta",
        "_metadata",
    ],
)
def test_other_names_are_not_ours(name: str) -> None:
    assert parse_provider_file(name) is None


def test_a_state_begins_at_the_newest_snapshot_on_its_lineage() -> None:
    listed = files(*map(changelog, range(1, 6)), snapshot(2), snapshot(4), snapshot(4, 3))
    newest = (snapshot(4, 3), changelog(5))
    assert listed.lineage_of(at(5)) == Lineage(newest)
    before = (snapshot(2), changelog(3), changelog(4), changelog(5))
    assert listed.lineage_of(at(5), {snapshot(4, 3), snapshot(4)}) == Lineage(before)


def test_of_snapshots_of_a_state_the_newest_that_is_whole_is_taken() -> None:
    first, second = snapshot(4, 3, attempt=7), snapshot(4, 3, attempt=8)
    listed = files(second, first, snapshot(4, 2, attempt=9), changelog(5))
    assert listed.lineage_of(at(5)).files[0] == second
    assert listed.lineage_of(at(5), {second}).files[0] == first
    assert listed.lineage_of(at(5), {second, first}).files[0] == snapshot(4, 2, attempt=9)


def test_files_of_most_versions_are_taken_and_others_where_those_cannot_be() -> None:
    listed = files(*map(changelog, range(1, 9)), merged(4, 3), merged(6, 2), merged(6, 5))
    widest = Lineage((changelog(1), merged(6, 5), changelog(7), changelog(8)))
    assert listed.lineage_of(at(8)) == widest
    assert listed.lineage_of(at(6), {merged(6, 5)}) == Lineage(
        (changelog(1), merged(4, 3), merged(6, 2))
    )
    assert listed.lineage_of(at(4)) == Lineage((changelog(1), merged(4, 3)))
    assert listed.lineage_of(at(3)) == Lineage((changelog(1), changelog(2), changelog(3)))


def test_a_merged_file_does_not_lead_past_the_snapshot_that_is_left() -> None:
    listed = files(*map(changelog, range(4, 7)), merged(6, 5), snapshot(3))
    assert listed.lineage_of(at(6)) == Lineage((snapshot(3), *map(changelog, range(4, 7))))
    assert listed.lineage_of(at(6), {snapshot(3)}) == Lineage(missing=at(1))


def test_a_merged_file_stands_for_its_state_when_the_changelog_is_gone() -> None:
    listed = files(merged(4, 4), changelog(5))
    assert listed.state_at(4) == at(4)
    assert listed.lineage_of(at(5)) == Lineage((merged(4, 4), changelog(5)))
    assert listed.changelog_of(at(4)) is None
    assert listed.versions == [4, 5]
    zombie = ProviderFileName(4, 2, "f" * 16, unique(3))
    assert files(merged(4, 4, 3), changelog(4), zombie).state_at(4) == zombie.state


def test_a_changelog_that_is_missing_on_the_way_is_told() -> None:
    listed = files(changelog(1), changelog(3), changelog(4), snapshot(2, 9))
    assert listed.lineage_of(at(4)).files[0] == snapshot(2, 9)
    assert listed.lineage_of(at(4), {snapshot(2, 9)}) == Lineage(missing=at(2))


def test_the_highest_generation_counts_and_then_the_greater_unique() -> None:
    listed = files(changelog(1), changelog(2, generation=2), ZOMBIE)
    assert listed.state_at(2) == at(2)
    assert files(changelog(1), changelog(2), ZOMBIE).state_at(2) == ZOMBIE.state


def test_the_attempts_at_a_version_are_told_unless_it_was_rescaled() -> None:
    late = ProviderFileName(2, 9, "f" * 16, None, attempt=unique(5))
    made = [changelog(1), changelog(2, generation=2), ZOMBIE, late]
    assert files(*made).attempts_at(2) == [unique(2), "f" * 16]
    rescaled = ProviderFileName(2, 3, "e" * 16, unique(2), 1, "d" * 16, 4, 8)
    assert files(*made, rescaled).attempts_at(2, partitions=8) == []
    assert files(*made, rescaled).attempts_at(2, partitions=4) == [unique(2), "f" * 16]


def test_a_snapshot_that_was_written_later_does_not_raise_the_state_it_holds() -> None:
    late = ProviderFileName(2, 9, "f" * 16, None, attempt=unique(5))
    listed = files(changelog(1), changelog(2, generation=2), ZOMBIE, late)
    assert listed.state_at(2) == at(2)
    assert files(changelog(1), changelog(2, generation=2), late).state_at(2) == late.state


def test_the_ids_of_the_commit_log_outweigh_generations() -> None:
    zombie = ProviderFileName(2, 9, "f" * 16, unique(1))
    listed = files(changelog(1), changelog(2), zombie)
    assert listed.state_at(2, {unique(2), "e" * 16}) == at(2)
    assert listed.state_at(2, {"e" * 16}) is None


def test_a_version_without_a_file_is_none() -> None:
    assert files(changelog(1)).state_at(2) is None
    assert files().state_at(0) is None
    assert files(changelog(1), snapshot(4), "6.delta", "6.delta.crc").versions == [1, 4, 6]


def test_files_of_spark_below_ours_are_named() -> None:
    first = ProviderFileName(8, 1, unique(8), ADOPTED)
    listed = files("6.snapshot", "7.delta", first)
    assert listed.lineage_of(at(8)) == Lineage(foreign="7.delta")
    assert listed.state_at(7) == StateId(7, ADOPTED)
    assert files("7.delta", "7.snapshot", first).lineage_of(at(8)) == Lineage(foreign="7.snapshot")
    assert files(first).lineage_of(at(8)) == Lineage(missing=StateId(7, ADOPTED))
    assert files(first, snapshot(8), "7.delta").lineage_of(at(8)) == Lineage((snapshot(8),))
