"""The launcher waits for every host that it starts, and for no longer."""

from __future__ import annotations

import os
import subprocess

import pytest

from spark_state.errors import StateHostError
from spark_state.host import launcher

pytestmark = pytest.mark.process


def test_a_forked_host_that_ends_while_it_starts_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launcher, "_END_SECONDS", 0.1)
    ready, report = os.pipe()
    with subprocess.Popen(["sleep", "600"]) as first, os.fdopen(ready, "rb"):
        os.write(report, b"R")  # the first host listens, and the other has ended
        os.close(report)
        try:
            with pytest.raises(StateHostError, match=rf"process {first.pid} forked ended while"):
                launcher._wait_until_ready(first, ready, 2)
        finally:
            first.kill()
