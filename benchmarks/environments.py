"""The peers' own environments below benchmarks/.envs, made from the pinned files in peers/."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
ENVS = HERE / ".envs"
ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64"}


def interpreter(engine: str) -> str:
    """The Python of this engine; a peer's is installed on first use."""
    if engine == "stepwell":
        return sys.executable
    requirements = PEERS / f"{engine}.txt"
    folder = ENVS / engine
    python = folder / "bin" / "python"
    if not _is_current(folder, requirements):
        shutil.rmtree(folder, ignore_errors=True)
        print(f"installing {engine} …", flush=True)
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
              "--no-deps", "-r", str(requirements)])  # fmt: skip
        _mark(folder, requirements)
    return str(python)


def restate_server() -> Path:
    """The binary of the Restate server; the npm package is installed on first use."""
    package = PEERS / "restate-server" / "package.json"
    folder = ENVS / "restate-server"
    if not _is_current(folder, package):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print("installing restate-server …", flush=True)
        shutil.copy(package, folder)
        _run(["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund",
              "--ignore-scripts", "--no-package-lock", "--loglevel", "error"])  # fmt: skip
        _mark(folder, package)
    target = f"restate-server-linux-{ARCHITECTURES[platform.machine()]}"
    return folder / "node_modules" / "@restatedev" / target / "bin" / "restate-server"


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=600)


def _digest(source: Path) -> str:
    return hashlib.sha256(source.read_bytes()).hexdigest()


def _is_current(folder: Path, source: Path) -> bool:
    stamp = folder / ".installed"
    return stamp.exists() and stamp.read_text() == _digest(source)


def _mark(folder: Path, source: Path) -> None:
    (folder / ".installed").write_text(_digest(source))
