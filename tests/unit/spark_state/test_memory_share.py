"""Several users share one limit of memory."""

from __future__ import annotations

import threading

from spark_state.memory_share import MemoryShare, MemoryUse


def test_users_of_one_use_share_what_each_allows() -> None:
    use = MemoryUse()
    first, second, careless = MemoryShare(use, 10), MemoryShare(use, 10), MemoryShare(use, None)
    assert first.take(6)
    assert not second.take(5)
    assert second.take(4)
    assert careless.take(100)
    assert (first.taken_bytes, second.taken_bytes, use.bytes) == (6, 4, 110)
    first.give_back()
    careless.give_back()
    assert (first.taken_bytes, use.bytes) == (0, 4)
    assert first.take(6)


def test_what_must_be_held_is_taken_all_the_same_and_others_wait_for_it() -> None:
    use = MemoryUse()
    share = MemoryShare(use, 10)
    share.take_all_the_same(25)
    assert not MemoryShare(use, 20).take(1)
    share.give_back()
    assert MemoryShare(use, 20).take(20)


def test_threads_never_take_more_than_there_is() -> None:
    use = MemoryUse()
    shares = [MemoryShare(use, 1_000) for _ in range(4)]

    def take_all(share: MemoryShare) -> None:
        while share.take(1):
            pass

    threads = [threading.Thread(target=take_all, args=(share,)) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert use.bytes == sum(share.taken_bytes for share in shares) == 1_000
