"""Rules for the change of a state's schema at a restart. Pure.

    field added                     allowed: null in values put before; the field must be nullable
    field removed                   allowed
    fields in another order         allowed: fields are found by name
    byte to short to int to long    allowed, also by more than one step
    float to double                 allowed
    an integer to float or double   allowed
    null forbidden to allowed       allowed
    anything else                   refused: values could be lost
    another user key of a map       refused: the entries would not be found

Source: the rules of Spark's own operator with `spark.sql.streaming.stateStore.encodingFormat=avro`.
Values put before the change are converted when read. Existing files do not change.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from checkpoint_store.schema_text import schema_texts
from spark_state.errors import StateMigrationError
from spark_state.state_descriptor import StateDescriptor


def check_evolution(stored: StateDescriptor, declared: StateDescriptor) -> None:
    """Raise StateMigrationError unless the stored values of a state can be read with the schema
    that the processor declares. The message begins with the condition of Spark's own operator."""
    name = stored.name
    if stored.kind != declared.kind:
        raise StateMigrationError(
            f"[STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE] Cannot change {name} to "
            f"{_spark_kind(declared)} between query restarts. State {name!r} is in the store as a "
            f"{stored.kind} state, the processor declares a {declared.kind} state: declare a "
            f"{stored.kind} state, give the state another name, or delete it first "
            f"(deleteIfExists({name!r}) in init, for one run)"
        )
    if (stored.ttl_ms is None) != (declared.ttl_ms is None):
        was, wanted = (
            "without ttlDurationMs" if ttl_ms is None else f"with ttlDurationMs {ttl_ms}"
            for ttl_ms in (stored.ttl_ms, declared.ttl_ms)
        )
        raise StateMigrationError(
            "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema does not match "
            f"existing state value schema: state {name!r} is in the store {was}, the processor "
            f"declares it {wanted}. Values in the store do not say when they expire, or all do: "
            "declare it as it is in the store (the duration may be another one), or give the state "
            "another name"
        )
    problem = _change_of(stored.value_type, declared.value_type, "the value")
    if problem is not None:
        was, wanted = schema_texts(stored.schema_json, declared.schema_json)
        raise StateMigrationError(
            "[STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION] Schema evolution is not possible: state "
            f"{name!r} is in the store as ({was}), the processor declares ({wanted}), and "
            f"{problem}. Declare the stored schema, or one that adds or removes fields or widens "
            "numbers, or give the state another name"
        )


def _spark_kind(descriptor: StateDescriptor) -> str:
    kind = f"{descriptor.kind.capitalize()}State"
    return kind if descriptor.ttl_ms is None else f"{kind}WithTTL"


def _change_of(stored: Any, declared: Any, what: str) -> str | None:
    """Return the reason why values of `stored` cannot be read as `declared`; None if the values can
    be read."""
    if stored == declared:
        return None
    types = pa.types
    if types.is_struct(stored) and types.is_struct(declared):
        fields = (_change_of_field(stored, field) for field in declared)
        return next((problem for problem in fields if problem is not None), None)
    if types.is_list(stored) and types.is_list(declared):
        return _change_of(stored.value_type, declared.value_type, f"an element of {what}")
    if types.is_map(stored) and types.is_map(declared):
        if stored.key_type != declared.key_type:
            return f"the keys of {what} cannot change"
        return _change_of(stored.item_type, declared.item_type, f"an entry of {what}")
    if _is_wider(stored, declared):
        return None
    return f"{what} of {stored} cannot become {declared}"


def _change_of_field(stored: Any, field: pa.Field[Any]) -> str | None:
    index = stored.get_field_index(field.name)
    if index < 0:
        return None if field.nullable else f"the new field {field.name!r} must be nullable"
    before = stored.field(index)
    if before.nullable and not field.nullable:
        return f"field {field.name!r} may be null in the store and not in the processor"
    return _change_of(before.type, field.type, f"field {field.name!r}")


def _is_wider(stored: Any, declared: Any) -> bool:
    types = pa.types
    if types.is_integer(stored) and types.is_integer(declared):
        return bool(declared.bit_width > stored.bit_width)
    if types.is_integer(stored):
        return types.is_float32(declared) or types.is_float64(declared)
    return types.is_float32(stored) and types.is_float64(declared)
