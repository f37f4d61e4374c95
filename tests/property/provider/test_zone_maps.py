"""A search for old rows reads only the right pages of a map.

The models of the map and of versions compare the rows themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.provider.provider_jvm import ProviderJvm, Script, WordValue

pytestmark = pytest.mark.spark
# Every fourth value has no time.
TIMES = [number for number in range(4_000) if number % 4 != 3]
TENTH, MIDDLE = TIMES[len(TIMES) // 10], TIMES[len(TIMES) // 2]


@dataclass
class AskedMap:
    """A map with records in the order of their times, and the number of pages each search read."""

    part: str
    script: Script = field(default_factory=Script)
    asked: list[int] = field(default_factory=list)

    def put(self, key: int, time: int) -> None:
        self.script.add(f"put {key} {WordValue(200, time)}", None)

    def remove(self, key: int) -> None:
        self.script.add(f"remove {key}", None)

    def ask(self, up_to: int) -> None:
        self.script.add(f"old rows {self.part} {up_to}", None)
        self.asked.append(len(self.script.lines))
        self.script.add("pages rows", None)
        self.script.add("drop rows", None)

    def pages_read(self, provider_jvm: ProviderJvm, local_directory: str) -> list[int]:
        results = self.script.run_on(provider_jvm.new("MapScript", False, local_directory))
        return [int(results[line].split(";")[0]) for line in self.asked]


@pytest.mark.parametrize("memory", ["heap", "disk"])
@pytest.mark.parametrize("part", ["key", "value"])
def test_pages_without_old_rows_are_not_read(
    provider_jvm: ProviderJvm, part: str, memory: str, tmp_path: Path
) -> None:
    asked = AskedMap(part)
    for number in TIMES:
        asked.put(number, number)
    asked.ask(TIMES[-1])
    asked.ask(TENTH)
    asked.ask(TENTH)
    for number in TIMES[: len(TIMES) // 10 + 1]:
        asked.remove(number)
    asked.ask(TENTH)
    # A record in the middle gets a new, old value, or a record at the tail is old.
    asked.put(MIDDLE if part == "value" else 0, 0)
    asked.ask(TENTH)
    asked.ask(TENTH)
    local_directory = str(tmp_path) if memory == "disk" else ""
    pages, old, still_old, *others = asked.pages_read(provider_jvm, local_directory)
    # The first pages are small.
    assert pages > 20
    assert 1 < old < pages / 3
    assert still_old == old
    assert others == [0, 1, 1]
