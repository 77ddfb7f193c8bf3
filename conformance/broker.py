"""A broker with a data folder of its own, for the scripts of this folder.

The broker is `target/release/queen` (QUEEN_TEST_BINARY names another: build it first).
"""

import os
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from commands import ROOT, WORK, environment_without

BINARY = Path(os.environ.get("QUEEN_TEST_BINARY") or ROOT / "target" / "release" / "queen")
# Below the range from which the system takes ports for outgoing connections: a client that calls a
# broker that is down can so neither take its port nor meet itself there.
PORTS = range(12_000, 22_000)


def prepare():
    """Makes the folder for work; ends the script when there is no broker to start."""
    if not BINARY.is_file():
        sys.exit(f"{BINARY} is not there: run cargo build --release --workspace --locked, or set QUEEN_TEST_BINARY")
    WORK.mkdir(parents=True, exist_ok=True)


def free_port():
    """A port that nobody listens on and that a broker finds free again after a kill."""
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    sys.exit(f"no port from {PORTS.start} to {PORTS.stop - 1} is free")


class Broker:
    """A fresh broker, on any free port unless one is named, gone with its data at the end."""

    def __init__(self, name, settings=None, port=0):
        self.name = name
        self.settings = settings or {}
        self.port = port
        # Tests configure encrypted queues; without a key that is refused.
        self.key = secrets.token_hex(32)

    def __enter__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="queen-conformance-"))
        self.log = WORK / f"{self.name}.broker.log"
        self.log.write_bytes(b"")
        self.start()
        return self

    def start(self):
        """Starts it on its folder, and waits until it listens."""
        mine = {
            "PORT": str(self.port),
            "QUEEN_BIND_ADDR": "127.0.0.1",
            "QUEEN_RAFT_DIR": str(self.folder / "data"),
            # How full this machine's disk is says nothing about the broker.
            "QUEEN_RAFT_DISK_HIGH_PCT": "100",
            "QUEEN_RAFT_DISK_LOW_PCT": "100",
            "QUEEN_ENCRYPTION_KEY": self.key,
            **self.settings,
        }
        kept = environment_without("QUEEN_", "JWT_", "PORT", "LOG_LEVEL", "RUST_LOG")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [BINARY, "serve"], env={**kept, **mine}, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=log, text=True,
            )
        for line in self.process.stdout:
            found = re.search(r"listening on (http://\S+)", line)
            if found:
                self.url = found[1]
                return
        self.__exit__()
        sys.exit(f"the broker did not start; its log: {self.log}")

    def kill(self):
        """kill -9; what it has written stays."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)
