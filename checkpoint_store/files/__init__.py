"""What all stores write alike: state files, handles on them, documents, columns, key groups."""
