"""What a plan is made for: PyTorch's minor version, the GPU's architecture and the model. A plan for another one is not applied; another script only
gets a word.

`tune` reads it from the fact `target` of a trial; `run --fix` gives it back in the plan.
"""

import zlib

from ..agent import say
from ..describe import unwrap
from ..sites import main_file


class Target:
    """Looks at the first model that is trained."""

    def __init__(self, torch, agent, inputs):
        self._torch = torch
        self._agent = agent
        self._is_seen = False
        self._look = None
        inputs.at_module.append(self._saw)

    def tell(self):
        """Writes the fact once the model is seen."""
        self._look = lambda here: self._agent.facts.add("target", **here)

    def hold(self, made_for, refuse):
        """Calls `refuse(why)` where this training is not what the plan was made for; an empty entry fits all."""
        version = minor(self._torch)
        if made_for.get("torch") and made_for["torch"] != version:
            refuse("it was made for torch %s, and this is %s" % (made_for["torch"], version))
            return

        def compare(here):
            for name, what in (("gpu", "a GPU of compute capability %s"), ("model", "the model %s")):
                wanted = made_for.get(name)
                if wanted and wanted != here[name]:
                    refuse("it was made for %s, and this is %s" % (what % wanted if wanted != "cpu" else "the CPU", here[name]))
                    return
            if made_for.get("script") and made_for["script"] != here["script"]:
                say("the script has changed since the plan was made; `fullwatt tune` makes a new one")

        self._look = compare

    def _saw(self, module):
        if self._is_seen or self._look is None:
            return
        self._is_seen = True
        self._look({"torch": minor(self._torch), "gpu": architecture(self._torch, module), "model": fingerprint(module), "script": checksum(main_file())})


def minor(torch):
    """2.11 of 2.11.0+cu130."""
    return ".".join(str(torch.__version__).split(".")[:2])


def architecture(torch, module):
    """The compute capability of the GPU that the model is on, or cpu."""
    device = next(module.parameters()).device
    return "%d.%d" % torch.cuda.get_device_capability(device) if device.type == "cuda" else device.type


def fingerprint(module):
    """The class of a model and a checksum of its tree: names and classes of its modules, names and shapes of its parameters."""
    inner, _ = unwrap(module)
    tree = ["%s %s" % (name, type(part).__name__) for name, part in inner.named_modules()]
    tree += ["%s %s" % (name, tuple(parameter.shape)) for name, parameter in inner.named_parameters()]
    return "%s-%08x" % (type(inner).__name__, zlib.crc32("\n".join(tree).encode()))


def checksum(path):
    """Of a file; empty where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return "%08x" % zlib.crc32(file.read())
    except OSError:
        return ""
