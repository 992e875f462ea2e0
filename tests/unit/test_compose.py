"""`docker-compose.yml` is complete and valid, as far as a parser can tell."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from pag_graph.errors import InvalidParameterError
from pag_graph.neo4j_server.jars import neo4j_version
from pag_graph.sinks.neo4j.connection import connection_from_environment

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def test_has_database_spark_and_job(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {"neo4j", "spark-master", "spark-worker", "job", "export"}


def test_neo4j_is_the_long_term_release_with_health_check_volumes_and_memory(compose: dict[str, Any]) -> None:
    neo4j = compose["services"]["neo4j"]
    assert neo4j["image"] == f"neo4j:{neo4j_version()}-community"
    assert {"test", "interval", "retries"} <= set(neo4j["healthcheck"])
    assert {volume.split(":")[0] for volume in neo4j["volumes"]} <= set(compose["volumes"])
    assert neo4j["deploy"]["resources"]["limits"]["memory"]


def test_the_password_is_in_one_file_and_nowhere_else(compose: dict[str, Any]) -> None:
    (secret,) = compose["secrets"]
    assert compose["secrets"][secret]["file"] == "./neo4j_auth.txt"
    assert "neo4j_auth.txt" in (ROOT / ".gitignore").read_text().split()
    assert "neo4j_auth.txt" in (ROOT / ".dockerignore").read_text().split()
    for name in ("neo4j", "job", "export"):
        service = compose["services"][name]
        assert service["secrets"] == [secret]
        assert service["environment"]["NEO4J_AUTH_FILE"] == f"/run/secrets/{secret}"
    assert not re.search(r"PASSWORD|cypher-shell| -p ", json.dumps(compose))


def test_user_and_password_are_read_from_the_file_of_neo4js_image(tmp_path: Path) -> None:
    file = tmp_path / "auth"
    file.write_text("reader/a/b\n")
    given = {"NEO4J_URI": "bolt://neo4j:7687", "NEO4J_AUTH_FILE": str(file)}
    connection = connection_from_environment(environment=given)
    assert (connection.user, connection.password) == ("reader", "a/b")
    file.write_text("secret\n")
    with pytest.raises(InvalidParameterError, match="no user and password") as refused:
        connection_from_environment(environment=given)
    assert "secret" not in str(refused.value)


def test_every_service_that_stays_has_a_health_check(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert "healthcheck" in service or service.get("profiles") == ["job"], name


def test_the_worker_writes_where_its_user_may(compose: dict[str, Any]) -> None:
    assert compose["services"]["spark-worker"]["environment"]["SPARK_WORKER_DIR"].startswith("/tmp/")
    image = (ROOT / "Dockerfile").read_text()
    for argument in ("PAG_UID", "PAG_GID"):
        assert argument in compose["services"]["spark-master"]["build"]["args"]
        assert f"ARG {argument}=" in image
    assert {service["user"] for name, service in compose["services"].items() if name != "neo4j"} == {"pag"}


def test_tags_are_those_of_one_image(compose: dict[str, Any]) -> None:
    bases = re.findall(r"(?m)^FROM (\S+)", (ROOT / "Dockerfile").read_text())
    for image in (*bases, *(service["image"] for service in compose["services"].values())):
        assert re.search(r":\d+\.\d+\.\d+", image), image


def requirements_of(package: str) -> list[str]:
    """Return what an installed package requires; nothing of one for other systems."""
    try:
        return metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return []


def test_the_image_has_no_tools_of_development() -> None:
    def pins(name: str) -> set[str]:
        return set(re.findall(r"(?m)^([\w.-]+==[^ ;]+)", (ROOT / name).read_text()))

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tools = {re.split(r"[><=]", each)[0] for each in project["dependency-groups"]["dev"]}
    assert pins("requirements-image.lock") < pins("requirements.lock")
    image = {pin.partition("==")[0] for pin in pins("requirements-image.lock")}
    # What a package of the image cannot do without is no tool of development there.
    needed = {
        found[0]
        for package in image
        for text in requirements_of(package)
        if "extra ==" not in text and (found := re.match(r"[\w.-]+", text))
    }
    assert not (image & tools) - needed
    assert "requirements.lock" not in (ROOT / "Dockerfile").read_text()


def test_the_service_export_says_when_it_fails_and_is_healthy_only_if_it_does_not(
    compose: dict[str, Any], tmp_path: Path
) -> None:
    export = compose["services"]["export"]
    (loop,) = (each.replace("$$", "$") for each in export["command"])
    check = export["healthcheck"]["test"][1].replace("$$", "$")
    mark = tmp_path / "exported"
    loop, check = (each.replace("/tmp/exported", str(mark)) for each in (loop, check))
    pag = tmp_path / "pag"
    # Ends well, and then no more; in the end it ends the loop.
    pag.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\ncase $(wc -l < {tmp_path}/calls) in\n'
        "1) exit 0;;\n2) exit 6;;\n*) kill $PPID;;\nesac\n"
    )
    pag.chmod(0o755)
    given = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PAG_STORE": "/data/my run.pag", "PAG_DETAIL": "full"}
    given["PAG_EVERY_S"] = "0"
    assert subprocess.run(["sh", "-c", check], env=given, check=False).returncode
    done = subprocess.run(
        [*export["entrypoint"], loop], env=given, capture_output=True, text=True, check=False, timeout=20
    )
    assert "export failed: 6" in done.stdout
    assert (tmp_path / "calls").read_text().splitlines()[
        0
    ] == "neo4j export /data/my run.pag --detail full --format json"
    assert not subprocess.run(["sh", "-c", check], env=given, check=False).returncode
    os.utime(mark, (0, 0))
    assert subprocess.run(["sh", "-c", check], env=given, check=False).returncode


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
