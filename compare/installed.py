"""What is compared, and how a worker of each is started."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from work import FAST_BY_SECONDS

HERE = Path(__file__).resolve().parent
WORKERS = HERE / "workers"


@dataclass(frozen=True, eq=False)
class Library:
    """A library in one of its modes."""

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)


def install(folder: Path) -> list[Library]:
    """Installs the libraries into a folder, in the versions that `package-lock.json` and `requirements.txt` say."""
    outgate, node, python = _build_outgate(), _install_node(folder / "node"), _install_python(folder / "python")

    def javascript(name: str, file: str, *arguments: str) -> Library:
        return Library(name, ["node", str(WORKERS / file), *arguments], {"NODE_PATH": str(node)})

    def of_python(name: str, file: str) -> Library:
        return Library(name, [str(python), "-B", str(WORKERS / file)])

    return [
        javascript("bottleneck, reservoir", "bottleneck.js", "reservoir"),
        javascript("bottleneck, minTime", "bottleneck.js", "min-time"),
        javascript("rate-limiter-flexible, queue", "rate_limiter_flexible.js"),
        of_python("PyrateLimiter, threads", "pyrate_limiter_threads.py"),
        of_python("PyrateLimiter, asyncio", "pyrate_limiter_asyncio.py"),
        of_python("limits, 10 ms poll", "limits_polling.py"),
        Library("**Outgate**", [str(outgate)]),
    ]


def build_fast_clock(folder: Path) -> Path:
    """The library that makes a clock fast."""
    built = folder / "fast_clock.so"
    fast_by = f"-DFAST_BY_SECONDS={FAST_BY_SECONDS}"
    _run("cc", "-shared", "-fPIC", "-O2", fast_by, "-o", str(built), str(HERE / "fast_clock.c"))
    return built


def _build_outgate() -> Path:
    options = ["--release", "--locked", "--example", "compare", "--message-format", "json-render-diagnostics"]
    built = subprocess.run(["cargo", "build", *options], cwd=HERE.parent, stdout=subprocess.PIPE, check=True)
    for message in map(json.loads, built.stdout.splitlines()):
        if message.get("executable") and message["target"]["name"] == "compare":
            return Path(message["executable"])
    raise RuntimeError("cargo does not say what it built")


def _install_node(folder: Path) -> Path:
    folder.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder)
    _run("npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder))
    return folder / "node_modules"


def _install_python(folder: Path) -> Path:
    _run(sys.executable, "-m", "venv", str(folder))
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    _run(*pip, "install", "--no-deps", "--requirement", str(HERE / "requirements.txt"))
    _run(*pip, "check")
    return python


def _run(*command: str) -> None:
    subprocess.run(command, check=True, env={**os.environ, "NPM_CONFIG_UPDATE_NOTIFIER": "false"})
