"""One Python process of `conformance/kills`: pushes its share, consumes, and writes down what it was told.

    python.py URL PLAN RECORDS

PLAN names queue, group, filling text and runs. RECORDS becomes the lines that `ledger` reads, in the order of
the answers; for each a line goes to standard output: what was done, and how often. It ends when its standard
input does.

Pushes and pops go through a client as it comes, which asks again by itself. Acks go through one that does not,
so that each answer that was lost is written down.
"""

import asyncio
import json
import sys
import threading
import time

import httpx
from queen import Queen

# The broker is down, or says that it has too much to do.
PAUSE_SECONDS = 0.2
# Of so many pops with messages one is left to the end of its lease, as by a worker that dies.
POPS_PER_FORGOTTEN_ONE = 50


class Worker:
    def __init__(self, url, plan, records):
        self.client = Queen(url)
        self.acker = Queen(url, retry_attempts=1)
        self.queue, self.group = plan["queue"], plan["group"]
        self.runs, self.text = plan["runs"], plan["text"]
        self.records = records
        self.over = False

    def wrote(self, record, what, count):
        self.records.write(json.dumps(record, separators=(",", ":")) + "\n")
        print(what, count, flush=True)

    def payload(self, id):
        return {"id": id, "text": self.text}

    async def push(self):
        for partition, ids in self.runs:
            items = [{"transactionId": id, "data": self.payload(id)} for id in ids]
            results = None
            while results is None:
                try:
                    results = await self.client.queue(self.queue).partition(partition).push(items)
                except httpx.HTTPStatusError as error:
                    if error.response.status_code < 500 and error.response.status_code != 429:
                        raise
                    await asyncio.sleep(PAUSE_SECONDS)
                except httpx.TransportError:
                    await asyncio.sleep(PAUSE_SECONDS)
            pushed = [[id, result["offset"]] for id, result in zip(ids, results, strict=True)]
            self.wrote({"pushed": pushed}, "pushed", len(pushed))

    async def consume(self):
        asking = self.client.queue(self.queue).group(self.group).subscription_mode("all")
        asking = asking.batch(100).partitions(16).wait(True).timeout_millis(1000)
        pops = 0
        while not self.over:
            sent = time.time_ns()
            # No answer at all is no message to this client.
            messages = await asking.pop()
            if messages:
                popped = [
                    [m["transactionId"], m["partition"], m["data"] == self.payload(m["transactionId"])]
                    for m in messages
                ]
                record = {"sent": sent, "got": time.time_ns(), "popped": popped}
                self.wrote(record, "popped", len(popped))
                pops += 1
                if pops % POPS_PER_FORGOTTEN_ONE != 0:
                    await self.ack(messages)

    async def ack(self, messages):
        ids = [m["transactionId"] for m in messages]
        results = None
        while results is None:
            sent = time.time_ns()
            answer = await self.acker.ack(messages, True, {"group": self.group})
            results = answer.get("results")
            answers = ["lost"] * len(ids) if results is None else [word(result) for result in results]
            acked = [list(pair) for pair in zip(ids, answers, strict=True)]
            settled = len(acked) - answers.count("lost") - answers.count("refused")
            self.wrote({"sent": sent, "got": time.time_ns(), "acked": acked}, "acked", settled)
            if results is None:
                await asyncio.sleep(PAUSE_SECONDS)

    def wait_for_the_end(self):
        sys.stdin.read()
        self.over = True

    async def work(self):
        # Beside the loop, so that an error ends the process at once.
        threading.Thread(target=self.wait_for_the_end, daemon=True).start()
        await asyncio.gather(self.push(), self.consume())
        await self.client.close()
        await self.acker.close()


def word(result):
    if not result["success"]:
        return "refused"
    return "noop" if result["noop"] else "done"


def main():
    url, plan, records = sys.argv[1:]
    with open(plan) as file:
        plan = json.load(file)
    with open(records, "w", buffering=1) as file:
        asyncio.run(Worker(url, plan, file).work())


if __name__ == "__main__":
    main()
