"""Runs commands with their output in a log, and says where work is done: `target/conformance`.

Leaves to others: which commands (`packages`, `run`).
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
WORK = Path(os.environ.get("QUEEN_CONFORMANCE_DIR") or ROOT / "target" / "conformance")


def call(command, log, env=None, cwd=None, seconds=None):
    """Runs a command with its output in a log; gives its exit code, or -1 when it hung."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, start_new_session=True,
        )
        try:
            return process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return -1


def needed(command, log, what, **more):
    if call([str(part) for part in command], log, **more) != 0:
        sys.exit(f"cannot {what}; see {log}")


def fresh_log(name):
    log = WORK / name
    log.write_bytes(b"")
    return log


def environment_without(*prefixes):
    """This process's environment without what is meant for a broker or a client."""
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
