"""What a measurement runs beside: brokers, a SeaweedFS server, and looks into both.

Everything listens on 127.0.0.1 and ends with the script.
"""
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path

SECRET = "bench-secret"


def free_port():
    while True:
        with socket.socket() as a, socket.socket() as b:
            a.bind(("127.0.0.1", 0))
            port = a.getsockname()[1]
            # SeaweedFS takes a second port 10,000 above each of its own.
            if port + 10_000 < 65_536:
                try:
                    b.bind(("127.0.0.1", port + 10_000))
                    return port
                except OSError:
                    pass


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def until(what, look, seconds=120.0, pause=0.05):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(pause)
    raise SystemExit(f"gave up after {seconds:.0f} s: {what}")


class Process:
    """A child that ends with this script."""

    def __init__(self, command, folder, env=None, log="log", idle=False):
        self.log = Path(folder) / log
        command = ["chrt", "--idle", "0", *command] if idle else command
        with open(self.log, "ab") as out:
            self.child = subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def stop(self, how=signal.SIGTERM):
        if self.child.poll() is None:
            self.child.send_signal(how)
            try:
                self.child.wait(60)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Weed(Process):
    """The S3 server. Whoever asks may read and write its bucket `lake`: a look into it needs no signature."""

    def __init__(self, weed, folder, idle=False):
        self.port = free_port()
        os.makedirs(f"{folder}/weed/data")
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identity = {"identities": [{"name": "queen", "credentials": [{"accessKey": "queen", "secretKey": SECRET}], "actions": actions},
                                   {"name": "anonymous", "actions": ["Read", "Write"]}]}
        Path(f"{folder}/weed/s3.json").write_text(json.dumps(identity))
        command = [str(weed), "mini", f"-dir={folder}/weed/data", f"-s3.config={folder}/weed/s3.json", "-bucket=lake",
                   "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3.autoCreateBucket=false", "-admin.ui=false", "-webdav=false",
                   "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.port={self.port}"]
        command += [f"-{name}.port={free_port()}" for name in ("master", "volume", "filer", "admin")]
        super().__init__(command, f"{folder}/weed", idle=idle)
        until("SeaweedFS answers", self.ready)
        time.sleep(2)  # it makes its bucket a moment later, and nothing says when

    def ready(self):
        try:
            return get(self.port, "/healthz")[0] == 200
        except OSError:
            return False

    def manifests(self, queue, windows, prefix="queen"):
        """The manifests of a queue's windows, from 1 on."""
        scope = f"tenant=00000000-0000-0000-0000-000000000001/queue={queue}"
        found = []
        for k in range(1, windows + 1):
            status, body = get(self.port, f"/lake/{prefix}/_queen/{scope}/windows/{k:010d}.json")
            if status != 200:
                raise SystemExit(f"the manifest of window {k} of {queue} was answered with {status}")
            found.append(json.loads(body))
        return found


class Broker(Process):
    """One node. Without settings for it to be one of several it is ready when this returns."""

    def __init__(self, queen, folder, sink=None, cluster=None, port=None):
        self.port = port or free_port()
        env = {key: value for key, value in os.environ.items() if not key.startswith("QUEEN_")}
        env |= {"PORT": str(self.port), "QUEEN_BIND_ADDR": "127.0.0.1", "QUEEN_RAFT_DIR": f"{folder}/data", "LOG_LEVEL": "warn",
                "QUEEN_RAFT_DISK_HIGH_PCT": "98", "QUEEN_RAFT_DISK_LOW_PCT": "97"}
        if sink is not None:
            env |= {"QUEEN_S3_EMBEDDED": "true", "QUEEN_S3_REGION": "us-east-1", "QUEEN_S3_BUCKET": "lake", "QUEEN_S3_PATH_STYLE": "true",
                    "QUEEN_S3_ACCESS_KEY": "queen", "QUEEN_S3_SECRET_KEY": SECRET, "QUEEN_S3_START": "earliest", "QUEEN_S3_QUEUES": "*"}
            env |= sink
        self.queen, self.threads = queen, {}
        super().__init__([str(queen), "serve"], folder, env | (cluster or {}))
        if cluster is None:
            until("the broker is ready", self.ready)

    def ready(self):
        if self.child.poll() is not None:
            raise SystemExit(f"the broker ended: {self.log.read_text()[-2000:]}")
        try:
            return get(self.port, "/health")[0] == 200
        except OSError:
            return False

    def bench(self, *words):
        command = [str(self.queen), "bench", words[0], "--json", "--addr", f"127.0.0.1:{self.port}", *map(str, words[1:])]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr}")
        return json.loads(done.stdout.strip().splitlines()[-1])

    def cpu(self):
        """CPU seconds of the process since its start."""
        words = Path(f"/proc/{self.child.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def raft(self):
        """Where the node stands; nothing while it does not answer."""
        try:
            return json.loads(get(self.port, "/metrics")[1])["raft"]
        except (OSError, ValueError):
            return None

    def queues(self):
        status = json.loads(get(self.port, "/status")[1])
        sinks = status["s3"]["sinks"]
        return {row["name"]: row for row in sinks[0]["queues"]} if sinks else {}

    def sink_cpu(self):
        """CPU seconds of the sink's threads; one that has ended counts with what it had at the last look."""
        for task in Path(f"/proc/{self.child.pid}/task").iterdir():
            try:
                if (task / "comm").read_text().startswith("queen-s3"):
                    self.threads[task.name] = int((task / "schedstat").read_text().split()[0]) / 1e9
            except OSError:
                continue
        return sum(self.threads.values())

    def anonymous(self):
        for line in Path(f"/proc/{self.child.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
        raise SystemExit("no RssAnon in /proc: is the broker still there?")

    def metric(self, name):
        text = get(self.port, "/metrics/prometheus")[1].decode()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name)}


