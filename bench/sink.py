#!/usr/bin/env python3
"""Measures the sink on one machine: a broker, a SeaweedFS server beside it, and loads of the shapes that hurt.

    bench/sink.py all                          every cell, one after the other
    bench/sink.py backfill --format parquet    one cell
    bench/sink.py shapes --only idle           the shapes whose name holds the word

    backfill   4 GiB of records: speed, CPU, memory, requests
    shapes     memory and files of queues of very different shapes
    latency    from a push to its object
    beside     p99 of pushes at a fixed rate, without and with a backfill, beside loops that do nothing, and beside the S3 server alone
    archiver   CPU per GB, beside that of a consumer written in Python (--archiver names it)

Each prints one JSON line a run: what was found, and under `holds` whether it is what docs/design/performance.md promises.
The script ends with 1 if something does not hold. --reps runs the cells in turn, so that a slow spell of the machine touches
all alike. The loads go to 127.0.0.1 only, are bounded in records and in time, and everything that was started ends with the
script. Needs target/release/queen, the `weed` of tests/requirements.txt (.venv/bin/weed, or --weed), and nothing else than
Python.

Sink CPU is that of the broker's threads named queen-s3; memory is anonymous RSS (the page cache of files is not counted),
the highest of 20 looks a second, above that of the same broker with the sink off.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from rig import SECRET, Broker, Loops, Peak, Process, Uploader, Weed, free_port, get, push_one, stolen, until

ROOT = Path(__file__).resolve().parent.parent
MIB = 2**20
MEMORY_MIB = 256
TARGET_BYTES = 128 * MIB
# Partition, transaction id, stamp and field names: what a line holds beside the payload.
LINE = 138
# What a record weighs beside payload and name: s3-sink.md 2.3. An id that the broker mints is a UUID as text.
WEIGHT = 64 + 36
HOUR = 3_600_000_000
missed = []


def report(cell, found, holds):
    missed.extend(f"{cell}: {what}" for what, held in holds.items() if not held)
    print(json.dumps({"cell": cell, **found, "holds": holds}), flush=True)


def fill(args, folder, pushes):
    """Pushes with the sink off; gives the memory of the idle broker after a restart."""
    with Broker(args.queen, folder) as broker:
        for words in pushes:
            broker.bench("push", *words)
    with Broker(args.queen, folder) as broker:
        time.sleep(3)  # what it does after a start is over
        return broker.anonymous()


def drain(broker, records, patience):
    """Waits until so many records are in the lake; gives wall seconds, CPU seconds, peak memory, rows of /status."""
    peak, began, cpu = Peak(broker), time.monotonic(), broker.sink_cpu()

    def done():
        rows = broker.queues()
        return rows if sum(row["records"] for row in rows.values()) >= records else None

    try:
        rows = until(f"{records} records are in the lake", done, patience)
    finally:
        peak.end()
    return time.monotonic() - began, broker.sink_cpu() - cpu, max(peak.bytes, broker.anonymous()), rows


def value(words, name, default=None):
    return words[words.index(name) + 1] if name in words else default


def unpromised(manifests, record_weight, push_weight, window_us):
    """Windows that closed for no reason of s3-sink.md 2.3: neither full, nor old, nor at the hour. The last one is left out:
    the log goes on after it."""
    wrong = []
    for window in manifests[:-1]:
        weight = window["records"] * record_weight
        full = weight + push_weight > TARGET_BYTES * 0.98
        old = window["tEnd"] == window["minTs"] + window_us
        if not (full or old or window["tEnd"] % HOUR == 0):
            wrong.append(window["k"])
        if weight > TARGET_BYTES * 1.02 and window["records"] * record_weight > push_weight * 1.02:
            wrong.append(window["k"])
    return wrong


def copied(args, name, pushes, speed=None):
    """One backfill in each format: fill once; then start a sink, wait, look at what is in the lake, report."""
    window_ms = 30_000  # the last window is not full: it must not wait for five minutes
    records = sum(value(words, "--messages") for words in pushes)
    mb = sum(value(words, "--messages") * (value(words, "--size") + LINE) for words in pushes) / 1e6
    with tempfile.TemporaryDirectory(prefix="queen-bench-", dir=args.dir) as folder, ExitStack() as running:
        idle = fill(args, folder, pushes)
        weed = running.enter_context(Weed(args.weed, folder))
        for format in args.format.split(","):
            env = {"QUEEN_S3_ENDPOINT": f"http://127.0.0.1:{weed.port}", "QUEEN_S3_MAX_WINDOW_MS": str(window_ms),
                   "QUEEN_S3_FORMAT": format, "QUEEN_S3_SINK": format, "QUEEN_S3_PREFIX": format}
            with Broker(args.queen, folder, env) as broker:
                wall, cpu, peak, rows = drain(broker, records, args.patience)
                requests = broker.metric("queen_s3_s3_requests_total")
            puts = sum(count for key, count in requests.items() if 'op="put"' in key)
            parts = sum(count for key, count in requests.items() if "multipart" in key)
            windows, wrong, objects, ranges, hours, sizes = 0, [], 0, 0, 0, []
            for words in pushes:
                queue, size = value(words, "--queue", "bench"), value(words, "--size")
                count = rows[queue]["windowsCommitted"]
                manifests = weed.manifests(queue, count, format)
                weight = WEIGHT + len(f"p{value(words, '--partitions')}") + size
                push_weight = weight * value(words, "--batch", 100)
                wrong += [f"{queue}/{k}" for k in unpromised(manifests, weight, push_weight, window_ms * 1000)]
                windows += count
                objects += sum(len(window["objects"]) for window in manifests)
                ranges += sum("rangesObject" in window for window in manifests)
                hours += len({window["minTs"] // HOUR for window in manifests})  # each may have ended by now: a file of its own
                sizes += [window["records"] for window in manifests[:-1]]
            memory = (peak - idle) / MIB
            report(f"{name}, {format}", {
                "records": records, "mb": round(mb), "wall_s": round(wall, 2), "mb_per_s": round(mb / wall, 1),
                "sink_cpu_s": round(cpu, 2), "mb_per_sink_cpu_s": round(mb / cpu, 1) if cpu else None,
                "sink_memory_mib": round(memory), "idle_mib": round(idle / MIB), "windows": windows,
                "records_a_window": [min(sizes), max(sizes)] if sizes else [], "unpromised_windows": wrong,
                "puts": puts, "multipart": parts, "requests": sum(requests.values()),
                "object_bytes": sum(row["bytes"] for row in rows.values()),
            }, {
                f"memory <= {MEMORY_MIB} MiB": memory <= MEMORY_MIB,
                "windows close as promised": not wrong,
                "1 object + 1 manifest a window": objects == windows and (parts > 0 or 0 <= puts - 2 * windows - ranges <= hours),
            } | ({f"{speed} MB/s": mb / wall >= speed} if speed else {}))


def backfill(args):
    size = 200
    records = int(args.gib * 2**30 / (size + LINE))
    copied(args, "backfill", [pushes_of(size, records, 1000)], 150)


def pushes_of(size, messages, partitions, *more):
    return ["--messages", messages, "--partitions", partitions, "--size", size, *more]


def spread_of(size, messages, partitions, *more):
    """Each record to the next partition. One client: several would begin at partitions close together and leave most out."""
    return pushes_of(size, messages, partitions, "--spread", "--clients", 1, "--batch", 1000, *more)


def shapes(args):
    small, million = 200, 1_000_000
    backlog = int(args.gib * 2**29 / (small + LINE))
    cells = {
        "one partition, half the backlog": [pushes_of(small, backlog, 1)],
        "1,000 partitions": [pushes_of(small, 2 * million, 1000, "--spread")],
        "100,000 partitions": [spread_of(small, 2 * million, 100_000)],
        "1,000,000 partitions x 1 record": [spread_of(64, million, million)],
        "10,000 partitions x 1 message": [spread_of(small, 10_000, 10_000)],
        "fifty queues": [pushes_of(small, 40_000, 1000, "--spread", "--queue", f"q{i}") for i in range(50)],
        "1 MB payloads": [pushes_of(million, 1000, 10, "--batch", 10, "--clients", 2)],
    }
    for name, pushes in cells.items():
        if args.only in name:
            copied(args, name, pushes)
    for name, cell in {"idle partitions": idle_partitions, "slow queue": slow}.items():
        if args.only in name:
            cell(args)


def idle_partitions(args):
    """What a window of ten records costs beside a million partitions that nobody writes to, and what in a queue of ten."""
    many = 1_000_000
    with tempfile.TemporaryDirectory(prefix="queen-bench-", dir=args.dir) as folder, ExitStack() as running:
        fill(args, folder, [spread_of(64, many, many)])
        weed = running.enter_context(Weed(args.weed, folder))
        env = {"QUEEN_S3_ENDPOINT": f"http://127.0.0.1:{weed.port}", "QUEEN_S3_MAX_WINDOW_MS": "1000"}
        broker = running.enter_context(Broker(args.queen, folder, env))
        live = ["--messages", 10, "--clients", 1, "--batch", 10, "--partitions", 10]
        broker.bench("push", "--queue", "few", *live)
        records = many + 10
        drain(broker, records, args.patience)
        before = broker.anonymous()
        cpu, windows = {"bench": 0.0, "few": 0.0}, {"bench": 0, "few": 0}
        for _ in range(10):
            for queue in cpu:
                began, count = broker.sink_cpu(), broker.queues()[queue]["windowsCommitted"]
                broker.bench("push", "--queue", queue, *live)
                records += 10
                drain(broker, records, 60)
                cpu[queue] += broker.sink_cpu() - began
                windows[queue] += broker.queues()[queue]["windowsCommitted"] - count
        many_ms, few_ms = (cpu[queue] * 1000 / windows[queue] for queue in ("bench", "few"))
        report("1,000,000 idle partitions", {
            "windows": windows, "sink_cpu_ms_per_window": round(many_ms, 2), "of_a_queue_of_ten": round(few_ms, 2),
            "memory_growth_mib": round((broker.anonymous() - before) / MIB),
        }, {"a window costs at most 1.5 x one of ten partitions": many_ms <= few_ms * 1.5, "one window a push": windows["bench"] == 10})


def slow(args):
    """A queue whose records come farther apart than its windows are long: one of 1 record a minute, thirty times as fast."""
    with tempfile.TemporaryDirectory(prefix="queen-bench-", dir=args.dir) as folder, ExitStack() as running:
        weed = running.enter_context(Weed(args.weed, folder))
        env = {"QUEEN_S3_ENDPOINT": f"http://127.0.0.1:{weed.port}", "QUEEN_S3_MAX_WINDOW_MS": "1000"}
        broker = running.enter_context(Broker(args.queen, folder, env))
        peak, cpu, began, count = Peak(broker), broker.sink_cpu(), time.monotonic(), 30
        for i in range(count):
            time.sleep(max(0.0, began + 2 * i - time.monotonic()))
            push_one(broker.port, "bench", i)
        drain(broker, count, 60)
        peak.end()
        manifests = weed.manifests("bench", broker.queues()["bench"]["windowsCommitted"])
        ages = {window["tEnd"] - window["minTs"] for window in manifests if window["tEnd"] % HOUR}
        requests = sum(broker.metric("queen_s3_s3_requests_total").values())
        report("slow queue: a record every 2 s, windows of 1 s", {
            "records": count, "windows": len(manifests), "ages_us": sorted(ages), "requests": requests,
            "sink_cpu_ms_per_window": round((broker.sink_cpu() - cpu) * 1000 / count, 2),
        }, {
            "a record is a window": [window["records"] for window in manifests] == [1] * count,
            "age counts from the record": ages == {1_000_000},
            "2 requests a window": requests <= 2 * count + 4,
        })


def latency(args):
    """From the push's start to the object's file, on an idle broker with windows of a second."""
    with tempfile.TemporaryDirectory(prefix="queen-bench-", dir=args.dir) as folder:
        port = free_port()
        env = {key: value for key, value in os.environ.items() if not key.startswith("QUEEN_")}
        env |= {"QUEEN_S3_QUEUES": "orders", "LOG_LEVEL": "warn"}
        command = [str(args.queen), "dev", "--dir", f"{folder}/dev", "--port", str(port), "--s3-port", "0", "--window-ms", "1000"]

        def ready():
            try:
                return get(port, "/health")[0] == 200
            except OSError:
                return False

        with Process(command, folder, env):
            until("queen dev is ready", ready)
            scope = "tenant=00000000-0000-0000-0000-000000000001/queue=orders"
            took = []
            for i in range(args.pushes):
                manifest = Path(f"{folder}/dev/lake/queen/_queen/{scope}/windows/{i + 1:010d}.json")
                began = time.monotonic()
                push_one(port, "orders", i)
                until("the window is in the bucket", manifest.exists, 30, 0.002)
                took.append(time.monotonic() - began)
            took.sort()
            p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
            report("push to object, window 1 s", {"pushes": len(took), "p50_s": round(p50, 3), "p99_s": round(p99, 3), "max_s": round(took[-1], 3)},
                   {"p50 <= 1.3 s": p50 <= 1.3, "p99 <= 2 s": p99 <= 2.0})


def beside(args):
    """Pushes at a fixed rate, in turn: alone, beside loops that do nothing on every core, beside a backfill of another queue, beside
    an S3 server as busy as then but fed by somebody else. The latency of a push counts from when it was due.

    A backfill fills the cores. On a machine that is one of several on a host that alone may stop pushes for milliseconds (`stolen_s`),
    whatever it is that fills them: what the sink adds is what it costs above the loops, which run at the lowest priority there is."""
    size = 200
    records = int(args.gib * 2**30 / (size + LINE))
    with tempfile.TemporaryDirectory(prefix="queen-bench-", dir=args.dir) as folder, ExitStack() as running:
        fill(args, folder, [pushes_of(size, records, 1000)])
        apart = running.enter_context(tempfile.TemporaryDirectory(prefix="queen-bench-", dir=args.weed_dir)) if args.weed_dir else folder
        weed = running.enter_context(Weed(args.weed, apart, idle=True))
        load = ["--queue", "live", "--clients", 4, "--batch", 10, "--messages", 10**9]
        with Broker(args.queen, folder) as broker:
            most = broker.bench("push", *load, "--seconds", 5)["msg_per_s"]
        rate = args.rate or int(most * 0.3)
        load += ["--rate", rate, "--seconds", args.seconds]

        def measured(broker):
            before = stolen()
            return broker.bench("push", *load) | {"stolen_s": stolen() - before}

        def without_sink(other=None):
            with Broker(args.queen, folder) as broker:
                # What the load before left in the page cache would be written beside this one, and its syncs wait for that.
                os.sync()
                time.sleep(2)
                with other() if other else ExitStack():
                    return measured(broker)

        found = {"alone": [], "loops": [], "backfill": [], "s3 server": []}
        copied_mb, ran_out = [], 0
        for rep in range(args.turns):
            found["alone"].append(without_sink())
            found["loops"].append(without_sink(lambda: Loops(sys.executable, folder, args.seconds + 5)))
            # A sink of its own copies all from the start.
            env = {"QUEEN_S3_ENDPOINT": f"http://127.0.0.1:{weed.port}", "QUEEN_S3_QUEUES": "bench", "QUEEN_S3_FORMAT": args.format.split(",")[0],
                   "QUEEN_S3_SINK": f"rep{rep}", "QUEEN_S3_PREFIX": f"rep{rep}"}
            os.sync()
            with Broker(args.queen, folder, env) as broker:
                time.sleep(2)
                before = broker.queues()["bench"]
                found["backfill"].append(measured(broker))
                row = broker.queues()["bench"]
            windows = row["windowsCommitted"] - before["windowsCommitted"]
            copied_mb.append(round((row["records"] - before["records"]) * (size + LINE) / 1e6 / args.seconds))
            ran_out += row["records"] >= records
            if windows:
                object_bytes = (row["bytes"] - before["bytes"]) // windows
                pace = windows / args.seconds
                found["s3 server"].append(without_sink(lambda: Uploader(sys.executable, folder, weed.port, object_bytes, pace, args.seconds + 1)))
        keys = ("p50_ms", "p99_ms", "p99.9_ms", "msg_per_s", "stolen_s")
        middle = {what: {key: round(statistics.median(run[key] for run in runs), 3) for key in keys} for what, runs in found.items() if runs}
        p99 = {what: row["p99_ms"] for what, row in middle.items()}
        report("pushes beside a backfill", {
            "msg_per_s": rate, "closed_loop_msg_per_s": most, **middle,
            "p99_ratio": {what: round(p99["backfill"] / p99[what], 2) for what in p99 if what != "backfill"},
            "p99_ms": {what: [round(run["p99_ms"], 1) for run in runs] for what, runs in found.items()},
            "backfill_mb_per_s": copied_mb, "backfill_ended_early": ran_out,
        }, {"p99 <= 1.5 x of the same cores kept full by nothing": p99["backfill"] <= 1.5 * max(p99["alone"], p99["loops"]),
            "the backfill ran all the time": ran_out == 0 and min(copied_mb) > 0})


def archiver(args):
    """CPU per GB of payloads: the sink's threads against a whole Python consumer, each with the same number of records of 256
    bytes, in 32 partitions, into the same S3 server. It speaks NATS and Redis, not the broker's HTTP: `--src memory` gives it
    its records for nothing but the making, with --redis they come from a Redis stream."""
    if not args.archiver:
        print("archiver: left out, --archiver does not name the program", file=sys.stderr)
        return
    size, records = 256, int(args.gib * 2**28 / 256)
    with tempfile.TemporaryDirectory(prefix="queen-bench-", dir=args.dir) as folder, ExitStack() as running:
        fill(args, folder, [pushes_of(size, records, 32)])
        weed = running.enter_context(Weed(args.weed, folder))
        gb = records * size / 1e9
        for format, theirs in {"jsonl": "jsonl.zst", "parquet": "parquet"}.items():
            env = {"QUEEN_S3_ENDPOINT": f"http://127.0.0.1:{weed.port}", "QUEEN_S3_QUEUES": "bench", "QUEEN_S3_FORMAT": format,
                   "QUEEN_S3_SINK": format, "QUEEN_S3_PREFIX": format, "QUEEN_S3_MAX_WINDOW_MS": "2000"}
            with Broker(args.queen, folder, env) as broker:
                # The CPU before the first look counts too.
                _, _, _, _ = drain(broker, records, args.patience)
                ours = broker.sink_cpu() / gb
            found = {"records": records, "sink_cpu_s_per_gb": round(ours, 2)}
            holds = {}
            for source in ["memory", *(["redis"] if args.redis else [])]:
                other = consumer(args, folder, weed, source, theirs, records) / gb
                found |= {f"archiver_{source}_cpu_s_per_gb": round(other, 2), f"ratio_{source}": round(other / ours, 1)}
                holds[f"8 x less than a consumer ({source})"] = other / ours >= 8
            report(f"archiver, {format}", found, holds)


def consumer(args, folder, weed, source, format, records):
    """CPU seconds of the Python consumer."""
    command = [str(args.archiver_python), str(args.archiver), "--src", source, "--s3", f"http://127.0.0.1:{weed.port}", "--bucket", "lake",
               "--format", format, "--count", str(records), "--payload", "256", "--key", "queen", "--secret", SECRET, "--stream", f"{source}-{format}"]
    with ExitStack() as running:
        if source == "redis":
            port = free_port()
            os.makedirs(f"{folder}/redis", exist_ok=True)
            running.enter_context(Process([str(args.redis), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", f"{folder}/redis"], folder))
            subprocess.run([str(args.archiver_python), "-c", REDIS_FILL, str(port), f"{source}-{format}", str(records)], check=True, timeout=args.patience)
            command += ["--addr", f"127.0.0.1:{port}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=args.patience)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    line = json.loads(done.stdout.strip().splitlines()[-1])
    if line["records"] < records:
        raise SystemExit(f"the consumer took {line['records']} of {records} records")
    return line["cpu_s_per_mrec"] * records / 1e6


REDIS_FILL = """
import redis, sys, time
port, stream, records = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
r = redis.Redis(port=port)
for _ in range(200):
    try:
        r.ping()
        break
    except redis.ConnectionError:
        time.sleep(0.05)
