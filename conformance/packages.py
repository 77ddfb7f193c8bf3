"""Fetches the official clients from their registries when it runs; nothing of them lies here.

Owns: their versions, where they are put below `target/conformance`. Leaves to others: what is run
with them (`run`, `kills`).
"""

import os
import shutil
import sys
import venv
from pathlib import Path

from commands import WORK, environment_without, needed

PYTHON_CLIENT = "queen-mq==2.6.0"
PYTHON_TOOLS = ["pytest==9.2.0", "pytest-asyncio==1.5.0", "zstandard==0.25.0"]
RUST_CLIENT = "2.7.0"
RUST_BUILT = WORK / "rust" / "target"


def python():
    """The folder of the Python client: an environment with it in `venv`, its archive in `source`."""
    home, log = WORK / "python", WORK / "python.log"
    wanted = "\n".join([PYTHON_CLIENT, *PYTHON_TOOLS, sys.version])
    ready = home / "ready"
    if not ready.exists() or ready.read_text() != wanted:
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home / "venv", with_pip=True)
        pip = [home / "venv/bin/python", "-m", "pip", "--disable-pip-version-check"]
        needed([*pip, "install", PYTHON_CLIENT, *PYTHON_TOOLS], log, "install the Python client")
        source = ["download", "--no-deps", "--no-binary", ":all:", "--dest", home / "source"]
        needed([*pip, *source, PYTHON_CLIENT], log, "fetch the Python client's source archive")
        ready.write_text(wanted)
    return home


def rust_environment():
    """The environment in which Rust is built."""
    return {**environment_without("QUEEN_"), "CARGO_TARGET_DIR": str(RUST_BUILT)}


def rust():
    """The Rust client's source as its registry has it, in a folder that can be written to."""
    home, log = WORK / "rust", WORK / "rust.log"
    crate = home / f"queen-mq-{RUST_CLIENT}"
    if not (crate / "ready").exists():
        shutil.rmtree(crate, ignore_errors=True)
        scratch = rust_program("scratch", "fn main() {}\n", [])
        needed(["cargo", "fetch"], log, "fetch the Rust client", cwd=scratch)
        cargo_home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
        fetched = list(cargo_home.glob(f"registry/src/*/queen-mq-{RUST_CLIENT}"))
        if not fetched:
            sys.exit(f"cargo fetched no queen-mq {RUST_CLIENT} into {cargo_home}/registry/src")
        shutil.copytree(fetched[0], crate)
        # It lies below a workspace that it is no member of.
        with (crate / "Cargo.toml").open("a") as manifest:
            manifest.write("\n[workspace]\n")
        (crate / "ready").write_text("")
    return crate


def rust_program(name, source, dependencies):
    """A folder with a program of this source that uses the Rust client and these crates."""
    folder = WORK / "rust" / name
    (folder / "src").mkdir(parents=True, exist_ok=True)
    lines = [
        "[package]", f'name = "{name}"', 'version = "0.0.0"', 'edition = "2024"', "", "[workspace]", "",
        "[dependencies]", f'queen-mq = "={RUST_CLIENT}"', *dependencies, "",
    ]
    (folder / "Cargo.toml").write_text("\n".join(lines))
    (folder / "src/main.rs").write_text(source)
    return folder


def build_rust_program(name, source, dependencies):
    """Builds such a program; gives the file to run."""
    folder, log = rust_program(name, source, dependencies), WORK / "rust.log"
    needed(["cargo", "build"], log, f"build {folder}", env=rust_environment(), cwd=folder)
    return RUST_BUILT / "debug" / name
