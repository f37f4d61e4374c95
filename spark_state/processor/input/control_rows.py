"""Control rows: rows that bring the batch's time to a subtask that may have no other row.

The key group of a control row is negative and names the subtask. All other columns are null.
"""

from __future__ import annotations


def control_key_group(subtask: int) -> int:
    """Return the key group of the control rows for a subtask."""
    return -1 - subtask


def subtask_of_control(key_group: int) -> int | None:
    """Return the subtask of a control row with this key group; None if the row is no control
    row."""
    return -1 - key_group if key_group < 0 else None
