"""Directories of state files in the JVM of the tests, and scripts on the directories."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.support.provider.provider_jvm import ProviderJvm


class Directory:
    """A directory of a kind: local, managed or gateway. `DirectoryScript.scala` defines the script
    lines."""

    def __init__(
        self,
        jvm: ProviderJvm,
        kind: str,
        root: str,
        options: Mapping[str, Any] | None = None,
        retry_seconds: int = 120,
        silent_seconds: int = 720,
    ) -> None:
        arguments = kind, root, json.dumps(options or {}), retry_seconds, silent_seconds
        self._script = jvm.new("DirectoryScript", *arguments)

    def run(self, *lines: str) -> list[str]:
        results: str = self._script.run("\n".join(lines))
        return results.split("\n")

    def result(self, line: str) -> str:
        (result,) = self.run(line)
        return result
