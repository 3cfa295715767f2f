"""What source_facts.py reads out of a file, and that no file makes it fail."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python", "fullwatt", "source_facts.py")


def run(*paths):
    done = subprocess.run([sys.executable, SCRIPT, *paths], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class SourceFacts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, content, name="train.py"):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else textwrap.dedent(content).encode())
        return path

    def facts(self, content):
        answer = run(self.write(content))
        self.assertEqual(answer["schema"], 1)
        self.assertIsNone(answer["files"][0]["error"])
        return answer["files"][0]

    def only(self, found, **wanted):
        matching = [item for item in found if all(item[name] == value for name, value in wanted.items())]
        self.assertEqual(len(matching), 1, found)
        return matching[0]

    def test_functions_carry_their_qualified_name_and_their_lines(self):
        found = self.facts("""\
            class Trainer:
                @torch.no_grad()
                def validate(self):
                    def inner():
                        pass
                    return inner
            async def later(): pass
            """)["functions"]
        validate = self.only(found, qualified="Trainer.validate")
        self.assertEqual((validate["name"], validate["line"], validate["end_line"]), ("validate", 3, 6))
        self.assertEqual(validate["decorators"], ["torch.no_grad"])
        self.only(found, qualified="Trainer.validate.inner")
        self.only(found, qualified="later")

    def test_calls_know_the_function_they_stand_in_and_whether_they_are_in_a_loop(self):
        found = self.facts("""\
            model = torch.compile(model, mode='max-autotune')
            def optimise():
                torch.set_float32_matmul_precision('high')
                for _ in loader:
                    model.to(memory_format=torch.channels_last)
            """)["calls"]
        compiled = self.only(found, name="torch.compile")
        self.assertEqual((compiled["line"], compiled["function"], compiled["keywords"]), (1, "", {"mode": "max-autotune"}))
        self.assertFalse(compiled["in_loop"])
        self.assertEqual(self.only(found, name="torch.set_float32_matmul_precision")["function"], "optimise")
        moved = self.only(found, name="model.to")
        self.assertTrue(moved["in_loop"])
        self.assertEqual(moved["keywords"], {"memory_format": ""})

    def test_assignments_to_backends_and_the_environment_are_listed(self):
        found = self.facts("""\
            import os, torch
            torch.backends.cudnn.benchmark = False
            os.environ['OMP_NUM_THREADS'] = '1'
            class Setup:
                def apply(self):
                    torch.backends.cuda.matmul.allow_tf32 = self.fast
            BATCH_SIZE: int = 32
            """)["assignments"]
        benchmark = self.only(found, target="torch.backends.cudnn.benchmark")
        self.assertEqual((benchmark["value"], benchmark["type"], benchmark["line"]), ("False", "bool", 2))
        self.assertEqual(self.only(found, target="os.environ[OMP_NUM_THREADS]")["value"], "1")
        tf32 = self.only(found, target="torch.backends.cuda.matmul.allow_tf32")
        self.assertEqual((tf32["value"], tf32["type"], tf32["function"]), ("self.fast", "", "Setup.apply"))
        self.assertEqual(self.only(found, target="BATCH_SIZE")["value"], "32")

    def test_a_setting_compared_with_a_literal_is_found_by_its_key(self):
        found = self.facts("""\
            use_amp = config['train'].get('amp', 'none') == 'bf16'
            if args.workers > 8: pass
            if 'cuda' == cfg['device']: pass
            if mode in ('a', 'b'): pass
            if x == y: pass
            """)["comparisons"]
        amp = self.only(found, key="amp")
        self.assertEqual((amp["literal"], amp["type"], amp["operator"], amp["line"]), ("bf16", "str", "Eq", 1))
        self.assertEqual(amp["what"], "config['train'].get('amp', 'none')")
        self.assertFalse(amp["converted"])
        self.assertEqual(self.only(found, key="workers")["type"], "int")
        self.assertEqual(self.only(found, key="device")["literal"], "cuda")
        self.assertEqual({item["literal"] for item in found if item["key"] == "mode"}, {"a", "b"})
        self.assertEqual(len(found), 5)

    def test_a_comparison_of_a_variable_leads_back_to_the_setting_it_was_read_from(self):
        facts = self.facts("""\
            class Engine:
                def __init__(self, config):
                    self.mode = config['train'].get('amp', 'none')
                    wanted = self.mode
                    self.use_amp = wanted == 'true'
                    self.other = str(config['compile']).lower() == 'true'
            """)
        amp = self.only(facts["comparisons"], key="amp")
        self.assertEqual((amp["literal"], amp["converted"]), ("true", False))
        self.assertTrue(self.only(facts["comparisons"], key="compile")["converted"])

    def test_a_setting_asked_for_its_truth_is_noticed(self):
        found = self.facts("""\
            if config['amp'] and not args.compile:
                pass
            value = 1 if cfg.get('pin') else 2
            ok = isinstance(config['precision'], bool)
            """)["truths"]
        self.assertEqual({item["key"] for item in found}, {"amp", "compile", "pin", "precision"})

    def test_nested_loops_tell_their_depth_what_they_fill_and_whether_they_train(self):
        found = self.facts("""\
            def make_targets(points, heatmap):
                for b in range(len(points)):
                    for y in range(40):
                        for x in range(80):
                            heatmap[b, 0, y, x] = 1.0
            def main():
                for epoch in range(3):
                    for batch in loader:
                        loss(batch).backward()
            """)["loops"]
        targets = self.only(found, function="make_targets")
        self.assertEqual((targets["line"], targets["end_line"], targets["depth"], targets["ranges"]), (2, 5, 3, 3))
        self.assertEqual(targets["writes"], ["heatmap"])
        self.assertFalse(targets["trains"])
        training = self.only(found, function="main")
        self.assertEqual((training["depth"], training["trains"]), (2, True))

    def test_loops_inside_the_training_loop_are_told_by_themselves(self):
        found = self.facts("""\
            while step < last:
                for batch in loader:
                    loss(batch).backward()
                    for p in model.parameters():
                        for value in p:
                            norms[value] = 1
            while waiting:
                for item in queue:
                    pass
            """)["loops"]
        self.assertEqual([(loop["line"], loop["depth"], loop["trains"]) for loop in found], [(2, 3, True), (4, 2, False)])

    def test_syncs_are_listed_by_line_with_whether_they_repeat(self):
        found = self.facts("""\
            print('start')
            for x, y in loader:
                total += loss.item()
                outputs.append(out.cpu().numpy())
                torch.cuda.synchronize()
            """)["uses"]
        self.assertFalse(self.only(found, what="print")["in_loop"])
        self.assertEqual(self.only(found, what="item")["line"], 3)
        self.assertTrue(self.only(found, what="cpu")["in_loop"])
        self.only(found, what="numpy")
        self.only(found, what="synchronize")

    def test_loaders_are_listed_with_their_literal_arguments(self):
        found = self.facts("""\
            train = DataLoader(data, batch_size=1, num_workers=2, pin_memory=True, shuffle=flag)
            other = torch.utils.data.DataLoader(data)
            """)["loaders"]
        first = self.only(found, line=1)
        self.assertEqual(first["keywords"], {"batch_size": "1", "num_workers": "2", "pin_memory": "True", "shuffle": ""})
        self.assertEqual(self.only(found, line=2)["keywords"], {})

    def test_the_fields_of_a_data_set_are_listed(self):
        found = self.facts("""\
            class Data:
                def __getitem__(self, i):
                    data = self.files[i]
                    return {'image': data['image'], 'heatmap': data['heat']}
            other = {'not': 'a sample'}
            """)["fields"]
        self.assertEqual({item["name"] for item in found}, {"image", "heatmap", "heat"})

    def test_names_that_are_used_are_references_and_definitions_are_not(self):
        found = self.facts("""\
            from tools import faster as quick
            def never_called(): pass
            def passed_on(): pass
            def named_in_text(): pass
            register(passed_on)
            getattr(x, 'named_in_text')()
            """)["references"]
        self.assertIn("passed_on", found)
        self.assertIn("named_in_text", found)
        self.assertIn("quick", found)
        self.assertNotIn("never_called", found)

    def test_broken_files_are_reported_and_the_others_still_read(self):
        good = self.write("x = 1\n", "good.py")
        paths = [self.write("def f(:\n", "syntax.py"), self.write(b"\xff\xfe\x00", "binary.py"), self.write(b"x = 'a\x00b'", "zero.py"),
                 self.write("(" * 3000 + ")" * 3000, "deep.py"), self.write("-" * 20000 + "1", "deeper.py"),
                 os.path.join(self.folder, "absent.py"), self.folder, good]
        answer = run(*paths)
        self.assertEqual([item["path"] for item in answer["files"]], paths)
        for item in answer["files"][:-1]:
            self.assertTrue(item["error"], item["path"])
        self.assertIsNone(answer["files"][-1]["error"])

    def test_an_empty_file_and_no_file_are_fine(self):
        self.assertEqual(self.facts("")["calls"], [])
        self.assertEqual(run()["files"], [])

    def test_the_output_is_valid_text_whatever_the_source_holds(self):
        found = self.facts("x = '\\ud800'\ny = '中文'\n")["assignments"]
        self.assertEqual(self.only(found, target="x")["value"], "?")
        self.assertEqual(self.only(found, target="y")["value"], "中文")

    def test_windows_line_ends_and_a_byte_order_mark_are_read(self):
        found = self.facts(b"\xef\xbb\xbftorch.backends.cudnn.benchmark = True\r\nx = 1\r\n")["assignments"]
        self.assertEqual(self.only(found, target="x")["line"], 2)


if __name__ == "__main__":
    unittest.main()
