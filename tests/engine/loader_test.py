"""fullwatt.Loader beside NumPy's own reading: what it gives, how long that stays, how it goes on, and what it says to what is wrong."""

import gc
import os
import pathlib
import resource
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
import warnings
import zlib

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
from fullwatt.loader import Loader  # noqa: E402

DTYPES = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split()


def threads():
    return len(os.listdir("/proc/self/task"))


def png(width, height, colour):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = height * (b"\0" + width * bytes(colour))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class LoaderCase(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def write_numbers(self, samples=100, width=3000):
        """Rows that are read from the file, and their numbers, which are small enough to be kept in memory."""
        rows = np.arange(samples * width, dtype=np.int32).reshape(samples, width)
        np.save(self.folder / "rows.npy", rows)
        np.save(self.folder / "numbers.npy", np.arange(samples))
        return rows

    def loader(self, **options):
        return Loader(self.folder, **{"batch_size": 8, "workers": 2, **options})

    def numbers(self, batches):
        return [number for batch in batches for number in batch["numbers"].tolist()]

    def check_rows(self, batches, rows):
        for batch in batches:
            np.testing.assert_array_equal(batch["rows"].numpy(), rows[batch["numbers"].numpy()])


class SamplesTest(LoaderCase):
    def test_every_dtype_is_read_as_numpy_reads_it(self):
        random = np.random.default_rng(0)
        for shape in ((13,), (13, 5), (13, 2, 3, 700), (13, 0)):
            for dtype in DTYPES:
                np.save(self.folder / f"{dtype}.npy", random.integers(0, 100, shape).astype(dtype))
            for workers in (1, 3):
                read = {name: [] for name in DTYPES}
                for batch in self.loader(batch_size=4, workers=workers):
                    for name, tensor in batch.items():
                        read[name].append(tensor)
                for name, tensors in read.items():
                    expected = np.load(self.folder / f"{name}.npy")
                    self.assertEqual([len(tensor) for tensor in tensors], [4, 4, 4, 1])
                    whole = np.concatenate([tensor.numpy() for tensor in tensors])
                    self.assertEqual(whole.dtype, expected.dtype)
                    np.testing.assert_array_equal(whole, expected)

    def test_files_of_a_pattern_are_one_array_and_fields_keep_their_order(self):
        parts = [np.random.default_rng(i).normal(size=(i, 2000)) for i in (3, 1, 4)]
        for i, part in enumerate(parts):
            np.save(self.folder / f"part{i}_x.npy", part)
        np.save(self.folder / "a.npy", np.arange(8))
        loader = self.loader(fields={"x": "part*_x.npy", "a": "a.npy"}, shuffle=True, seed=3)
        for batch in loader:
            self.assertEqual(list(batch), ["x", "a"])
            np.testing.assert_array_equal(batch["x"].numpy(), np.concatenate(parts)[batch["a"].numpy()])
        self.assertEqual(list(next(iter(self.loader(fields=["a", "x"])))), ["a", "x"])

    def test_arrays_in_memory_of_any_layout(self):
        columns = np.asfortranarray(np.arange(40, dtype=np.float64).reshape(8, 5))
        other_order = np.arange(8, dtype=">i4")
        tensor = torch.arange(16, dtype=torch.int16).view(8, 2)
        loader = Loader({"columns": columns, "other": other_order, "tensor": tensor}, batch_size=8)
        del tensor
        gc.collect()
        (batch,) = loader
        np.testing.assert_array_equal(batch["columns"].numpy(), columns)
        np.testing.assert_array_equal(batch["other"].numpy(), other_order)
        self.assertEqual(batch["tensor"].tolist(), torch.arange(16).view(8, 2).tolist())

    def test_images_have_the_labels_of_their_folders(self):
        for label, name in enumerate(("cat", "dog")):
            (self.folder / name).mkdir()
            (self.folder / name / "1.png").write_bytes(png(20, 10, (10 + label, 20, 30)))
        (batch,) = self.loader(image_size=(5, 5))
        self.assertEqual(batch["labels"].tolist(), [0, 1])
        self.assertEqual(batch["images"].shape, (2, 3, 5, 5))
        self.assertEqual(batch["images"][:, 0, 0, 0].tolist(), [10, 11])


class OrderTest(LoaderCase):
    def test_the_order_is_a_permutation_that_seed_and_epoch_alone_decide(self):
        self.write_numbers(60, 2)
        loader, other = self.loader(shuffle=True, seed=5), self.loader(shuffle=True, seed=5, batch_size=7, workers=1, prefetch=1)
        epochs = [self.numbers(loader) for _ in range(3)]
        self.assertEqual([self.numbers(other) for _ in range(3)], epochs)
        for epoch in epochs:
            self.assertEqual(sorted(epoch), list(range(60)))
        self.assertEqual(len({tuple(epoch) for epoch in epochs}), 3)
        self.assertNotEqual(self.numbers(self.loader(shuffle=True, seed=6)), epochs[0])
        loader.set_epoch(1)
        self.assertEqual(self.numbers(loader), epochs[1])
        self.assertEqual(self.numbers(loader), epochs[2])
        self.assertEqual(self.numbers(self.loader()), list(range(60)))

    def test_the_length_counts_batches(self):
        self.write_numbers(30, 2)
        for drop_last, lengths in ((False, [8, 8, 8, 6]), (True, [8, 8, 8])):
            loader = self.loader(drop_last=drop_last)
            self.assertEqual(len(loader), len(lengths))
            self.assertEqual([len(batch["rows"]) for batch in loader], lengths)
        self.assertEqual(list(self.loader(drop_last=True, batch_size=31)), [])

    def test_processes_share_the_samples(self):
        self.write_numbers(64, 2)
        parts = [self.numbers(self.loader(shuffle=True, drop_last=True, rank=rank, world_size=2)) for rank in (0, 1)]
        self.assertEqual([len(part) for part in parts], [32, 32])
        self.assertEqual(sorted(parts[0] + parts[1]), list(range(64)))


class LifeTest(LoaderCase):
    def test_batches_stay_as_they_are_while_they_are_held(self):
        rows = self.write_numbers()
        loader = self.loader(shuffle=True, prefetch=2)
        held = list(loader) + list(loader)
        part = held[3]["rows"][2:4]
        expected = rows[held[3]["numbers"][2:4].numpy()]
        self.check_rows(held, rows)
        del held
        list(loader)
        np.testing.assert_array_equal(part.numpy(), expected, "a part of a batch holds its memory, too")

    def test_memory_that_is_let_go_is_used_again(self):
        self.write_numbers()
        places = set()
        loader = self.loader(prefetch=2)
        for _ in range(4):
            for batch in loader:
                places.add(batch["rows"].data_ptr())
        self.assertLess(len(places), 2 + 4)

    def test_a_batch_can_be_saved_without_what_lies_beside_it(self):
        self.write_numbers()
        batch = next(iter(self.loader()))
        torch.save(batch["numbers"], self.folder / "saved.pt")
        self.assertLess((self.folder / "saved.pt").stat().st_size, 4096)
        batch["rows"] += 1  # and it is the user's to change

    def test_a_loop_that_is_left_early_ends_its_threads_and_the_next_is_another_epoch(self):
        rows = self.write_numbers()
        before = threads()
        loader = self.loader(shuffle=True, workers=4)
        for batch in loader:
            break
        self.assertEqual(threads(), before)
        self.check_rows([batch], rows)
        again = self.numbers(loader)
        loader.set_epoch(0)
        self.assertEqual(self.numbers([next(iter(loader))]), self.numbers([batch]))
        self.assertEqual(sorted(again), list(range(100)))

    def test_several_loaders_and_loops_at_once(self):
        rows = self.write_numbers()
        first, second = self.loader(shuffle=True), self.loader(batch_size=5)
        for ours, theirs, again in zip(first, second, first):
            self.check_rows([ours, theirs, again], rows)
            self.assertNotEqual(ours["numbers"].tolist(), again["numbers"].tolist())

    def test_batches_that_are_not_there_yet_are_asked_for_again(self):
        rows = self.write_numbers()
        with unittest.mock.patch("fullwatt.loader.WAIT_MS", 0):
            batches = list(self.loader(workers=1, prefetch=1))
        self.check_rows(batches, rows)
        self.assertEqual(self.numbers(batches), list(range(100)))

    def test_a_thread_may_take_the_batches(self):
        rows = self.write_numbers()
        found = []
        thread = threading.Thread(target=lambda: found.extend(self.loader()))
        thread.start()
        thread.join()
        self.check_rows(found, rows)
        self.assertEqual(self.numbers(found), list(range(100)))

    def test_a_forked_child_begins_loops_of_its_own(self):
        rows = self.write_numbers()
        loader = self.loader(shuffle=True)
        loop = iter(loader)
        first = next(loop)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with self.assertRaisesRegex(ValueError, "began before a fork.*Begin a new loop"):
                    next(loop)
                batches = list(loader)
                self.check_rows([first, *batches], rows)
                self.assertEqual(sorted(self.numbers(batches)), list(range(100)))
                del loop
                code = 0
            finally:
                os._exit(code)
        rest = list(loop)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.check_rows([first, *rest], rows)
        self.assertEqual(sorted(self.numbers([first, *rest])), list(range(100)))

    def test_a_program_may_end_within_a_loop(self):
        self.write_numbers()
        program = "import sys, fullwatt\nassert 'torch' not in sys.modules\nloops = [iter(fullwatt.Loader(sys.argv[1], batch_size=8)) for _ in range(3)]\nnext(loops[0])\n"
        ended = subprocess.run([sys.executable, "-c", program, self.folder], env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))


