"""The arithmetic of key groups is right for all small max parallelisms."""

from __future__ import annotations

from checkpoint_store.files.key_group_range import key_group_range_of_subtask, subtask_of_key_group


def test_ranges_partition_all_key_groups_and_agree_with_their_owners() -> None:
    for max_parallelism in range(1, 257):
        for parallelism in range(1, max_parallelism + 1):
            following = 0
            for subtask in range(parallelism):
                owned = key_group_range_of_subtask(max_parallelism, parallelism, subtask)
                assert owned.start == following
                following = owned.end + 1
                ends = {
                    subtask_of_key_group(group, max_parallelism, parallelism)
                    for group in (owned.start, owned.end)
                }
                assert ends == {subtask}
            assert following == max_parallelism
