#!/usr/bin/env python3
"""Measures the sink on one machine: a broker, a SeaweedFS server beside it, and loads of the shapes that hurt.

    bench/sink.py all                          every cell, one after the other
    bench/sink.py backfill --format parquet    one cell
    bench/sink.py shapes                       memory and files of queues of very different shapes

Cells: backfill, shapes, latency, beside (pushes beside a backfill). Each prints one JSON line per run; --reps runs them in
turn, so that a slow spell of the machine touches all alike. The loads go to 127.0.0.1 only, are bounded in records, and
everything that was started ends with the script. Needs target/release/queen, the `weed` of tests/requirements.txt
(.venv/bin/weed, or --weed), and nothing else than Python.

Sink CPU is that of the broker's threads named queen-s3; memory is anonymous RSS (the page cache of files is not counted),
the highest of 20 looks a second, above that of the same broker with the sink off.
"""
import argparse
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TICKS = os.sysconf("SC_CLK_TCK")
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
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
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

    def __init__(self, command, folder, env=None, log="log"):
        self.log = Path(folder) / log
        out = open(self.log, "ab")
        self.child = subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def stop(self, how=signal.SIGTERM):
        if self.child.poll() is None:
            self.child.send_signal(how)
            try:
                self.child.wait(60)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


class Weed(Process):
    def __init__(self, weed, folder):
        self.port = free_port()
        os.makedirs(f"{folder}/weed/data")
        identity = {"identities": [{"name": "queen", "credentials": [{"accessKey": "queen", "secretKey": SECRET}],
                                    "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}
        Path(f"{folder}/weed/s3.json").write_text(json.dumps(identity))
        command = [str(weed), "mini", f"-dir={folder}/weed/data", f"-s3.config={folder}/weed/s3.json", "-bucket=lake",
                   "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3.autoCreateBucket=false", "-admin.ui=false", "-webdav=false",
                   "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.port={self.port}"]
        command += [f"-{name}.port={free_port()}" for name in ("master", "volume", "filer", "admin")]
        super().__init__(command, f"{folder}/weed")
        until("SeaweedFS answers", self.ready)
        time.sleep(2)  # it makes its bucket a moment later, and nothing says when

    def ready(self):
        try:
            return get(self.port, "/healthz")[0] == 200
        except OSError:
            return False


class Broker(Process):
    def __init__(self, args, folder, sink=None):
        self.port = free_port()
        env = {key: value for key, value in os.environ.items() if not key.startswith("QUEEN_")}
        env |= {"PORT": str(self.port), "QUEEN_BIND_ADDR": "127.0.0.1", "QUEEN_RAFT_DIR": f"{folder}/data", "LOG_LEVEL": "warn",
                "QUEEN_RAFT_DISK_HIGH_PCT": "98", "QUEEN_RAFT_DISK_LOW_PCT": "97"}
        if sink is not None:
            env |= {"QUEEN_S3_EMBEDDED": "true", "QUEEN_S3_REGION": "us-east-1", "QUEEN_S3_BUCKET": "lake", "QUEEN_S3_PATH_STYLE": "true",
                    "QUEEN_S3_ACCESS_KEY": "queen", "QUEEN_S3_SECRET_KEY": SECRET, "QUEEN_S3_START": "earliest", "QUEEN_S3_QUEUES": "*"}
            env |= sink
        self.queen = args.queen
        super().__init__([str(args.queen), "serve"], folder, env)
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
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr}")
        return json.loads(done.stdout.strip().splitlines()[-1])

    def queues(self):
        status = json.loads(get(self.port, "/status")[1])
        sinks = status["s3"]["sinks"]
        return {row["name"]: row for row in sinks[0]["queues"]} if sinks else {}

    def sink_cpu(self):
        """CPU seconds of the sink's threads, those that ended not counted: the sink keeps its own."""
        total = 0
        for task in Path(f"/proc/{self.child.pid}/task").iterdir():
            try:
                if (task / "comm").read_text().startswith("queen-s3"):
                    fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
                    total += int(fields[11]) + int(fields[12])
            except OSError:
                continue
        return total / TICKS

    def anonymous(self):
        for line in Path(f"/proc/{self.child.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
        raise SystemExit("no RssAnon in /proc: is the broker still there?")

    def metric(self, name):
        text = get(self.port, "/metrics/prometheus")[1].decode()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name)}


class Peak:
    """The highest anonymous RSS while it runs."""

    def __init__(self, broker):
        self.broker, self.bytes, self.over = broker, 0, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over.wait(0.05):
            self.bytes = max(self.bytes, self.broker.anonymous())

    def end(self):
        self.over.set()
        self.thread.join()
        return self.bytes


def fill(args, folder, pushes):
    """Pushes with the sink off; gives the memory of the idle broker after a restart."""
    broker = Broker(args, folder)
    for words in pushes:
        broker.bench("push", *words)
    broker.stop()
    broker = Broker(args, folder)
    time.sleep(3)  # what it does after a start is over
    idle = broker.anonymous()
    broker.stop()
    return idle


def drain(broker, records, patience):
    """Waits until so many records are in the lake; gives wall seconds, CPU seconds, peak memory, rows of /status."""
    peak, began, cpu = Peak(broker), time.monotonic(), broker.sink_cpu()

    def done():
        rows = broker.queues()
        return rows if sum(row["records"] for row in rows.values()) >= records else None

    rows = until(f"{records} records are in the lake", done, patience)
    return time.monotonic() - began, broker.sink_cpu() - cpu, peak.end(), rows


def copied(args, name, pushes, records, record_bytes, env):
    """One backfill: fill, start the sink, wait, report."""
    with tempfile.TemporaryDirectory(prefix="queen-bench-", dir=args.dir) as folder:
        weed = None
        try:
            idle = fill(args, folder, pushes)
            weed = Weed(args.weed, folder)
            sink = {"QUEEN_S3_ENDPOINT": f"http://127.0.0.1:{weed.port}"} | env
            broker = Broker(args, folder, sink)
            wall, cpu, peak, rows = drain(broker, records, args.patience)
            mb = records * record_bytes / 1e6
            requests = broker.metric("queen_s3_s3_requests_total")
            puts = sum(value for key, value in requests.items() if 'op="put"' in key or "multipart" in key)
            windows = sum(row["windowsCommitted"] for row in rows.values())
            print(json.dumps({
                "cell": name, "records": records, "mb": round(mb), "wall_s": round(wall, 2), "mb_per_s": round(mb / wall, 1),
                "sink_cpu_s": round(cpu, 2), "mb_per_sink_cpu_s": round(mb / cpu, 1) if cpu else None,
                "sink_memory_mib": round((peak - idle) / 2**20), "idle_mib": round(idle / 2**20), "windows": windows,
                "puts_per_window": round(puts / windows, 2), "requests": sum(requests.values()),
                "object_bytes": sum(row["bytes"] for row in rows.values()),
            }), flush=True)
            broker.stop()
        finally:
            if weed:
                weed.stop()


# Partition, transaction id, stamp and field names: what a line holds beside the payload.
LINE = 138


def backfill(args):
    size = 200
    records = int(args.gib * 2**30 / (size + LINE))
    for format in args.format.split(","):
        # The last window is not full: it must not wait for five minutes.
        env = {"QUEEN_S3_FORMAT": format, "QUEEN_S3_MAX_WINDOW_MS": "2000"}
        copied(args, f"backfill {format}", [["--messages", records, "--size", size, "--partitions", 1000]], records, size + LINE, env)


def shapes(args):
    size = 200
    million = 1_000_000
    cells = {
        "1 partition": ([["--messages", int(args.gib * 2**29 / (size + LINE)), "--partitions", 1, "--size", size]], 1),
        "1,000 partitions": ([["--messages", 2 * million, "--partitions", 1000, "--size", size, "--spread"]], 1),
        "100,000 partitions": ([["--messages", 2 * million, "--partitions", 100_000, "--size", size, "--spread"]], 1),
        "10,000 partitions x 1 message": ([["--messages", 10_000, "--partitions", 10_000, "--size", size, "--spread"]], 1),
        "fifty queues": ([["--queue", f"q{i}", "--messages", 40_000, "--partitions", 1000, "--size", size, "--spread"] for i in range(50)], 50),
        "1 MB payloads": ([["--messages", 1000, "--partitions", 10, "--size", million, "--batch", 10, "--clients", 2]], 1),
    }
    for format in args.format.split(","):
        for name, (pushes, _) in cells.items():
            records = sum(words[words.index("--messages") + 1] for words in pushes)
            record_bytes = pushes[0][pushes[0].index("--size") + 1] + LINE
            env = {"QUEEN_S3_FORMAT": format, "QUEEN_S3_MAX_WINDOW_MS": "2000"}
            copied(args, f"{name}, {format}", pushes, records, record_bytes, env)
    idle_partitions(args)
    slow(args)


def idle_partitions(args):
    """What a window of ten records costs beside a million partitions that nobody writes to."""
    with tempfile.TemporaryDirectory(prefix="queen-bench-", dir=args.dir) as folder:
        weed = None
        try:
            many = 1_000_000
            fill(args, folder, [["--messages", many, "--partitions", many, "--size", 64, "--spread"]])
            weed = Weed(args.weed, folder)
            env = {"QUEEN_S3_ENDPOINT": f"http://127.0.0.1:{weed.port}", "QUEEN_S3_MAX_WINDOW_MS": "1000"}
            broker = Broker(args, folder, env)
            drain(broker, many, args.patience)
            before = broker.anonymous()
            cpu, records, began = broker.sink_cpu(), many, time.monotonic()
            windows = broker.queues()["bench"]["windowsCommitted"]
            for _ in range(10):
                broker.bench("push", "--messages", 10, "--clients", 1, "--batch", 10, "--partitions", 10)
                records += 10
                drain(broker, records, 60)
            row = broker.queues()["bench"]
            count = row["windowsCommitted"] - windows
            print(json.dumps({
                "cell": "1,000,000 idle partitions", "windows": count, "records_per_window": 100 / count,
                "sink_cpu_ms_per_window": round((broker.sink_cpu() - cpu) * 1000 / count, 1),
                "sink_memory_mib": round((broker.anonymous() - before) / 2**20), "wall_s": round(time.monotonic() - began, 1),
            }), flush=True)
            broker.stop()
        finally:
            if weed:
                weed.stop()


def slow(args):
    """A queue of one record a minute, sixty times as fast: a record a second, windows of five."""
    with tempfile.TemporaryDirectory(prefix="queen-bench-", dir=args.dir) as folder:
        weed = broker = None
        try:
            weed = Weed(args.weed, folder)
            env = {"QUEEN_S3_ENDPOINT": f"http://127.0.0.1:{weed.port}", "QUEEN_S3_MAX_WINDOW_MS": "5000"}
            broker = Broker(args, folder, env)
            cpu, began = broker.sink_cpu(), time.monotonic()
            for i in range(60):
                time.sleep(max(0.0, began + i - time.monotonic()))
                broker.bench("push", "--messages", 1, "--clients", 1, "--batch", 1, "--partitions", 1)
            drain(broker, 60, 60)
            row = broker.queues()["bench"]
            print(json.dumps({
                "cell": "1 record a minute (60 x as fast)", "records": row["records"], "windows": row["windowsCommitted"],
                "sink_cpu_s": round(broker.sink_cpu() - cpu, 2),
            }), flush=True)
        finally:
            for process in (broker, weed):
                if process:
                    process.stop()


def push_one(port, i):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    body = json.dumps({"items": [{"queue": "orders", "partition": "p", "payload": {"n": i}}]})
    connection.request("POST", "/api/v1/push", body, {"content-type": "application/json"})
    connection.getresponse().read()
    connection.close()


def latency(args):
    """From the push's start to the object's file, on an idle broker with windows of a second."""
    with tempfile.TemporaryDirectory(prefix="queen-bench-", dir=args.dir) as folder:
        port = free_port()
        env = {key: value for key, value in os.environ.items() if not key.startswith("QUEEN_")}
        env |= {"QUEEN_S3_QUEUES": "orders", "LOG_LEVEL": "warn"}
        command = [str(args.queen), "dev", "--dir", f"{folder}/dev", "--port", str(port), "--s3-port", "0", "--window-ms", "1000"]
        dev = Process(command, folder, env)
        try:
            def ready():
                try:
                    return get(port, "/health")[0] == 200
                except OSError:
                    return False
            until("queen dev is ready", ready)
            scope = "tenant=00000000-0000-0000-0000-000000000001/queue=orders"
            took = []
            for i in range(args.pushes):
                manifest = Path(f"{folder}/dev/lake/queen/_queen/{scope}/windows/{i + 1:010d}.json")
                began = time.monotonic()
                push_one(port, i)
                until("the window is in the bucket", manifest.exists, 30, 0.002)
                took.append(time.monotonic() - began)
            took.sort()
            print(json.dumps({"cell": "push to object, window 1 s", "pushes": len(took), "p50_s": round(took[len(took) // 2], 3),
                              "p99_s": round(took[int(len(took) * 0.99)], 3), "max_s": round(took[-1], 3)}), flush=True)
        finally:
            dev.stop()


def beside(args):
    """Latency of pushes without and with a backfill of another queue at the same time."""
    with tempfile.TemporaryDirectory(prefix="queen-bench-", dir=args.dir) as folder:
        weed = None
        try:
            size = 200
            records = int(args.gib * 2**30 / (size + LINE))
            fill(args, folder, [["--messages", records, "--size", size, "--partitions", 1000]])
            weed = Weed(args.weed, folder)
            load = ["--queue", "live", "--clients", 4, "--batch", 10, "--messages", 10**9, "--seconds", args.seconds]
            alone = Broker(args, folder)
            without = alone.bench("push", *load)
            alone.stop()
            env = {"QUEEN_S3_ENDPOINT": f"http://127.0.0.1:{weed.port}", "QUEEN_S3_QUEUES": "bench"}
            broker = Broker(args, folder, env)
            both = broker.bench("push", *load)
            row = broker.queues()["bench"]
            print(json.dumps({
                "cell": "pushes beside a backfill", "p50_ms": [without["p50_ms"], both["p50_ms"]], "p99_ms": [without["p99_ms"], both["p99_ms"]],
                "msg_per_s": [without["msg_per_s"], both["msg_per_s"]], "p99_ratio": round(both["p99_ms"] / without["p99_ms"], 2),
                "backfill_still_ran": row["lagSeconds"] != 0.0, "backfill_records": row["records"],
            }), flush=True)
            broker.stop()
        finally:
            if weed:
                weed.stop()


CELLS = {"backfill": backfill, "shapes": shapes, "latency": latency, "beside": beside}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cell", choices=[*CELLS, "all"])
    parser.add_argument("--queen", type=Path, default=ROOT / "target/release/queen")
    parser.add_argument("--weed", type=Path, default=ROOT / ".venv/bin/weed")
    parser.add_argument("--dir", default=None, help="where the data goes (default: the system's temporary folder)")
    parser.add_argument("--format", default="jsonl,parquet")
    parser.add_argument("--gib", type=float, default=4.0, help="size of a backfill, as lines of JSONL")
    parser.add_argument("--pushes", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--patience", type=float, default=600.0)
    parser.add_argument("--reps", type=int, default=1)
    args = parser.parse_args()
    for tool in (args.queen, args.weed):
        if not tool.exists():
            sys.exit(f"{tool} is not there: ./test builds the one and installs the other")
    if args.dir and shutil.disk_usage(args.dir).free < args.gib * 4 * 2**30:
        sys.exit(f"{args.dir} has not enough space for {args.gib} GiB of records")
    for _ in range(args.reps):
        for name, cell in CELLS.items():
            if args.cell in (name, "all"):
                cell(args)


if __name__ == "__main__":
    main()
