"""A file system in memory whose URLs have users, hosts and ports: hosted://user@host:port/path."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

_AUTHORITY = re.compile(
    r"hosted://(?:(?P<user>\w+)@)?(?:\w+;\w+@)?(?P<host>[\w.]+)(?::(?P<port>\w+))?"
)


class HostedFileSystem(MemoryFileSystem):
    """A file system with separate files for each host, user and port. Parts of a URL that the class
    does not understand are ignored, as in other clients."""

    protocol = "hosted"
    places: ClassVar[dict[tuple[Any, ...], tuple[dict[str, Any], list[str]]]] = {}

    def __init__(self, host: str, user: str = "", port: int = 0, **options: Any) -> None:
        super().__init__(**options)
        place = self.places.setdefault((host, user, port), ({}, [""]))
        self.store, self.pseudo_dirs = place  # type: ignore[misc]

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        authority = _AUTHORITY.match(path)
        if authority is None:
            return {}
        options: dict[str, Any] = {k: v for k, v in authority.groupdict().items() if v}
        if not options.get("port", "0").isdigit():
            del options["port"]
        return options | ({"port": int(options["port"])} if "port" in options else {})

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        stripped = _AUTHORITY.sub("", path, count=1).partition("?")[0]
        return str(MemoryFileSystem._strip_protocol(stripped.removeprefix("hosted://")))


fsspec.register_implementation(HostedFileSystem.protocol, HostedFileSystem, clobber=True)
