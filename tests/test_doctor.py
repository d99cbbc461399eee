"""What the doctor sees on this machine, and on machines that lack something."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import jax
import pytest

from priorax import __version__, doctor
from priorax.caching import enable_compilation_cache


def found(name):
    return next(finding for finding in doctor.examine() if finding.name == name)


def test_it_finds_what_is_installed():
    findings = {finding.name: finding for finding in doctor.examine()}
    assert findings["priorax"].value == __version__
    assert findings["python"].value.startswith(".".join(map(str, sys.version_info[:3])))
    for name in doctor.NEEDED:
        assert findings[name].value == metadata.version(name)
    assert str(len(jax.devices())) in findings["devices"].value
    assert all(finding.remedy for finding in findings.values() if not finding.ok)
    for name in ("cores", "memory", "compilation cache", "headless browser", *(f"extra {e}" for e in doctor.EXTRAS)):
        assert findings[name].value


def test_the_extras_are_those_of_the_project():
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    named = {
        extra: tuple(re.match(r"[\w.-]+", need)[0] for need in needs if not need.startswith("priorax["))
        for extra, needs in project["optional-dependencies"].items()
    }
    assert named == doctor.EXTRAS


@pytest.fixture
def without(monkeypatch):
    """Distributions that are not there."""
    real, gone = metadata.version, set()

    def version(name):
        if name in gone:
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(doctor.metadata, "version", version)
    return gone.update


def test_it_says_how_to_install_an_extra(without):
    without({"ray", "mujoco"})
    cluster, control = found("extra cluster"), found("extra control")
    assert cluster == ("extra cluster", "ray not installed", True, 'pip install "priorax[cluster]"')
    assert control.value.startswith("mujoco not installed")
    assert control.remedy == 'pip install "priorax[control]"'


def test_what_is_needed_and_missing_is_a_fault(without):
    without({"optax"})
    assert found("optax") == ("optax", "not installed", False, "pip install priorax")


def test_extras_are_not_imported():
    heavy = {"ray", "mujoco", "ale_py", "gymnasium", "pandas"}
    script = f"import sys; from priorax.doctor import examine; examine(); assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_cache_that_cannot_be_written_is_a_fault(tmp_path, monkeypatch):
    before = enable_compilation_cache()
    try:
        folder = enable_compilation_cache(tmp_path / "cache")
        (folder / "program").write_bytes(bytes(3 * 2**20))
        assert found("compilation cache").value == f"{folder}: 1 files, 3 MB"
        (folder / "program").unlink()
        folder.rmdir()
        finding = found("compilation cache")
        assert not finding.ok
        assert "PRIORAX_CACHE" in finding.remedy
    finally:
        enable_compilation_cache(before)


def test_settings_from_outside_are_shown(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    assert found("XLA_FLAGS").value == "--xla_cpu_multi_thread_eigen=false"
    monkeypatch.delenv("XLA_FLAGS")
    assert "XLA_FLAGS" not in [finding.name for finding in doctor.examine()]


def test_little_memory_no_browser_and_no_devices(monkeypatch):
    monkeypatch.setattr(doctor, "LITTLE_MEMORY", 1e9)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)

    def devices():
        raise RuntimeError("no such platform")

    monkeypatch.setattr(jax, "devices", devices)
    browser = found("headless browser")
    assert browser.ok
    assert "chromium" in browser.remedy
    assert not found("devices").ok
    assert found("memory").value == "unknown" or not found("memory").ok
