"""Downloads jars from Maven Central, and uses a jar only if its checksum is in a lock file.

A line of a lock file is a SHA-256 and a path in the repository. The environment variable
MAVEN_REPOSITORY names a mirror. A jar is downloaded once.
"""

from __future__ import annotations

import hashlib
import os
import sys
import urllib.request
from pathlib import Path

REPOSITORY = os.environ.get("MAVEN_REPOSITORY", "https://repo1.maven.org/maven2")
TIMEOUT_SECONDS = 120


def pinned_jars(lock: Path, folder: Path) -> list[Path]:
    """The jars of a lock file, in `folder`. Downloads missing jars."""
    jars = []
    for checksum, path in locked(lock):
        jar = folder / Path(path).name
        if not jar.exists():
            download(f"{REPOSITORY}/{path}", jar)
        check(jar, checksum)
        jars.append(jar)
    return jars


def locked(lock: Path) -> list[tuple[str, str]]:
    """The checksums and paths of a lock file."""
    lines = (line.split() for line in lock.read_text().splitlines() if not line.startswith("#"))
    return [(checksum, path) for checksum, path in lines]


def download(url: str, jar: Path) -> None:
    """Download a jar. The file `jar` is whole or does not exist."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
            data = response.read()
    except OSError as error:
        sys.exit(f"cannot download {url}: {error}. MAVEN_REPOSITORY may name a mirror")
    jar.parent.mkdir(parents=True, exist_ok=True)
    unfinished = jar.with_name(f".{os.getpid()}-{jar.name}")
    unfinished.write_bytes(data)
    unfinished.replace(jar)


def check(jar: Path, checksum: str) -> None:
    """Check the checksum of a jar. If the checksum is wrong, delete the jar and exit."""
    actual = sha256(jar)
    if actual != checksum:
        jar.unlink()
        sys.exit(f"{jar.name} has SHA-256 {actual} instead of {checksum}: it was not used")


def sha256(jar: Path) -> str:
    return hashlib.sha256(jar.read_bytes()).hexdigest()
