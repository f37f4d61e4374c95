"""The files of examples/kafka/compose.yaml fit each other. Containers cannot run in tests."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

EXAMPLE = Path(__file__).resolve().parents[1] / "examples/kafka"
COMPOSE = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def command_of(service: str) -> list[str]:
    return shlex.split(SERVICES[service]["command"])


def test_images_are_pinned() -> None:
    for name, service in SERVICES.items():
        if "build" in service:
            assert (EXAMPLE / service["build"] / "Dockerfile").is_file()
        else:
            assert re.search(r":(v?\d+\.\d+\.\d+|RELEASE\.[\dTZ-]+)$", service["image"]), name


def test_services_wait_for_services_that_are_there() -> None:
    for service in SERVICES.values():
        for other, waited in service.get("depends_on", {}).items():
            if waited["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[other]
            else:
                assert "restart" not in SERVICES[other]


def test_mounted_files_and_volumes_are_there() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (EXAMPLE / source).exists() or source in COMPOSE["volumes"], source


@pytest.mark.parametrize("service", ["topics", "clicks", "job"])
def test_programs_are_in_the_image(service: str) -> None:
    python, program, *_ = command_of(service)
    assert python == "python"
    dockerfile = (EXAMPLE / "Dockerfile").read_text()
    assert "COPY *.py *.sha256" in dockerfile
    assert (EXAMPLE / program).is_file()


def test_addresses_and_credentials_agree() -> None:
    job = SERVICES["job"]
    assert (
        job["environment"]["AWS_ACCESS_KEY_ID"]
        == (SERVICES["minio"]["environment"]["MINIO_ROOT_USER"])
    )
    assert (
        job["environment"]["AWS_SECRET_ACCESS_KEY"]
        == (SERVICES["minio"]["environment"]["MINIO_ROOT_PASSWORD"])
    )
    words = command_of("job")
    port = words[words.index("--metrics-port") + 1]
    scraped = yaml.safe_load((EXAMPLE / "monitoring/in-containers.yml").read_text())
    (targets,) = scraped["scrape_configs"][0]["static_configs"]
    assert targets["targets"] == [f"job:{port}"]
    bucket = words[words.index("--store") + 1].removeprefix("s3://")
    assert f"store/{bucket}" in SERVICES["bucket"]["command"][0]
    listens = SERVICES["broker"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert listens == f"PLAINTEXT://{words[words.index('--bootstrap-servers') + 1]}"


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    grafana = EXAMPLE / "monitoring/grafana"
    (source,) = yaml.safe_load((grafana / "datasources/prometheus.yaml").read_text())["datasources"]
    assert source["type"] == "prometheus"
    assert re.fullmatch(r"http://(\w+):9090", source["url"])[1] in SERVICES  # type: ignore[index]
    (provider,) = yaml.safe_load((grafana / "dashboards/cowstate.yaml").read_text())["providers"]
    mounted = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert any(Path(path).parent == Path(provider["options"]["path"]) for path in mounted)
