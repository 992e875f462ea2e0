"""`docker-compose.yml` is complete and valid, as far as a parser can tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def test_has_database_spark_and_job(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {"neo4j", "spark-master", "spark-worker", "job", "export"}


def test_neo4j_is_the_long_term_release_with_health_check_volumes_and_memory(compose: dict[str, Any]) -> None:
    neo4j = compose["services"]["neo4j"]
    assert neo4j["image"].startswith("neo4j:5.26")
    assert {"test", "interval", "retries"} <= set(neo4j["healthcheck"])
    assert {volume.split(":")[0] for volume in neo4j["volumes"]} <= set(compose["volumes"])
    assert neo4j["deploy"]["resources"]["limits"]["memory"]


def test_no_password_is_written_down(compose: dict[str, Any]) -> None:
    # Compose stops with the given text where the variable is not set.
    assert ":?" in compose["services"]["neo4j"]["environment"]["NEO4J_AUTH"]
    for name in ("job", "export"):
        assert ":?" in compose["services"][name]["environment"]["NEO4J_PASSWORD"]


def test_ports_are_published_on_loopback_only(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), port


def test_dependencies_name_services_and_wait_only_for_checked_health(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for service in services.values():
        for name, condition in service.get("depends_on", {}).items():
            assert name in services
            if condition["condition"] == "service_healthy":
                assert "healthcheck" in services[name]


def test_every_image_is_published_or_built_here(compose: dict[str, Any]) -> None:
    built = {service["image"] for service in compose["services"].values() if "build" in service}
    for service in compose["services"].values():
        assert service["image"] in built or service["image"].startswith("neo4j:")
    assert (ROOT / "Dockerfile").is_file()
