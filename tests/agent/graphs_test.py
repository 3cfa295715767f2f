"""What stands for a model's parameters while it is captured; captures themselves need a GPU (gpu_fixes_test)."""

import unittest

import support  # noqa: F401  (puts the agent on the path)
import torch
from fullwatt.fixes.graphs import Standing


class StandingTest(unittest.TestCase):
    def test_the_model_computes_with_the_same_memory_and_gets_its_own_back(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        own = list(model.parameters())
        with Standing(torch, model) as standing:
            for parameter, other in zip(own, model.parameters()):
                self.assertIsNot(other, parameter)
                self.assertEqual(other.data_ptr(), parameter.data_ptr())
            self.assertFalse(standing.have_moved())
        self.assertTrue(all(after is before for after, before in zip(model.parameters(), own)))

    def test_a_recurrent_module_takes_them_for_its_own(self):
        """Otherwise it would move them, on a GPU, and a graph would go on with the weights of that moment."""
        lstm = torch.nn.LSTM(3, 5, num_layers=2)
        with Standing(torch, lstm):
            self.assertFalse(lstm._weights_have_changed())
            self.assertTrue(all(weight is getattr(lstm, name) for weight, name in zip(lstm._flat_weights, lstm._flat_weights_names)))
        self.assertFalse(lstm._weights_have_changed())

    def test_moved_ones_are_noticed(self):
        model = torch.nn.Linear(4, 4)
        with Standing(torch, model) as standing:
            model.weight.data = model.weight.data.clone()
            self.assertTrue(standing.have_moved())


if __name__ == "__main__":
    unittest.main()
