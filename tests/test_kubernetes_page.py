"""The files and the command of docs/how-to/kubernetes.md fit each other and cowstate."""

from __future__ import annotations

import re
import shlex
from argparse import Namespace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from cowstate.cli.jar_run import print_jar
from spark_state.spark.session.operator_settings import SETTINGS
from spark_state.spark.session.setting_values import PREFIX

PAGE = Path(__file__).resolve().parents[1] / "docs/how-to/kubernetes.md"
BLOCKS = dict(re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S))
POD: dict[str, Any] = yaml.safe_load(BLOCKS["yaml"])
WORDS = shlex.split(BLOCKS["sh"])


def configuration(words: list[str]) -> dict[str, str]:
    """Return the settings of a command of spark-submit."""
    settings = [value for word, value in pairwise(words) if word == "--conf"]
    return dict(setting.split("=", 1) for setting in settings)


def after(option: str, words: list[str]) -> str:
    return words[words.index(option) + 1]


def test_the_command_has_the_options_that_cowstate_prints(capsys: pytest.CaptureFixture) -> None:
    print_jar(Namespace(options=True))
    printed = shlex.split(capsys.readouterr().out)
    assert configuration(printed).items() <= configuration(WORDS).items()
    assert Path(after("--jars", WORDS)).name == Path(after("--jars", printed)).name


def test_the_jar_is_a_file_that_the_image_has() -> None:
    link = re.search(r'ln -s "\$\(cowstate jar\)" (\S+)', BLOCKS["dockerfile"])
    assert link is not None
    assert after("--jars", WORDS) == f"local://{link[1]}"
    assert WORDS[-1].startswith("local:///")
    assert not any("$(" in word for word in WORDS), "the machine that submits may lack cowstate"


def test_the_pod_template_mounts_its_volumes_as_local_directories() -> None:
    assert (POD["apiVersion"], POD["kind"]) == ("v1", "Pod")
    (container,) = POD["spec"]["containers"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in POD["spec"]["volumes"]}
    assert mounted == volumes.keys()
    assert all(name.startswith("spark-local-dir-") for name in mounted)
    assert all("emptyDir" in volume for volume in volumes.values())
    identity = POD["spec"]["securityContext"]
    assert identity["fsGroup"] == identity["runAsUser"]


def test_the_command_names_the_template_and_settings_of_cowstate() -> None:
    settings = configuration(WORDS)
    template = settings["spark.kubernetes.executor.podTemplateFile"]
    assert BLOCKS["yaml"].startswith(f"# {template}\n")
    ours = {key.removeprefix(PREFIX) for key in settings if key.startswith(PREFIX)}
    assert "store" in ours
    assert ours <= {setting.key for setting in SETTINGS}