class StateTest(LoaderCase):
    def test_a_loader_goes_on_with_exactly_the_rest(self):
        self.write_numbers(50, 2)
        whole = self.loader(shuffle=True)
        epochs = [[batch["numbers"].tolist() for batch in whole] for _ in range(3)]
        for taken in range(8):
            loader, other = self.loader(shuffle=True), self.loader(shuffle=True, workers=1)
            list(loader)
            loop = iter(loader)
            for _ in range(taken):
                next(loop)
            other.load_state_dict(loader.state_dict())
            other.set_epoch(1)
            self.assertEqual([batch["numbers"].tolist() for batch in other], epochs[1][taken:])
            self.assertEqual([batch["numbers"].tolist() for batch in other], epochs[2])

    def test_after_an_epoch_the_next_one_comes(self):
        self.write_numbers(50, 2)
        loader, other = self.loader(shuffle=True), self.loader(shuffle=True)
        self.assertEqual(loader.state_dict()["epoch"], 0)
        list(loader)
        other.load_state_dict(loader.state_dict())
        self.assertEqual(self.numbers(other), self.numbers(loader))

    def test_a_state_of_another_loader_is_refused(self):
        self.write_numbers(50, 2)
        with self.assertRaisesRegex(ValueError, "batch_size=8, now 4"):
            self.loader(batch_size=4).load_state_dict(self.loader().state_dict())


