"""A trial of `tune`: it ends where it should, without the program's own end, and knows every loss."""

import json
import struct
import unittest

from support import MODEL, Case

TRAIN = """
import atexit, random
atexit.register(lambda: print("saved at exit"))
try:
    for step in range(1000):
        x = torch.randn(4, 8)
        optimizer.zero_grad()
        loss = loss_of(x, torch.ones(4, 1))
        loss.backward()
        optimizer.step()
        print("%.17g" % loss.item(), random.random())
finally:
    print("saved in finally")
"""


class TrialTest(Case):
    def trial(self, steps, source=MODEL + TRAIN, **wanted):
        environment = {"FULLWATT_TRIAL": json.dumps(wanted), "FULLWATT_STEPS": str(steps), "FULLWATT_WINDOWS": "off"}
        outcome = self.run_forked(source, environment=environment)
        self.assertEqual(outcome.code, 0, outcome.err)
        return outcome

    def test_it_ends_without_the_programs_own_end(self):
        outcome = self.trial(25)
        self.assertEqual(len(outcome.out.strip().split("\n")), 24)  # the 25th step ends inside optimizer.step()
        self.assertNotIn("saved", outcome.out)
        spool = outcome.spool()
        self.assertEqual(spool.header.step_count, 25)

    def test_every_loss_is_known(self):
        outcome = self.trial(30, losses=True)
        told = outcome.spool().of_kind("loss")
        printed = [float(line.split()[0]) for line in outcome.out.strip().split("\n")]
        self.assertEqual([record.b for record in told], list(range(1, 31)))
        self.assertEqual([value_of(record.a) for record in told][:29], printed)

    def test_seeds_move_together(self):
        first, again, other = self.trial(12, seed_offset=0), self.trial(12, seed_offset=0), self.trial(12, seed_offset=1)
        self.assertEqual(first.out, again.out)
        self.assertNotEqual(first.out, other.out)
        unseeded = MODEL.replace("torch.manual_seed(0)", "") + TRAIN
        self.assertEqual(self.trial(12, unseeded, seed_offset=3).out, self.trial(12, unseeded, seed_offset=3).out)

    def test_without_a_trial_the_program_ends_in_order(self):
        outcome = self.run_forked(MODEL + TRAIN, environment={"FULLWATT_STEPS": "25", "FULLWATT_WINDOWS": "off"})
        self.assertIn("saved in finally", outcome.out)
        self.assertIn("saved at exit", outcome.out)


def value_of(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


if __name__ == "__main__":
    unittest.main()
