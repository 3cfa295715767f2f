"""The sample cache in trainings: what it serves is what the loader would give, to the bit, and what it cannot serve it leaves alone."""

import json
import os
import unittest

from fixes_test import FixCase


class CacheTest(FixCase):
    DATA = """
import torch
class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.fetched = 0
        self.values = torch.arange(64 * 8, dtype=torch.float32).reshape(64, 8) / 512
    def __len__(self):
        return 64
    def __getitem__(self, i):
        self.fetched += 1
        return {"x": self.values[i], "y": float(i % 3)}
torch.manual_seed(0)
data = Data()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""
    LOOP = """
loader = torch.utils.data.DataLoader(data, batch_size=6, shuffle=True)
for epoch in range(4):
    for batch in loader:
        loss = ((model(batch["x"]).squeeze(1) - batch["y"].float()) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("%.17g" % loss.item(), batch["y"].dtype)
print(torch.rand(1).item())
"""
    CACHE = {"id": "sample-cache", "gigabytes": 1}

    def test_batches_come_from_memory_and_everything_stays_to_the_bit(self):
        plain = self.train([], self.DATA + self.LOOP)
        cached = self.train([self.CACHE], self.DATA + self.LOOP + "print(data.fetched)")
        self.assert_in_force(cached, "sample-cache")
        self.assertIn("64 samples", self.fix(cached, "sample-cache")["text"])
        lines = cached.out.strip().split("\n")
        self.assertEqual(lines[:-1], plain.out.strip().split("\n"))
        self.assertEqual(lines[-1], "64")  # each once; probes and audits have a copy of their own

    def test_a_loader_that_is_made_anew_finds_what_was_packed(self):
        for made in ("batch_size=6, shuffle=True", "batch_size=6, shuffle=True, collate_fn=lambda samples: torch.utils.data.default_collate(samples)"):
            loop = self.LOOP.replace("for batch in loader:", "for batch in torch.utils.data.DataLoader(data, %s):" % made)
            plain = self.train([], self.DATA + loop)
            cached = self.train([self.CACHE], self.DATA + loop + "print(data.fetched)")
            self.assert_in_force(cached, "sample-cache")
            self.assertEqual(cached.out, plain.out + "64\n", made)

    def test_loaders_that_read_it_in_other_ways_have_samples_of_their_own(self):
        twice = self.LOOP.replace("for batch in loader:", """doubled = lambda samples: {"x": 2 * torch.stack([s["x"] for s in samples]), "y": torch.tensor([s["y"] for s in samples])}
    for batch in torch.utils.data.DataLoader(data, batch_size=6, shuffle=True, collate_fn=doubled if epoch % 2 else None):""")
        plain, cached = self.train([], self.DATA + twice), self.train([self.CACHE], self.DATA + twice)
        self.assert_in_force(cached, "sample-cache")
        self.assertEqual(cached.out, plain.out)

    def test_a_data_set_for_every_epoch_is_packed_no_more(self):
        loop = self.LOOP.replace("for batch in loader:", "for batch in torch.utils.data.DataLoader(Data(), batch_size=6, shuffle=True):")
        plain, cached = self.train([], self.DATA + loop), self.train([self.CACHE], self.DATA + loop)
        self.assertEqual(cached.out, plain.out)
        self.assertEqual(self.fix(cached, "sample-cache")["state"], "undone")
        self.assertIn("made anew for every epoch", self.fix(cached, "sample-cache")["text"])

    def test_packed_samples_end_with_their_data_set(self):
        """Also where it knows itself, or is known to what makes its batches."""
        ends = "\nimport gc, weakref\nof_data = weakref.ref(data)\ndel data, loader, batch\ngc.collect()\nprint(of_data() is None)\n"
        collating = self.LOOP.replace("shuffle=True", "shuffle=True, collate_fn=data.collate").replace(
            "loader =", "Data.collate = lambda self, samples: torch.utils.data.default_collate(samples)\nloader =")  # fmt: skip
        for loop in (self.LOOP, "data.itself = data\n" + self.LOOP, collating):
            cached = self.train([self.CACHE], self.DATA + loop + ends)
            self.assert_in_force(cached, "sample-cache")
            self.assertEqual(cached.out.strip().split("\n")[-1], "True", loop)

    def test_batches_that_are_made_ahead_are_the_same(self):
        for given in ("shuffle=True", "sampler=torch.utils.data.WeightedRandomSampler([1.0] * 64, 30)", "sampler=torch.utils.data.RandomSampler(data, generator=shared)"):
            shared = "shared = torch.Generator()\nshared.manual_seed(3)\n"
            source = self.DATA + shared + self.LOOP.replace("shuffle=True", given) + "print(torch.rand(1, generator=shared).item())\n"
            left = source + "next(iter(loader))\nimport gc, threading, time\ngc.collect()\ntime.sleep(0.6)\nprint([t.name for t in threading.enumerate() if 'ahead' in t.name])\n"
            plain, cached = self.train([], source), self.train([dict(self.CACHE, ahead=True)], left)
            self.assert_in_force(cached, "sample-cache")
            self.assertEqual(cached.out, plain.out + "[]\n", given)

    def test_workers_pack_and_the_losses_stay(self):
        loop = self.LOOP.replace("shuffle=True", "shuffle=True, num_workers=2")
        plain = self.train([], self.DATA + loop)
        cached = self.train([dict(self.CACHE, workers=2)], self.DATA + loop)
        self.assert_in_force(cached, "sample-cache")
        self.assertEqual(cached.out, plain.out)

    def test_names_and_tensors_of_different_sizes_are_packed_too(self):
        named = self.DATA.replace('"y": float(i % 3)', '"y": float(i % 3), "name": "sample %d" % i, "boxes": (torch.ones(i % 5, 4) * i, None)')
        collate = """
def collate(samples):
    return {"x": torch.stack([sample["x"] for sample in samples]), "y": torch.tensor([sample["y"] for sample in samples]),
            "name": [sample["name"] for sample in samples], "boxes": tuple(sample["boxes"] for sample in samples)}
"""
        for workers in (0, 2):
            loop = self.LOOP.replace("shuffle=True", "shuffle=True, collate_fn=collate, num_workers=%d" % workers)
            loop = loop.replace("        optimizer.step()", "        print(batch['name'], [float(boxes.sum()) for boxes, _ in batch['boxes']])\n        batch['boxes'][0][0].zero_()\n        optimizer.step()")
            plain, cached = self.train([], named + collate + loop), self.train([dict(self.CACHE, ahead=True, workers=workers)], named + collate + loop)
            self.assertIn("sample 63", plain.out)
            self.assert_in_force(cached, "sample-cache")
            self.assertEqual(cached.out, plain.out)

    def try_for(self, steps, source):
        plan = os.path.join(self.scratch, "plan.json")
        with open(plan, "w") as file:
            json.dump({"fixes": [self.CACHE]}, file)
        return self.run_forked(source, environment={"FULLWATT_PLAN": plan, "FULLWATT_TRIAL": "{}", "FULLWATT_STEPS": str(steps), "FULLWATT_WINDOWS": "off"})

    def test_a_trial_packs_what_its_steps_need(self):
        plain = self.train([], self.DATA + self.LOOP)
        data = self.DATA.replace("64 * 8", "6400 * 8").replace("reshape(64, 8)", "reshape(6400, 8)").replace("return 64", "return 6400")
        outcome = self.try_for(3, data + self.LOOP)
        self.assertIn("138 samples", self.fix(outcome, "sample-cache")["text"])  # 23 batches of 6
        whole = self.train([], data + self.LOOP.replace("range(4)", "range(1)"))
        self.assertEqual(outcome.out.split("\n")[:2], whole.out.split("\n")[:2])
        self.assertNotEqual(plain.out.split("\n")[:2], whole.out.split("\n")[:2])

    def test_two_loaders_in_a_trial_have_each_what_its_steps_need(self):
        pairs = self.LOOP.replace("for batch in loader", "for batch, other in zip(loader, torch.utils.data.DataLoader(data, batch_size=12, shuffle=True))")
        outcome = self.try_for(2, self.DATA.replace("64", "640") + pairs.replace('batch["y"].float()', 'other["y"].float()[:6]'))
        told = [fact["text"] for fact in outcome.facts("fix") if fact["state"] == "in-force"]
        self.assertEqual([text.split(" samples")[0] for text in told[:2]], ["132", "264"])  # 22 batches

    def test_a_trial_refuses_what_would_not_fit_as_a_whole(self):
        data = self.DATA.replace("return 64", "return 20000").replace("self.values[i]", "self.values[i % 64]").replace('{"x"', '{"large": torch.zeros(1 << 14), "x"')
        outcome = self.try_for(3, data + self.LOOP)
        self.assert_refused(outcome, "sample-cache", "its 20000 samples take 1.3 GB, and there is room for")

    def test_a_trial_of_several_epochs_packs_all(self):
        outcome = self.try_for(25, self.DATA + self.LOOP.replace("shuffle=True", "shuffle=True, drop_last=True"))
        self.assertIn("64 samples", self.fix(outcome, "sample-cache")["text"])  # the 4 that the first epoch leaves out, too

    def test_random_samples_are_refused(self):
        """And what was drawn to find out is put back, also in generators of the data set's own."""
        seed = "import numpy, random\nrandom.seed(1)\nnumpy.random.seed(1)\n"
        for draw, own in (("torch.rand(1)", ""), ("random.random()", ""), ("numpy.random.rand()", ""), ("self.own.random()", "random.Random(1)"),
                          ("self.own[0].normal()", "[numpy.random.default_rng(1)]"), ("self.own.rand()", "numpy.random.RandomState(1)"),
                          ("torch.rand(1, generator=self.own)", "torch.Generator().manual_seed(1)")):
            data = seed + self.DATA.replace('"y": float(i % 3)', '"y": float(%s)' % draw).replace("self.fetched = 0", "self.fetched = 0\n        self.own = %s" % (own or None))
            outcome = self.train([self.CACHE], data + self.LOOP)
            self.assert_refused(outcome, "sample-cache", "at random")
            self.assertEqual(outcome.out, self.train([], data + self.LOOP).out, draw)

    def test_a_collate_function_that_makes_samples_alike_is_asked_once(self):
        data = self.DATA.replace("self.values[i]", "self.values[i][:4 + i // 40]").replace("Linear(8", "Linear(4")
        loop = self.LOOP.replace("shuffle=True", "collate_fn=lambda all: {'x': torch.stack([one['x'][:4] for one in all]) if len({len(one['x']) for one in all}) > 1 else "
                                 "torch.stack([one['x'] for one in all])[:, :4], 'y': torch.tensor([one['y'] for one in all])}")
        outcome = self.train([self.CACHE], data + loop)
        self.assert_in_force(outcome, "sample-cache")
        self.assertNotIn("put together", self.fix(outcome, "sample-cache")["text"])

    # Samples of 4 to 8 numbers in many forms, and a function that pads them to the longest of a batch, in place.
    OF_MANY_LENGTHS = DATA.replace("import torch", "import numpy, torch").replace(
        'return {"x": self.values[i], "y": float(i % 3)}',
        'return {"x": self.values[i][:4 + i % 5].numpy().copy(), "y": torch.tensor(float(i % 3)), "tokens": list(range(i % 5)), "kind": (numpy.int64(i), {"name": "sample"})}',
    )
    PADDING = """
def pad(samples):
    longest = max(len(sample["x"]) for sample in samples)
    for sample in samples:
        sample["x"] = numpy.pad(sample["x"], (0, longest - len(sample["x"])))
        sample["x"][0] += 1
        sample["tokens"].append(len(samples))
        sample["kind"][1]["name"] += "!"
    return {"x": torch.nn.functional.pad(torch.from_numpy(numpy.stack([sample["x"] for sample in samples])), (0, 8 - longest)), "y": torch.stack([sample["y"] for sample in samples]),
            "seen": (longest, samples[0]["tokens"], samples[0]["kind"])}
"""

    def padded(self, loader="", padding=PADDING, data=OF_MANY_LENGTHS, cache=None):
        """The cached training with such a function, and what the plain one says."""
        source = data + padding + self.LOOP.replace("shuffle=True", "shuffle=True, collate_fn=pad" + loader).replace('batch["y"].dtype', 'batch["seen"]') + "print(data.fetched)"
        return self.train([cache or self.CACHE], source), self.train([], source).out

    def assert_served(self, outcome, plain, fetched):
        """As before, but for how often samples were fetched in this process."""
        self.assert_in_force(outcome, "sample-cache")
        self.assertIn("put together by the loader's own function", self.fix(outcome, "sample-cache")["text"])
        self.assertEqual(outcome.out.splitlines(), plain.splitlines()[:-1] + [fetched])

    def test_samples_of_different_lengths_are_put_together_by_the_program(self):
        self.assert_served(*self.padded(), "64")

    def test_workers_that_would_put_them_together(self):
        for cache in (dict(self.CACHE, workers=2), dict(self.CACHE, ahead=True)):
            self.assert_served(*self.padded(", num_workers=2", cache=cache), "0")

    def test_functions_that_are_made_anew_find_the_same_samples(self):
        """Those that are known to be the same, or where any will do."""
        objects = "\nclass Pads:\n    def __init__(self, epoch):\n        self.epoch = %s\n    def __call__(self, samples):\n        return pad(samples)\n"
        anew = self.LOOP.replace("for batch in loader:", "for batch in torch.utils.data.DataLoader(data, batch_size=6, shuffle=True, collate_fn=Pads(epoch)%s):")
        for known, workers, fetched in (("1", "", "64"), ("epoch", "", "64"), ("1", ", num_workers=2", "0")):
            source = self.OF_MANY_LENGTHS + self.PADDING + objects % known + anew.replace("%s):", workers + "):").replace('batch["y"].dtype', 'batch["seen"]') + "print(data.fetched)"
            self.assert_served(self.train([self.CACHE], source), self.train([], source).out, fetched)

    DRAWING = PADDING.replace("+= 1", "+= torch.rand(1).item()")

    def test_what_is_drawn_to_put_them_together_is_drawn_as_before(self):
        """But what workers draw cannot be."""
        self.assert_served(*self.padded(padding=self.DRAWING), "64")
        outcome, plain = self.padded(", num_workers=2", self.DRAWING)
        self.assert_refused(outcome, "sample-cache", "put together at random, in workers")
        self.assertEqual(outcome.out, plain)

    def test_an_object_that_counts_its_batches_counts_what_it_counted(self):
        """In this process; what each worker counts nobody else can."""
        counting = self.PADDING.replace("def pad", "def pad_all") + """
class Counting:
    batches = 0
    def __getstate__(self):
        raise TypeError("no copies")
    def __call__(self, samples):
        self.batches += 1
        return %s
pad = Counting()
"""
        later = "{'x': torch.stack([torch.ones(8) * sample['y'] for sample in samples]) + max(0, self.batches - 20), 'y': torch.stack([sample['y'] for sample in samples]), 'seen': [0] * len(samples)}"
        for made in ("{**pad_all(samples), 'seen': self.batches}", later):
            self.assert_served(*self.padded(padding=counting % made), "64")
            outcome, plain = self.padded(", num_workers=2", counting % made)
            self.assert_refused(outcome, "sample-cache", "remembers something from batch to batch, in workers")
            self.assertEqual(outcome.out, plain)

    def test_a_function_that_takes_whole_batches_only(self):
        self.assert_served(*self.padded(padding=self.PADDING.replace("    longest", "    assert len(samples) in (4, 6)\n    longest", 1)), "64")

    def test_samples_of_a_class_of_their_own_are_refused(self):
        data = self.OF_MANY_LENGTHS.replace('(numpy.int64(i), {"name": "sample"})', "Kind(i)").replace("class Data", "class Kind:\n    def __init__(self, i):\n        self.i = i\nclass Data")
        outcome, plain = self.padded(padding=self.PADDING.replace('sample["kind"][1]["name"] += "!"', 'sample["kind"] = 0'), data=data)
        self.assert_refused(outcome, "sample-cache", "its samples hold a Kind")
        self.assertEqual(outcome.out, plain)

    def test_data_that_does_not_fit_is_refused(self):
        outcome = self.train([dict(self.CACHE, gigabytes=0)], self.DATA + self.LOOP)
        self.assert_refused(outcome, "sample-cache", "there is room for")

    def train_with_change(self, change, data=None, loader=None):
        """The cached training, whose program does this before its third epoch, with the output of the plain one."""
        loop = self.LOOP.replace("for epoch in range(4):", "for epoch in range(4):\n    if epoch == 2:\n        %s" % change)
        source = (data or self.DATA) + (loop.replace("DataLoader(data", "DataLoader(" + loader) if loader else loop)
        return self.train([self.CACHE], source), self.train([], source).out

    def assert_noticed(self, *arguments, why="data set changes", **options):
        outcome, plain = self.train_with_change(*arguments, **options)
        self.assertEqual(self.fix(outcome, "sample-cache")["state"], "undone")
        self.assertIn(why, self.fix(outcome, "sample-cache")["text"])
        self.assertEqual(outcome.out, plain)  # from the first batch of that epoch on

    def test_a_data_set_that_changes_is_noticed_and_the_loader_takes_over(self):
        self.assert_noticed("data.values += 1")

    def test_a_new_value_of_an_attribute_is_noticed_as_an_epoch_begins(self):
        self.assert_noticed("data.values = data.values + 1")

    STAGED = DATA.replace("self.fetched = 0", "self.fetched = 0\n        self.stage = 1").replace("self.values[i]", "self.values[i] * self.stage")

    def test_an_attribute_of_a_data_set_within_is_noticed(self):
        self.assert_noticed("loader.dataset.dataset.stage = 2", data=self.STAGED, loader="torch.utils.data.Subset(data, range(40))")
        self.assert_noticed("data.stage = 2", data=self.STAGED, loader="torch.utils.data.ConcatDataset([data, Data()])")

    def test_an_attribute_of_a_transform_is_noticed(self):
        transform = """
class Scale:
    strength = property(lambda self: self._strength, lambda self, value: setattr(self, "_strength", value))
    def __init__(self):
        self.strength = 0.1
    def __call__(self, x):
        return x * self.strength
"""
        data = transform + self.DATA.replace("self.fetched = 0", "self.fetched = 0\n        self.transform = [Scale()]").replace("self.values[i]", "self.transform[0](self.values[i])")
        self.assert_noticed("data.transform[0].strength = 0.3", data=data)

    def test_samples_that_are_drawn_at_random_from_an_epoch_on_are_noticed_and_the_random_state_stays(self):
        data = self.STAGED.replace("* self.stage", "* (torch.rand(1) if self.stage == 2 else 1)")
        self.assert_noticed("data.stage = 2", data=data)

    def test_a_data_set_that_grows_is_noticed(self):
        data = self.DATA.replace("return 64", "return len(self.values)")
        self.assert_noticed("data.values = torch.cat([data.values, data.values + 1])", data=data)

    def test_samples_that_are_put_together_by_the_program_and_change_are_noticed(self):
        self.assert_noticed("data.values = data.values + 1", data=self.OF_MANY_LENGTHS + self.PADDING, loader="data, collate_fn=pad")

    def test_an_attribute_that_changes_without_meaning_leaves_it_in_force(self):
        outcome, plain = self.train_with_change("data.stage = 7; data.fetched += 100; data.notes = [epoch]")
        self.assert_in_force(outcome, "sample-cache")
        self.assertEqual(outcome.out, plain)

    def test_a_file_that_is_opened_late_is_not_shared_with_workers(self):
        data = self.DATA.replace("self.fetched += 1", "self.file = getattr(self, 'file', None) or open(__file__)")
        loop = self.LOOP.replace("shuffle=True", "shuffle=True, num_workers=2")
        outcome = self.train([self.CACHE], data + loop + "print(hasattr(data, 'file'))")
        self.assertEqual(outcome.out.split()[-1], "False")


if __name__ == "__main__":
    unittest.main()
