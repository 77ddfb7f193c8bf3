"""Holds what clients were told against what a broker promises.

Owns: what is wrong with a history. Leaves to others: making one (`kills`, `workers`).

A history is the plan of each client, `[[partition, [id, ...]], ...]` in the order of its pushes, and the
records of each client, in the order in which it was answered, times in nanoseconds of one clock:

    {"pushed": [[id, offset], ...]}
    {"sent": t, "got": t, "popped": [[id, partition, intact], ...]}
    {"sent": t, "got": t, "acked": [[id, answer], ...]}

An answer to an ack is `done` (this ack settled the message), `noop` (a success: it was settled before),
`refused`, or `lost` (none came, so it may have counted). A client whose answer was lost asks again.

The promises:

- Each planned message is pushed, delivered with its own payload, and acked.
- Offsets of a partition have no gap, and the messages of each client lie in the order of its pushes.
- A delivery of a partition starts where its acks end, and has no gap: nothing is passed over that
  nobody tried to ack before, and nothing comes again after the answer to its ack.
- Of each message one ack is answered `done`. Another success, `noop`, is given only to a client that asks again, or
  that held the message for longer than its lease.
"""

from dataclasses import dataclass, field

NEVER = float("inf")
# The broker's clock may run faster than the machine's by a twentieth.
LEASE_SHARE = 0.95


@dataclass
class Message:
    """What is known of a message. Times: of its first settling answer, its first ack that may have counted."""

    client: str
    number: int
    partition: str
    offset: int | None = None
    deliveries: int = 0
    done: int = 0
    settled: float = NEVER
    tried: float = NEVER


@dataclass
class Verdict:
    """What was found: the faults in words, and sums for a last line."""

    faults: list = field(default_factory=list)
    pushed: int = 0
    delivered: int = 0
    again: int = 0
    acked: int = 0
    lost_answers: int = 0
    told_again: int = 0
    late: int = 0
    refused: int = 0


class Ledger:
    """A history, as far as it is known; `lease` in nanoseconds."""

    def __init__(self, plans, lease):
        self.lease = lease * LEASE_SHARE
        self.messages = {}
        self.pops = []
        self.verdict = Verdict()
        for client, runs in plans.items():
            ids = [(partition, id) for partition, run in runs for id in run]
            for number, (partition, id) in enumerate(ids):
                self.messages[id] = Message(client, number, partition)

    def fault(self, text):
        self.verdict.faults.append(text)

    def known(self, id, client, what):
        """The message of an id that was planned."""
        message = self.messages.get(id)
        if message is None:
            self.fault(f"{client} was told of {id}, {what}, which nobody pushes")
        return message

    def add(self, client, records):
        """Takes the records of one client, in their order."""
        asked_before, held_since = set(), {}
        for record in records:
            for id, offset in record.get("pushed", []):
                self.pushed(client, id, offset)
            if "popped" in record:
                self.pops.append((client, record))
                held_since.update((id, record["sent"]) for id, *_ in record["popped"])
            for id, answer in record.get("acked", []):
                is_late = record["got"] - held_since.get(id, record["got"]) >= self.lease
                self.acked(client, record, id, answer, asked_before, is_late)

    def pushed(self, client, id, offset):
        message = self.known(id, client, f"pushed at offset {offset}")
        if message is None:
            return
        if message.offset not in (None, offset):
            self.fault(f"{id} lies at two offsets of {message.partition}: {message.offset} and {offset}")
        message.offset = offset

    def acked(self, client, record, id, answer, asked_before, is_late):
        message = self.known(id, client, f"ack {answer}")
        if message is None:
            return
        if answer == "refused":
            self.verdict.refused += 1
            return
        message.tried = min(message.tried, record["sent"])
        if answer == "lost":
            self.verdict.lost_answers += 1
            asked_before.add(id)
            return
        message.settled = min(message.settled, record["got"])
        if answer == "done":
            message.done += 1
            if message.done == 2:
                self.fault(f"{id} was acked twice, the second time by {client}")
        elif id in asked_before:
            self.verdict.told_again += 1
        elif is_late:
            self.verdict.late += 1
        else:
            self.fault(f"{client} acked {id} for the first time and was told that it was settled before")

    def judge(self):
        """What is wrong, once all records are there."""
        partitions = {}
        for id, message in self.messages.items():
            if message.offset is None:
                self.fault(f"{id} was never pushed: {message.client} has no answer")
            else:
                self.verdict.pushed += 1
                partitions.setdefault(message.partition, []).append((message.offset, id))
        tried = {}
        for partition, places in partitions.items():
            tried[partition] = self.judge_partition(partition, sorted(places))
        for client, record in self.pops:
            self.judge_pop(client, record, tried)
        for id, message in self.messages.items():
            self.verdict.again += max(0, message.deliveries - 1)
            self.verdict.acked += message.settled != NEVER
            if message.offset is not None and message.deliveries == 0:
                self.fault(f"{id} is lost: pushed to {message.partition}, offset {message.offset}, never delivered")
            elif message.offset is not None and message.settled == NEVER:
                self.fault(f"{id} of {message.partition} was delivered and never acked")
        return self.verdict

    def judge_partition(self, partition, places):
        """Checks the offsets; gives for each, and the end, when all below had been acked by somebody, perhaps."""
        tried_below, last = [-NEVER], {}
        for expected, (offset, id) in enumerate(places):
            message = self.messages[id]
            if offset != expected:
                self.fault(f"{partition} has {id} at offset {offset} where {expected} is the next")
                break
            if last.get(message.client, -1) > message.number:
                self.fault(f"{partition} has {id} behind a message that {message.client} pushed later")
            last[message.client] = message.number
            tried_below.append(max(tried_below[-1], message.tried))
        return tried_below

    def judge_pop(self, client, record, tried):
        """Checks one answer of a pop: each partition's messages follow each other and its acks."""
        ends = {}
        for id, partition, intact in record["popped"]:
            message = self.known(id, client, "popped")
            self.verdict.delivered += 1
            if message is None:
                continue
            message.deliveries += 1
            offset = message.offset
            if partition != message.partition or not intact:
                what = "another payload" if partition == message.partition else f"partition {partition}"
                self.fault(f"{client} was given {id} of {message.partition} with {what}")
            if message.settled < record["sent"]:
                self.fault(f"{id} of {message.partition}, offset {offset}, came again to {client} after its ack")
            if offset is None:
                continue
            if partition in ends:
                if offset != ends[partition]:
                    self.fault(f"{client} was given offset {offset} of {partition} where {ends[partition]} is the next")
            elif offset >= len(tried.get(partition, [])) or tried[partition][offset] > record["got"]:
                self.fault(f"{client} was given offset {offset} of {partition} before all below it were acked")
            ends[partition] = offset + 1
