"""No field of a forged document names a path outside a store, and no forged document runs code."""

from __future__ import annotations

import base64
import copy
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from pyspark.ml.linalg import VectorUDT
from pyspark.sql.types import LongType, StructField, StructType, UserDefinedType

from checkpoint_store.epochs import checkpoint_codec as of_operator
from checkpoint_store.errors import CorruptObjectError, ObjectMissingError, StoreAccessError
from checkpoint_store.files.document import encode_document
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.objects.object_store import open_object_store
from spark_state.processor.stored_schema import struct_from_json
from tests.support.stores import hosted_file_system  # noqa: F401  registers hosted://
from tests.unit.checkpoint_store.files.test_document import (
    DOCUMENTS,
    FULL_BARRIER,
    ONE,
    SOURCE,
)

CRAFTED = ("../outside", "/etc/hostname", "..", "epochs/../../outside", "", "a/./b", "a\0b")
# Fields that never become part of an object's name. All other fields must refuse crafted values.
TEXTS = {
    *("store_id", "operator", "plan_id", "barrier_id", "base", "checksum", "kind", "format"),
    *("key_schema_json", "schema_json", "table_id", "sequence_by", "url", "key_bounds", "tail"),
    *("states", "deleted_states", "broadcast"),
}


def paths_of_texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all texts in a body, including keys of an object that maps ids."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from paths_of_texts(element, (*path, index))
    elif isinstance(value, dict):
        for key, element in value.items():
            yield from paths_of_texts(element, (*path, key))
        if path == ("batches",):
            for key in value:
                yield (*path, key, "as a key")


def with_text(body: Any, path: tuple[Any, ...], text: str) -> Any:
    changed = copy.deepcopy(body)
    is_key = path[-1] == "as a key"
    *above, last = path[:-1] if is_key else path
    place = changed
    for step in above:
        place = place[step]
    if is_key:
        place[text] = place.pop(last)
    else:
        place[last] = text
    return changed


@pytest.mark.parametrize("crafted", CRAFTED)
def test_every_field_of_every_document_is_a_text_without_effect_or_is_checked(crafted: str) -> None:
    accepted, fields = [], 0
    for document in DOCUMENTS:
        whole = json.loads(document.data)
        assert document.decode(document.data, SOURCE) is not None
        for path in paths_of_texts(whole["body"]):
            fields += 1
            body = with_text(whole["body"], path, crafted)
            data = encode_document(document.kind, body)
            try:
                document.decode(data, SOURCE)
            except CorruptObjectError:
                continue
            is_checksum = "parts" in path and path[-1] == 2
            is_part_of_a_name = path[-1] == "run_id" and crafted == ".."
            is_harmless = is_checksum or is_part_of_a_name or path == ("run",)
            if TEXTS.isdisjoint(path) and not is_harmless:
                accepted.append((document.kind, path))
    assert fields > 90
    assert accepted == []


def test_a_kind_of_file_under_the_name_of_another_is_refused() -> None:
    whole = json.loads(of_operator.encode_barrier(FULL_BARRIER))
    for name in (FULL_BARRIER.handles[1].name, FULL_BARRIER.operator_state.name, ONE.name):  # type: ignore[union-attr]
        body = with_text(whole["body"], ("handles", 0, "name"), name)
        with pytest.raises(CorruptObjectError, match="name of"):
            of_operator.decode_barrier(encode_document("barrier", body), SOURCE)


@pytest.mark.parametrize("name", CRAFTED)
def test_no_name_leads_out_of_a_store(name: str, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"secret")
    stores = [
        LocalObjectStore(tmp_path / "store"),
        open_object_store(f"hosted://{uuid4().hex}/store"),
    ]
    for store in stores:
        store.put("a/b", b"x")
        uses: dict[str, tuple[Any, ...]] = {
            "put": (name, b"x"),
            "get": (name,),
            "get_range": (name, 0, 1),
            "delete": (["a/b", name],),
        }
        # The directory of a store itself has no name.
        uses |= {"list": (name,), "list_directories": (name,)} if name else {}
        for use, arguments in uses.items():
            with pytest.raises(StoreAccessError, match="is no name of an object"):
                getattr(store, use)(*arguments)
    assert (tmp_path / "outside").read_bytes() == b"secret"
    assert stores[0].get("a/b") == b"x"


def test_no_link_leads_out_of_a_local_store(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "store"
    outside.mkdir()
    (outside / "file").write_bytes(b"secret")
    store = LocalObjectStore(root)
    store.put("a/b", b"x")
    (root / "out").symlink_to(outside)
    (root / "a/link").symlink_to(outside / "file")
    (root / "inside").symlink_to(root / "a")
    for name in ("out/file", "a/link"):
        for use in (store.get, lambda name: store.get_range(name, 0, 1)):
            with pytest.raises(StoreAccessError, match="by a link out of the store"):
                use(name)
    for failing in (
        lambda: store.put("out/new", b"x"),
        lambda: store.delete(["out/file"]),
        lambda: store.list("out"),
        lambda: store.list_directories("out"),
    ):
        with pytest.raises(StoreAccessError, match="by a link out of the store"):
            failing()
    store.delete(["a/link"])
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert store.get("inside/b") == b"x"
    linked = tmp_path / "elsewhere"
    linked.symlink_to(root)
    assert LocalObjectStore(linked).get("a/b") == b"x"
    with pytest.raises(ObjectMissingError):
        store.get("a/link")


def test_a_link_in_the_place_of_unpublished_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "store").mkdir()
    (tmp_path / "store/.unpublished").symlink_to(tmp_path / "outside")
    with pytest.raises(StoreAccessError, match="by a link out of the store"):
        LocalObjectStore(tmp_path / "store").put("a/b", b"x")


class OwnUDT(UserDefinedType):  # type: ignore[type-arg]
    """A user-defined type of this module, which is imported."""

    @classmethod
    def sqlType(cls) -> LongType:  # noqa: N802
        return LongType()

    @classmethod
    def module(cls) -> str:
        return __name__


class Runs:
    """An object whose pickle runs code at loading."""

    ran: ClassVar[list[str]] = []

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return self.ran.append, ("unpickled",)


def test_a_stored_schema_imports_calls_and_unpickles_nothing() -> None:
    pickled = base64.b64encode(pickle.dumps(Runs())).decode()
    for class_name in ("os.abort", "antigravity.Nothing", "tests.unit.no.Such", "OwnUDT", ""):
        udt = {"type": "udt", "serializedClass": pickled, "pyClass": class_name, "sqlType": "long"}
        array = {"type": "array", "containsNull": True, "elementType": udt}
        field = {"name": "v", "nullable": True, "metadata": {"type": "udt"}, "type": array}
        described = {"type": "struct", "fields": [field]}
        assert struct_from_json(json.dumps(described)).simpleString() == "struct<v:array<bigint>>"
    assert Runs.ran == []


def test_types_of_pyspark_and_of_loaded_modules_keep_their_classes() -> None:
    schema = StructType([StructField("v", VectorUDT()), StructField("own", OwnUDT())])
    assert struct_from_json(schema.json()) == schema
