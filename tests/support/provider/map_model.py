"""A script for a paged map of the provider, and a dict with the map's expected content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.provider.provider_jvm import (
    Script,
    WordValue,
    old_entries,
    prefix_of,
    shown,
    shown_prefix,
)


@dataclass
class MapModel:
    """A script, a dict with the expected content of the map, and the expected content of each open
    view. A lookup also scans the prefix of the key, if `with_prefix`."""

    with_prefix: bool = False
    script: Script = field(default_factory=Script)
    entries: dict[int, WordValue] = field(default_factory=dict)
    views: dict[str, dict[int, WordValue]] = field(default_factory=dict)
    opened: int = 0

    def _add(self, line: str, result: str = "") -> None:
        self.script.add(line, f"{result};{len(self.entries)}")

    def put(self, key: int, value: WordValue) -> None:
        self.entries[key] = value
        self._add(f"put {key} {value}")

    def put_all(self, keys: Sequence[int], value: WordValue) -> None:
        self.entries |= dict.fromkeys(keys, value)
        self._add(f"puts {','.join(map(str, keys))} {value}")

    def add_all(self, keys: Sequence[int], value: WordValue) -> None:
        """Add the keys that the map does not have yet."""
        for key in keys:
            if key not in self.entries:
                self.entries[key] = value
                self._add(f"add {key} {value}")

    def reserve(self, count: int) -> None:
        self._add(f"reserve {count}")

    def trim(self) -> None:
        self._add("trim")

    def remove(self, key: int) -> None:
        was_there = self.entries.pop(key, None) is not None
        self._add(f"remove {key}", str(was_there).lower())

    def get(self, key: int) -> None:
        self._add(f"get {key}", str(self.entries.get(key, "-")))
        self._add(f"contains {key}", str(key in self.entries).lower())

    def prefetch(self, keys: Sequence[int]) -> None:
        self._add(f"prefetch {','.join(map(str, keys))}")

    def scan(self, key: int) -> None:
        prefix = prefix_of(key)
        self._add(f"scan {prefix}", shown_prefix(self.entries, prefix))

    def put_some(self, start: int, count: int, stride: int, value: WordValue, growth: int) -> None:
        """Put `count` keys from `start` on, every `stride`th; values get longer by `growth`
        words."""
        for key, put in some_entries(start, count, stride, value, growth):
            self.put(key, put)

    def fill(self, start: int, count: int, value: WordValue, reserved: int) -> None:
        """Add the missing keys among `count` keys from `start` on, after reserving room for
        `reserved` keys."""
        self.reserve(reserved)
        self.add_all(range(start, start + count), value)

    def remove_some(self, start: int, count: int, stride: int) -> None:
        for place in range(count):
            self.remove(start + place * stride)

    def look_up(self, key: int) -> None:
        self.get(key)
        if self.with_prefix:
            self.scan(key)

    def update(self, put: Sequence[Any], ahead: int, removed: int, backwards: bool) -> None:
        """Look up some keys as in `put_some`, with `ahead` lookups before the first write, and
        write the keys.

        Each `removed`th key is removed, if `removed` is not 0. The writes come in the order of the
        reads, as in operators, or backwards.
        """
        entries = some_entries(*put)
        self.prefetch([key for key, _ in entries])
        for key, _ in entries[:ahead]:
            self.get(key)
        for place, (key, value) in enumerate(entries[:: -1 if backwards else 1]):
            if ahead + place < len(entries):
                self.get(entries[ahead + place][0])
            if removed and place % removed == 0:
                self.remove(key)
            else:
                self.put(key, value)

    def evict_read(
        self, start: int, count: int, stride: int, removed: int, backwards: bool
    ) -> None:
        """Look up some keys, and remove each `removed`th key right after its read, as joins do
        with old rows. The keys come in the order of `put_some`, or backwards."""
        evicted = range(start, start + count * stride, stride)
        for place, key in enumerate(evicted[:: -1 if backwards else 1]):
            self.get(key)
            if place % removed == 0:
                self.remove(key)

    def evict_old(self, part: str, up_to: int, all: bool) -> None:
        """Look for old entries, and remove all of them, or every second entry."""
        for key in list(self.open_old_rows(part, up_to))[:: 1 if all else 2]:
            self.get(key)
            self.remove(key)

    def compact(self, limit_bytes: int) -> None:
        self._add(f"compact {limit_bytes}")

    def open_view(self) -> None:
        self.opened += 1
        name = f"view-{self.opened}"
        self.views[name] = dict(self.entries)
        self._add(f"open {name}")

    def open_old_rows(self, part: str, up_to: int) -> dict[int, WordValue]:
        """Open a view of the old entries. Returns the expected entries."""
        self.opened += 1
        name = f"view-{self.opened}"
        self.views[name] = old_entries(self.entries, part, up_to)
        self._add(f"old {name} {part} {up_to}")
        return self.views[name]

    def evict(self, part: str, up_to: int, stride: int) -> None:
        """Remove the old entries whose key is a multiple of `stride`."""
        old = old_entries(self.entries, part, up_to)
        for key in old:
            if key % stride == 0:
                del self.entries[key]
        self._add(f"evict {part} {up_to} {stride}", str(len(old)))

    def watch(self, place: int) -> None:
        """Let another thread read an open view until the release of the view. Does nothing without
        open views."""
        if self.views:
            self._add(f"watch {self._view(place)}")

    def read(self, place: int, count: int) -> None:
        """Read `count` more entries with an open view's own reader, or all entries from the
        beginning if `count` is 0. Does nothing without open views."""
        if self.views and count == 0:
            self._add(f"entries {self._view(place)}", shown(self.views[self._view(place)]))
        elif self.views:
            self._add(f"read {self._view(place)} {count}")

    def release(self, place: int) -> None:
        """Compare all that was read of an open view, and release the view. Does nothing without
        open views."""
        if self.views:
            name = self._view(place)
            self._add(f"release {name}", shown(self.views.pop(name)))

    def _view(self, place: int) -> str:
        return list(self.views)[place % len(self.views)]

    def end(self) -> None:
        """Release all views and compare the remaining content."""
        while self.views:
            self.release(0)
        self.open_view()
        self.release(0)
        if self.with_prefix:
            for key in {prefix_of(key): key for key in self.entries}.values():
                self.scan(key)


def some_entries(
    start: int, count: int, stride: int, value: WordValue, growth: int
) -> list[tuple[int, WordValue]]:
    """The entries to put, in order."""
    return [
        (start + place * stride, WordValue(value.words + place * growth % 50, value.seed))
        for place in range(count)
    ]