for i in range(32):
    r.xgroup_create(f"{stream}.p{i}", "g", id="0", mkstream=True)
pipe, n = r.pipeline(transaction=False), 0
for n in range(records):
    head = '{"n":%d,"t":"%08x' % (n, n * 2654435761 % 2**32)
    pipe.xadd(f"{stream}.p{n % 32}", {"d": head + "x" * (254 - len(head)) + '"}'})
    if n % 1000 == 999:
        pipe.execute()
pipe.execute()
"""

CELLS = {"backfill": backfill, "shapes": shapes, "latency": latency, "beside": beside, "archiver": archiver}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cell", choices=[*CELLS, "all"])
    parser.add_argument("--queen", type=Path, default=ROOT / "target/release/queen")
    parser.add_argument("--weed", type=Path, default=ROOT / ".venv/bin/weed")
    parser.add_argument("--weed-dir", default=None, help="where the S3 server of `beside` keeps its objects: a bucket has a disk of its own (default: --dir)")
    parser.add_argument("--dir", default=None, help="where the data goes (default: the system's temporary folder)")
    parser.add_argument("--format", default="jsonl,parquet")
    parser.add_argument("--gib", type=float, default=4.0, help="size of a backfill, as lines of JSONL")
    parser.add_argument("--only", default="", help="of the shapes, those whose name holds this")
    parser.add_argument("--pushes", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--turns", type=int, default=3, help="how often `beside` measures each load; it reports medians")
    parser.add_argument("--rate", type=int, default=None, help="pushed messages a second in `beside` (default: 30 %% of what four clients reach)")
    parser.add_argument("--archiver", type=Path, default=None)
    parser.add_argument("--archiver-python", type=Path, default=Path(sys.executable), help="a Python with boto3, pyarrow, zstandard, and redis for --redis")
    parser.add_argument("--redis", type=Path, default=None, help="a redis-server for the archiver to read from")
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
    if missed:
        sys.exit("does not hold:\n  " + "\n  ".join(missed))


if __name__ == "__main__":
    main()
