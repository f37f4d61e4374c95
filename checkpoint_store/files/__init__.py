"""Formats shared by all stores: state files, handles, documents, columns, key groups."""
