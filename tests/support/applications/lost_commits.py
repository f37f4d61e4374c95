"""Files of a checkpoint that are lost, as if the driver had died before it wrote the files."""

from __future__ import annotations

from pathlib import Path


def forget_last_commit(checkpoint: Path) -> int:
    """Delete the commit of the last batch, as if the driver had died before the commit. Returns the
    batch's number."""
    newest = max(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*"))
    delete(checkpoint / "commits" / str(newest))
    return newest


def delete(file: Path) -> None:
    """Delete a file and its Hadoop checksum file."""
    file.unlink()
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
