"""Completed checkpoints on an object store: what cowstate's engine and data source stand on.

`completed_checkpoint_store` is the way in; `docs/checkpoint_format.md` draws what it writes.
Import from the defining modules.
"""

__all__: list[str] = []
