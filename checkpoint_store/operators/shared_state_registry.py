"""Finds the last epoch that uses a state file. Pure.

Many checkpoints may name a file: each checkpoint names a changelog until a snapshot replaces the
changelog. A file may be deleted with its last user, never before (I8). Checkpoints expire by epoch,
so only the newest epoch among the users of a file counts. The registry holds one number per file,
however many checkpoints name the file.
"""

from __future__ import annotations

from collections.abc import Iterable


class SharedStateRegistry:
    """The last epoch that uses each file, among the registered checkpoints."""

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}
        self._last_use: dict[str, int] = {}

    def __contains__(self, checkpoint: str) -> bool:
        return checkpoint in self._epochs

    def register(self, checkpoint: str, epoch: int, names: Iterable[str]) -> None:
        """Note that `checkpoint`, of the epoch `epoch`, uses the files `names`. To register a
        checkpoint twice is a bug."""
        assert checkpoint not in self._epochs, f"{checkpoint} is registered already"
        self._epochs[checkpoint] = epoch
        for name in names:
            if self._last_use.get(name, -1) < epoch:
                self._last_use[name] = epoch

    def unregister_before(self, epoch: int) -> frozenset[str]:
        """Forget the checkpoints of older epochs; return the names that no remaining checkpoint
        uses."""
        unused = frozenset(name for name, last in self._last_use.items() if last < epoch)
        for name in unused:
            del self._last_use[name]
        for checkpoint in [name for name, own in self._epochs.items() if own < epoch]:
            del self._epochs[checkpoint]
        return unused
