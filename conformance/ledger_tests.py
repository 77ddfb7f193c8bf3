#!/usr/bin/env python3
"""Tests of the ledger: a good history has no fault, and each planted fault is found by its own words."""

import copy
import sys
import unittest

sys.dont_write_bytecode = True  # nothing is written beside the sources

from ledger import Ledger

PLANS = {
    "a": [["p", ["a-0", "a-1"]], ["q", ["a-2"]], ["p", ["a-3"]]],
    "b": [["p", ["b-0"]]],
}
# Partition p: a-0, a-1, b-0, a-3. What a popped of it first was lost with its lease; b had its ack's answer
# lost, asked again, and was told that the messages are settled.
RECORDS = {
    "a": [
        {"pushed": [["a-0", 0], ["a-1", 1]]},
        {"pushed": [["a-2", 0]]},
        {"sent": 10, "got": 20, "popped": [["a-0", "p", True], ["a-1", "p", True], ["a-2", "q", True]]},
        {"sent": 21, "got": 22, "acked": [["a-0", "refused"], ["a-1", "refused"], ["a-2", "done"]]},
        {"pushed": [["a-3", 3]]},
        {"sent": 60, "got": 70, "popped": [["b-0", "p", True], ["a-3", "p", True]]},
        {"sent": 71, "got": 72, "acked": [["b-0", "done"], ["a-3", "done"]]},
    ],
    "b": [
        {"pushed": [["b-0", 2]]},
        {"sent": 30, "got": 40, "popped": [["a-0", "p", True], ["a-1", "p", True]]},
        {"sent": 41, "got": 45, "acked": [["a-0", "lost"], ["a-1", "lost"]]},
        {"sent": 46, "got": 50, "acked": [["a-0", "noop"], ["a-1", "noop"]]},
    ],
}


def judged(change=lambda records: None, plans=PLANS):
    records = copy.deepcopy(RECORDS)
    change(records)
    ledger = Ledger(plans, lease=100)
    for client, lines in records.items():
        ledger.add(client, lines)
    return ledger.judge()


class Faults(unittest.TestCase):
    def finds(self, words, change, plans=PLANS):
        faults = judged(change, plans).faults
        self.assertTrue(any(words in fault for fault in faults), f"{words!r} is not in {faults}")

    def test_a_good_history_has_none_and_is_summed_up(self):
        verdict = judged()
        self.assertEqual(verdict.faults, [])
        self.assertEqual((verdict.pushed, verdict.delivered, verdict.again, verdict.acked), (5, 7, 2, 5))
        self.assertEqual((verdict.lost_answers, verdict.told_again, verdict.refused), (2, 2, 2))

    def test_a_message_that_is_not_pushed_delivered_or_acked_is_found(self):
        self.finds("a-3 was never pushed", lambda r: r["a"].pop(4))
        self.finds("a-3 is lost", lambda r: r["a"][5]["popped"].pop())
        self.finds("a-3 of p was delivered and never acked", lambda r: r["a"][6]["acked"].pop())
        self.finds("a-3 of p was delivered and never acked", lambda r: r["a"][6]["acked"][1].__setitem__(1, "lost"))

    def test_what_nobody_pushed_or_is_not_what_was_pushed_is_found(self):
        self.finds("which nobody pushes", lambda r: r["a"][5]["popped"].append(["c-0", "p", True]))
        self.finds("a-2 of q with another payload", lambda r: r["a"][2]["popped"][2].__setitem__(2, False))
        self.finds("a-2 of q with partition p", lambda r: r["a"][2]["popped"][2].__setitem__(1, "p"))

    def test_a_gap_two_places_and_a_wrong_order_in_the_log_are_found(self):
        self.finds("has a-3 at offset 4 where 3 is the next", lambda r: r["a"][4]["pushed"][0].__setitem__(1, 4))
        self.finds("a-3 lies at two offsets of p: 3 and 4", lambda r: r["a"].append({"pushed": [["a-3", 4]]}))
        self.finds("has b-0 at offset 1 where 2", lambda r: r["b"][0]["pushed"][0].__setitem__(1, 1))
        turned = {**PLANS, "a": [["p", ["a-1", "a-0"]], ["q", ["a-2"]], ["p", ["a-3"]]]}
        self.finds("a-1 behind a message that a pushed later", lambda r: None, turned)

    def test_a_delivery_that_passes_over_something_or_turns_round_is_found(self):
        self.finds("offset 3 of p before all below it were acked", lambda r: r["a"][5]["popped"].pop(0))
        self.finds("offset 1 of p where 4 is the next", lambda r: r["a"][5]["popped"].append(["a-1", "p", True]))
        self.finds("offset 2 of p before", lambda r: r["a"][5].update(sent=30, got=40))
        self.finds("offset 1 of p before", lambda r: r["a"][2]["popped"].reverse())

    def test_a_delivery_after_its_ack_is_found(self):
        self.finds("a-0 of p, offset 0, came again to b", lambda r: r["b"].append(
            {"sent": 51, "got": 52, "popped": [["a-0", "p", True]]}))
        # On its way when the answer came, it is none.
        self.assertEqual(judged(lambda r: r["b"].append(
            {"sent": 49, "got": 52, "popped": [["a-0", "p", True]]})).faults, [])

    def test_a_second_ack_is_found_and_a_repeated_question_is_none(self):
        self.finds("a-2 was acked twice, the second time by b", lambda r: r["b"].append(
            {"sent": 80, "got": 81, "acked": [["a-2", "done"]]}))
        self.finds("a acked b-0 for the first time", lambda r: r["a"][6]["acked"][0].__setitem__(1, "noop"))
        self.finds("b acked a-0 for the first time and was told", lambda r: r["b"].pop(2))

    def test_an_ack_after_the_end_of_its_lease_may_be_told_that_another_has_settled(self):
        def slow(records, sent):
            records["c"] = [
                {"sent": sent, "got": 20, "popped": [["a-0", "p", True]]},
                {"sent": 90, "got": 96, "acked": [["a-0", "noop"]]},
            ]

        verdict = judged(lambda records: slow(records, 1))
        self.assertEqual((verdict.faults, verdict.late), ([], 1))
        self.finds("c acked a-0 for the first time", lambda records: slow(records, 2))


if __name__ == "__main__":
    unittest.main()
