#!/usr/bin/env python3
"""Measures a cluster on one machine: three nodes on loopback against one node alone, and planned stops of the leader.

    bench/cluster.py speed                 pushes to one node, then to the leader of three, in turn
    bench/cluster.py speed --to follower   the same, asking a node that does not lead
    bench/cluster.py stop                  how long nobody answers when the leader is stopped

`speed` prints a JSON line for each shape of load: medians of --rounds of messages a second and of CPU seconds per million
messages (of all nodes together), their ratios, and how long the slowest node needed after the load to apply all of it.
`--against PATH` measures another binary's single node in the same rounds. `stop` sends single pushes to a node that does not
lead, one after the other, while the leader is told to stop: the slowest of them is how long nobody could write.

Each line says under `holds` whether it is what docs/design/performance.md promises; the script ends with 1 if not. All load
goes to 127.0.0.1, bounded in messages, and everything that was started ends with the script. Needs target/release/queen.
"""
import argparse
import http.client
import json
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from rig import Broker, Three, until

ROOT = Path(__file__).resolve().parent.parent
# Clients, messages a request, messages in all.
SHAPES = {"32x100": (32, 100, 1_500_000), "32x1": (32, 1, 60_000), "128x1": (128, 1, 120_000)}
SHARE = 0.5
STOP_MS = 200
# Between two pushes of the one that watches a stop.
PAUSE = 0.002
missed = []


def report(cell, found, holds):
    missed.extend(f"{cell}: {what}" for what, held in holds.items() if not held)
    print(json.dumps({"cell": cell, **found, "holds": holds}), flush=True)


def load(broker, shape, scale, nodes):
    """One load; gives messages a second, CPU seconds per million messages of `nodes`, the median latency."""
    clients, batch, messages = SHAPES[shape]
    messages = round(messages * scale)
    words = ["push", "--clients", clients, "--partitions", clients, "--batch", batch, "--messages"]
    broker.bench(*words, messages // 10)  # connections, first files, caches
    before = nodes.cpu()
    found = broker.bench(*words, messages)
    return {"msg_per_s": found["msg_per_s"], "cpu_s_per_million": (nodes.cpu() - before) / messages * 1e6, "p50_ms": found["p50_ms"]}


def alone(args, queen, shape):
    with tempfile.TemporaryDirectory(prefix="queen-bench-", dir=args.dir) as folder, Broker(queen, folder) as broker:
        return load(broker, shape, args.scale, broker)


def three(args, shape):
    with tempfile.TemporaryDirectory(prefix="queen-bench-", dir=args.dir) as folder, Three(args.queen, folder) as nodes:
        leader = nodes.leader()
        asked = leader if args.to == "leader" else next(node for node in nodes.nodes if node != leader)
        found = load(nodes.nodes[asked], shape, args.scale, nodes)
        ended = time.monotonic()
        until("all nodes have applied all of it", nodes.level, 60, 0.01)
        return found | {"level_after_s": time.monotonic() - ended}


def medians(runs):
    return {key: round(statistics.median(run[key] for run in runs), 3) for key in runs[0]}


def speed(args):
    for shape in args.shapes.split(","):
        runs = {}
        for _ in range(args.rounds):
            runs.setdefault("one", []).append(alone(args, args.queen, shape))
            if args.against:
                runs.setdefault("against", []).append(alone(args, args.against, shape))
            if args.to != "none":
                runs.setdefault("three", []).append(three(args, shape))
        found = {kind: medians(of) for kind, of in runs.items()}
        holds = {}
        for kind in found.keys() - {"one"}:
            pairs = list(zip(runs[kind], runs["one"]))
            found[f"{kind}_to_one"] = {key: round(statistics.median(a[key] / b[key] for a, b in pairs), 3) for key in runs["one"][0]}
        if "three" in found:
            holds[f"three carry {SHARE} of one"] = found["three_to_one"]["msg_per_s"] >= SHARE
        report(f"speed {shape}, asking the {args.to}", found, holds)


class Writer:
    """Pushes one message after the other to a node, and keeps the slowest answer."""

    def __init__(self, port):
        self.port, self.over, self.slowest, self.sent, self.wrong = port, False, 0.0, 0, 0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        body = json.dumps({"items": [{"queue": "stops", "partition": "p", "payload": 1}]})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        while not self.over:
            began = time.monotonic()
            connection.request("POST", "/api/v1/push", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.sent += 1
            self.wrong += answer.status != 201
            time.sleep(PAUSE)


def stop(args):
    took, wrong = [], 0
    with tempfile.TemporaryDirectory(prefix="queen-bench-", dir=args.dir) as folder, Three(args.queen, folder) as nodes:
        for _ in range(args.stops):
            until("all are level", nodes.level, 60)
            leader = nodes.leader()
            writer = Writer(next(broker.port for node, broker in nodes.nodes.items() if node != leader))
            until("it writes", lambda w=writer: w.sent > 50)
            writer.slowest = 0.0
            nodes.nodes[leader].stop(signal.SIGTERM)
            new = nodes.leader()
            sent = writer.sent
            until("it writes again", lambda w=writer, s=sent: w.sent > s + 5)
            writer.over = True
            writer.thread.join()
            assert new != leader
            took.append(writer.slowest * 1000)
            wrong += writer.wrong
            nodes.start(leader)
            until("the node is back", nodes.nodes[leader].ready)
    took.sort()
    report("stop", {"stops": len(took), "median_ms": round(statistics.median(took), 1), "worst_ms": round(took[-1], 1),
                    "all_ms": [round(ms) for ms in took], "errors": wrong},
           {f"slowest write < {STOP_MS} ms": took[-1] < STOP_MS, "no error answer": wrong == 0})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cell", choices=["speed", "stop", "all"])
    parser.add_argument("--queen", type=Path, default=ROOT / "target/release/queen")
    parser.add_argument("--against", type=Path, default=None, help="another release's binary, whose single node is measured in the same rounds")
    parser.add_argument("--dir", default=None, help="where the data goes (default: the system's temporary folder)")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--to", choices=["leader", "follower", "none"], default="leader", help="the node of three that is asked; none: one node only")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the usual number of messages")
    parser.add_argument("--stops", type=int, default=20)
    args = parser.parse_args()
    if not args.queen.exists():
        sys.exit(f"{args.queen} is not there: cargo build --release -p queen")
    if args.cell in ("speed", "all"):
        speed(args)
    if args.cell in ("stop", "all"):
        stop(args)
    if missed:
        sys.exit("does not hold:\n  " + "\n  ".join(missed))


if __name__ == "__main__":
    main()
