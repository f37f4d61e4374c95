"""Converter of a user's URL: makes the URL absolute, and splits the URL into the options and the
path of the store's client.

    hdfs://user@nn1:8020/stores        options host, port and user; path /stores
    s3://bucket/stores                 path bucket/stores

The client of fsspec does the splitting. If the client ignored a part of the URL, two different URLs
would name one place, so such a URL is refused. A URL with a password is refused, because URLs
appear in messages and logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from checkpoint_store.errors import StoreAccessError

_PASSWORD = re.compile(r"(?<=://)[^/@]*:[^@]*(?=@)")
_OF_JAVA = re.compile("file:/(?!/)")
_MISSPELLED = re.compile("(?!file:)([A-Za-z][A-Za-z0-9+.-]*)(?://|:/(?!/))(.*)")
_NUMERIC_PORT = re.compile(r"(.+):(\d+)")


def absolute_url(url: str) -> str:
    """Return the absolute URL of a store, the same in every working directory. A path becomes
    absolute, also a path after `file:/`, which is Java's spelling. Raises StoreAccessError for
    another scheme with one slash (`s3:/bucket`) or without a colon (`s3//bucket`): both would name
    a local directory."""
    misspelled = _MISSPELLED.match(url)
    if misspelled is not None:
        scheme, rest = misspelled.groups()
        raise StoreAccessError(
            url, f"write {scheme}://{rest}, or ./{url} for a local directory of that name"
        )
    path_or_url = url.removeprefix("file:") if _OF_JAVA.match(url) else url
    return path_or_url if "://" in path_or_url else str(Path(path_or_url).absolute())


def refuse_password(url: str) -> None:
    """Raise StoreAccessError for a URL with a password. The error does not show the password."""
    if _PASSWORD.search(url.partition("?")[0]):
        raise StoreAccessError(
            _PASSWORD.sub("…", url),
            "the URL has a password, and URLs are shown and logged: put it into storage options",
        )


def client_options(url: str, client: Any, storage_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `client`, a class of fsspec, from the URL and from the user. Raises
    StoreAccessError if the options contradict each other, or if the client ignores a part of the
    URL."""
    in_url = dict(client._get_kwargs_from_urls(url))
    options = {**in_url, **storage_options}
    for name, value in in_url.items():
        if options[name] != value:
            raise StoreAccessError(url, f"the storage options have another {name} than the URL")
    path = client._strip_protocol(url).rstrip("/")
    if client._strip_protocol(f"{url}/a/b") != f"{path}/a/b":
        raise StoreAccessError(
            url, "its client does not take the end of the URL as a path: write it without ? and #"
        )
    for part in _ignored(url, path, options):
        raise StoreAccessError(
            url,
            f"its client ({client.__name__}) ignores {part!r} in the URL, and would use the place "
            f"that its defaults name. Write the URL as the client reads it, or leave {part!r} out "
            "and name it in the storage options",
        )
    return options


def _ignored(url: str, path: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Return the parts of a URL's authority that are neither in the path nor in an option."""
    authority = url.partition("://")[2].partition("/")[0]
    root = (path.partition("://")[2] or path).lstrip("/").partition("/")[0]
    if root != authority:
        user, _, host = authority.rpartition("@")
        port = _NUMERIC_PORT.fullmatch(host)
        taken = [root, *(str(value) for value in options.values())]
        for part in (user, *(port.groups() if port else (host,))):
            # A client may take the first label of a host: account.dfs.core.windows.net.
            if part and not any(part == text or part.startswith(f"{text}.") for text in taken):
                yield part
