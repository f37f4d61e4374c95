"""What programs import of `provider.provider_checkpoint`, by the name it always had."""

from checkpoint_store.provider.provider_checkpoint import (
    committed_batches,
    read_changes,
    read_state,
)

__all__ = ["committed_batches", "read_changes", "read_state"]
