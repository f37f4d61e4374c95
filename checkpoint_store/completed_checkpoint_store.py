"""What programs import of `operators.completed_checkpoint_store`, by the name it always had."""

from checkpoint_store.operators.completed_checkpoint_store import (
    CompletedCheckpointStore,
    StateFileWriter,
    StoreMetadata,
    unique_of_uuid,
)

__all__ = ["CompletedCheckpointStore", "StateFileWriter", "StoreMetadata", "unique_of_uuid"]
