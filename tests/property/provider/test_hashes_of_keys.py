"""Similar keys have different hashes."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from tests.support.provider.provider_jvm import ProviderJvm

pytestmark = pytest.mark.spark

# A table uses the bits above these bits.
UNUSED_BITS = 3
NUMBERS = ["numbers", "large steps", "largest steps", "negative", "doubles", "moments"]
FAMILIES = [*NUMBERS, "pairs", "indexes", "equal pairs", "nulls", "texts", "zeros"]


@pytest.mark.parametrize("family", FAMILIES)
def test_keys_go_to_no_fewer_lines_than_chance_would_have_it(
    provider_jvm: ProviderJvm, family: str
) -> None:
    # The longest text of zeros has as many bytes as there are keys.
    count = 1 << 12
    hashes = [int(text) for text in provider_jvm.new("KeyHashes").of(family, count).split()]
    tags = [(number & 0xFFFFFFFF) >> UNUSED_BITS for number in hashes]
    # Two hashes are equal by chance in one of 64 such families.
    assert len(set(tags)) >= count - 2
    for lines in (count // 8, count, count * 8):
        chosen = Counter(tag & (lines - 1) for tag in tags)
        keys_in_line = count / lines
        empty = math.exp(-keys_in_line)
        deviation = math.sqrt(lines * empty * (1 - (1 + keys_in_line) * empty))
        assert len(chosen) >= lines * (1 - empty) - 4 * deviation - 1
        assert max(chosen.values()) <= keys_in_line + 6 * math.sqrt(keys_in_line) + 6
