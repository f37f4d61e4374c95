"""A mistyped URL of a store is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoint_store.errors import StoreAccessError
from checkpoint_store.objects.object_store import open_object_store


def test_a_mistyped_scheme_is_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("s3:/bucket/a", "s3//bucket/a"):
        with pytest.raises(StoreAccessError, match=rf"write s3://bucket/a, or \./{url} for"):
            open_object_store(url)
    urls = {url: open_object_store(url).url for url in ("file:/b", "./s3:/bucket/a", "c", "/d")}
    assert urls == {
        "file:/b": "file:///b",
        "./s3:/bucket/a": f"file://{tmp_path}/s3:/bucket/a",
        "c": f"file://{tmp_path}/c",
        "/d": "file:///d",
    }
    assert list(tmp_path.iterdir()) == []
