"""What programs import of `tables.table_store`, by the name it always had."""

from checkpoint_store.tables.table_store import TableCommit, TableFileWriter, TableStore

__all__ = ["TableCommit", "TableFileWriter", "TableStore"]