class WrongTest(LoaderCase):
    def test_what_is_wrong_is_said(self):
        self.write_numbers(10, 2)
        np.save(self.folder / "complex.npy", np.zeros(10, np.complex64))
        np.save(self.folder / "columns.npy", np.asfortranarray(np.zeros((10, 2))))
        np.save(self.folder / "short.npy", np.zeros(9))
        for words, error, arguments in (
            ("/no/such: No such file", FileNotFoundError, {"folder": "/no/such", "fields": ["rows"]}),
            ("No such file or directory: '/no/such'", FileNotFoundError, {"folder": "/no/such"}),
            (r"no file in .* fits \*row.npy", FileNotFoundError, {"fields": ["row"]}),
            ("complex.npy: its numbers are of the type <c8", ValueError, {"fields": ["complex"]}),
            ("columns.npy: .*np.ascontiguousarray", ValueError, {"fields": ["columns"]}),
            ("the field short has 9 samples, and rows has 10", ValueError, {"fields": ["rows", "short"]}),
            ("it has no folders for classes", FileNotFoundError, {"image_size": (4, 4)}),
            ("leave out fields", ValueError, {"image_size": (4, 4), "fields": ["x"]}),
            ("at least one sample", ValueError, {"batch_size": 0}),
            ("at least one thread", ValueError, {"workers": 0}),
            ("the array x holds object", ValueError, {"folder": {"x": np.zeros(3, object)}}),
            ("the array x holds a single number", ValueError, {"folder": {"x": np.float32(1)}}),
            ("there are no arrays", ValueError, {"folder": {}}),
            ("need drop_last=True", ValueError, {"rank": 1, "world_size": 2}),
        ):
            with self.subTest(words), self.assertRaisesRegex(error, words):
                Loader(**{"folder": self.folder, "fields": ["rows"] if not arguments.keys() & {"image_size", "folder"} else None, **arguments})

    def test_a_file_that_becomes_shorter_is_named(self):
        rows = self.write_numbers()
        loader = self.loader(prefetch=1)
        loop = iter(loader)
        first = next(loop)
        os.truncate(self.folder / "rows.npy", 200_000)
        taken = [first]
        with self.assertRaisesRegex(OSError, "rows.npy: it became shorter while it was in use: 200000 bytes are left. .*write the file again"):
            for batch in loop:
                taken.append(batch)
        self.check_rows(taken, rows)
        self.assertEqual(list(loop), [], "the loop is over")

    def test_more_files_than_may_be_open_are_refused_with_the_remedy(self):
        for number in range(40):
            np.save(self.folder / f"{number}_x.npy", np.zeros((2, 5000), np.float32))
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, before[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        with self.assertRaisesRegex(OSError, "_x.npy: too many files are open. Allow more .ulimit -n"):
            self.loader(fields=["x"])

    def test_pin_memory_without_a_gpu_falls_back_with_a_word(self):
        if torch.cuda.is_available():
            self.skipTest("there is a GPU")
        rows = self.write_numbers()
        with self.assertWarnsRegex(UserWarning, "torch sees no GPU, so batches lie in ordinary memory"):
            loader = self.loader(pin_memory=True)
        self.check_rows(loader, rows)
        with self.assertRaisesRegex(RuntimeError, "fullwatt doctor"):
            self.loader(device="cuda")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.check_rows(self.loader(device="cpu"), rows)


class GpuTest(LoaderCase):
    def setUp(self):
        super().setUp()
        if not torch.cuda.is_available():
            self.skipTest("there is no GPU")

    def test_pinned_batches_may_be_let_go_while_they_are_copied(self):
        rows = self.write_numbers(512, 30_000)
        copies = []
        for batch in self.loader(pin_memory=True, shuffle=True):
            self.assertTrue(batch["rows"].is_pinned())
            copies.append({name: tensor.to("cuda", non_blocking=True) for name, tensor in batch.items()})
        self.check_rows([{name: tensor.cpu() for name, tensor in batch.items()} for batch in copies], rows)

    def test_batches_on_the_device_are_there_when_the_training_uses_them(self):
        rows = torch.from_numpy(self.write_numbers(512, 30_000)).cuda()
        loader = self.loader(device="cuda", shuffle=True)
        for _ in range(3):
            wrong, busy = torch.zeros((), dtype=torch.int64, device="cuda"), torch.ones(2000, 2000, device="cuda")
            for batch in loader:
                busy = busy @ busy / 2000  # so that the training is behind the copies
                wrong += (batch["rows"] != rows[batch["numbers"]]).sum()
                batch["rows"].zero_()
            self.assertEqual(wrong.item(), 0)

    def test_the_state_counts_what_the_loop_got(self):
        self.write_numbers(64, 2)
        loader = self.loader(device="cuda")
        next(iter(loader))
        self.assertEqual(loader.state_dict()["batch"], 1)


if __name__ == "__main__":
    unittest.main()
