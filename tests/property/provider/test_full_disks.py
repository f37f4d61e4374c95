"""A batch on a disk that is full at any block leaves whole state, or an error reports the loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.provider.provider_jvm import ProviderJvm

pytestmark = pytest.mark.spark
MOST_BLOCKS = 400
# Not each number of blocks is tried. With and without prefixes, the numbers differ.
STEP = 2


@pytest.mark.parametrize("with_prefix", [False, True])
@pytest.mark.parametrize("for_a_moment", [False, True])
def test_a_state_is_undone_or_to_be_restored_wherever_the_disk_is_full(
    provider_jvm: ProviderJvm, tmp_path: Path, with_prefix: bool, for_a_moment: bool
) -> None:
    script = provider_jvm.new("FullDiskScript", with_prefix, str(tmp_path))
    outcomes: list[str] = []
    for blocks in range(STEP * with_prefix, MOST_BLOCKS, 2 * STEP):
        outcomes.append(script.run(blocks, for_a_moment))
        if outcomes[-1] == "done":
            break
    assert len(outcomes) > 10
    assert set(outcomes) == {"undone", "to be restored", "done"}
