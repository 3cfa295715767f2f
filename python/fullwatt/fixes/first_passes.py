"""How the program takes gradients through its models, learned in the first steps from what they return: what a graph or the compiler could not stand is known before they are used."""

from .outputs import Unreachable, each_tensor

TWICE = "the program computes gradients of one pass more than once"
OF_GRADIENTS = "the program differentiates gradients (create_graph=True)"


class FirstPasses:
    """What was seen of the backward passes. `told()` is called when something new was."""

    def __init__(self, tools, inputs, told):
        self._torch = tools.torch
        self._attempt = tools.agent.attempt
        self._told = told
        self.why_no_graph = self.why_no_compiler = ""
        inputs.at_result.append(self._returned)

    def _returned(self, result):
        """The outermost module gives this to the program: hooks on its tensors see each time that gradients come back through them."""
        seen = set()

        def look(tensor):
            if tensor.requires_grad and tensor.grad_fn is not None:
                tensor.register_hook(lambda _: self._attempt(self._gradient, seen))
            return tensor

        try:
            each_tensor(self._torch, result, look)
        except Unreachable:
            pass  # then nothing is learned from it

    def _gradient(self, seen):
        seen.add(self._torch._C._current_graph_task_id())
        if self._torch.is_grad_enabled():
            self._tell(OF_GRADIENTS, OF_GRADIENTS)
        elif len(seen) > 1:
            self._tell(TWICE, "")

    def _tell(self, no_graph, no_compiler):
        before = self.why_no_graph, self.why_no_compiler
        self.why_no_graph, self.why_no_compiler = self.why_no_graph or no_graph, self.why_no_compiler or no_compiler
        if before != (self.why_no_graph, self.why_no_compiler):
            self._told()