class Three:
    """Three nodes on loopback that form a cluster, all ready."""

    def __init__(self, queen, folder):
        self.queen, self.folder = queen, folder
        self.ports = {node: (free_port(), free_port()) for node in (1, 2, 3)}
        self.peers = ",".join(f"{node}=127.0.0.1:{raft}/127.0.0.1:{http}" for node, (raft, http) in self.ports.items())
        self.nodes = {}
        for node in self.ports:
            self.start(node)
        for broker in self.nodes.values():
            until("the cluster is ready", broker.ready)

    def start(self, node):
        folder = f"{self.folder}/node-{node}"
        os.makedirs(folder, exist_ok=True)
        raft, http = self.ports[node]
        env = {"QUEEN_RAFT_NODE_ID": str(node), "QUEEN_RAFT_PEERS": self.peers, "QUEEN_RAFT_LISTEN": f"127.0.0.1:{raft}",
               "QUEEN_RAFT_TOKEN": "a token for measurements only"}
        self.nodes[node] = Broker(self.queen, folder, cluster=env, port=http)

    def leader(self):
        """The node that leads."""
        def look():
            leading = [node for node, broker in self.nodes.items() if (broker.raft() or {}).get("leader")]
            return leading[0] if len(leading) == 1 else None
        return until("somebody leads", look)

    def level(self):
        """Whether all have applied the same."""
        found = [broker.raft() for broker in self.nodes.values()]
        return all(found) and len({row["applied"] for row in found} | {row["commit"] for row in found}) == 1

    def cpu(self):
        return sum(broker.cpu() for broker in self.nodes.values())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for broker in self.nodes.values():
            broker.child.terminate()
        for broker in self.nodes.values():
            broker.stop()


class Often:
    """Calls something again and again beside the script."""

    def __init__(self, call, pause):
        self.call, self.pause, self.over, self.calls = call, pause, threading.Event(), 0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over.wait(self.pause):
            self.call()
            self.calls += 1

    def end(self):
        self.over.set()
        self.thread.join()


class Peak(Often):
    """The highest anonymous RSS of a broker, of 20 looks a second."""

    def __init__(self, broker):
        self.broker, self.bytes = broker, 0
        super().__init__(self.look, 0.05)

    def look(self):
        self.bytes = max(self.bytes, self.broker.anonymous())
        self.broker.sink_cpu()


class Uploader(Process):
    """Sends objects of one size to the S3 server at a fixed pace, in a process of its own: the S3 server as busy as beside a
    sink, without a sink."""

    CODE = """
import http.client, os, sys, time
port, size, per_second, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
body, began, n = os.urandom(size), time.monotonic(), 0
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
while time.monotonic() - began < seconds:
    time.sleep(max(0.0, began + n / per_second - time.monotonic()))
    connection.request("PUT", f"/lake/control/{n}", body)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200, answer.status
    n += 1
"""

    def __init__(self, python, folder, port, object_bytes, per_second, seconds):
        words = [str(word) for word in (port, object_bytes, per_second, seconds)]
        super().__init__([python, "-c", self.CODE, *words], folder, log="uploader.log", idle=True)


class Loops(ExitStack):
    """Takes all the time of all cores that nobody else wants (SCHED_IDLE), and does nothing with it."""

    def __init__(self, python, folder, seconds):
        super().__init__()
        code = "import sys, time\nend = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end:\n for _ in range(1000): pass"
        for _ in range(os.cpu_count()):
            self.enter_context(Process([python, "-c", code, str(seconds)], folder, log="loops.log", idle=True))


def stolen():
    """Seconds, summed over all cores, for which this machine had work and its host did not run it."""
    return int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) / os.sysconf("SC_CLK_TCK")


def push_one(port, queue, number):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    body = json.dumps({"items": [{"queue": queue, "partition": "p", "payload": {"n": number}}]})
    connection.request("POST", "/api/v1/push", body, {"content-type": "application/json"})
    connection.getresponse().read()
    connection.close()
