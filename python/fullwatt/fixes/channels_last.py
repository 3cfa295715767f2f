"""Convolutions over images whose channels lie beside each other, as tensor cores want them.

The first call of a model is its own. It shows in which order in memory lies what the model returns, by its own doing and by that of the program's inputs and weights;
what it returns later is put into that order, whatever happened inside.
"""

import weakref

from ..weak import Known
from .models import INPUT, Fixed, Refused
from .optimizers import Layouts
from .outputs import each_tensor

NAME = "channels-last"
CHANNELS_LAST = (0, 2, 3, 1)  # the dimensions of images, from the one whose neighbours are farthest from each other


def channels_last(tools, _):
    """The weights are rearranged once, images at every call."""
    torch, layouts, found = tools.torch, Layouts(tools), Known()

    def make(module, call):
        if not any(isinstance(layer, (torch.nn.Conv2d, torch.nn.ConvTranspose2d)) for layer in module.modules()):
            raise Refused("it has no two-dimensional convolution")
        if type(module).__name__ in ("DistributedDataParallel", "FullyShardedDataParallel"):
            raise Refused("%s has laid out its gradients already" % type(module).__name__)
        model = Model(tools, layouts, module, call)
        found.put(module, weakref.ref(model))
        return model

    def prepare(module, on):
        found.get(module)().turn(on)

    def look():
        for model in filter(None, (reference() for reference in list(found.values.values()))):
            model.look()

    tools.models.add(NAME, INPUT, make, prepare)
    tools.agent.at_look.append(look)


class Model:
    """One model; it is called in its place."""

    def __init__(self, tools, layouts, module, call):
        self._tools, self._torch, self._layouts, self._module = tools, tools.torch, layouts, module
        self._orders = None  # of what the first call returned
        self._is_usual = True  # neither inputs nor weights had their channels last of themselves
        self._is_wanted = self._is_arranged = False
        self._lay_last = {}  # the names of weights that are like images, and whether each had its channels last already
        self._plain = call
        self._fixed = Fixed(tools, NAME, module, call, self._call_with_channels_last, self._in_order, lambda: self.turn(False))

    def turn(self, on):
        """From the second call on."""
        self._is_wanted = on
        if self._orders is not None:
            self._arrange()

    def __call__(self, *args, **kwargs):
        if self._orders is None:
            return self.own(*args, **kwargs)
        if self._is_arranged is not self._is_wanted and not self._fixed.is_off:
            self._tools.agent.attempt(self._arrange_or_leave)
        return self._fixed(*args, **kwargs)

    def own(self, *args, **kwargs):
        """The model's own call."""
        result = self._plain(*args, **kwargs)
        if self._orders is None:
            self._orders = self._tools.agent.attempt(self._learn, [*args, *kwargs.values()], result) or []
        return result

    def _learn(self, inputs, result):
        images = [value for value in inputs if isinstance(value, self._torch.Tensor)] + list(self._module.parameters())
        self._is_usual = not any(self._order_of(image) == CHANNELS_LAST for image in images)
        orders = []

        def note(tensor):
            orders.append(self._order_of(tensor))
            return tensor

        each_tensor(self._torch, result, note)
        return orders

    def _arrange_or_leave(self):
        try:
            self._arrange()
        except Exception as error:
            self._leave(self._tools.report.refused, "its weights cannot be rearranged: %s" % type(error).__name__)

    def _arrange(self):
        """The parameters stay the objects that they are."""
        images, last = self._images(), self._torch.channels_last
        if self._is_wanted:
            self._lay_last = {name: image.is_contiguous(memory_format=last) for name, image in images.items()}
        for name, lay_last in self._lay_last.items():
            if name in images:
                images[name].data = images[name].data.contiguous(memory_format=last if self._is_wanted or lay_last else self._torch.contiguous_format)
        self._is_arranged = self._is_wanted
        self._layouts.follow()
        if self._is_wanted:
            self._tools.report.in_force(NAME, "around " + type(self._module).__name__)

    def _images(self):
        return {name: tensor for name, tensor in [*self._module.named_parameters(), *self._module.named_buffers()] if tensor.dim() == 4}

    def look(self):
        """Whether the program has put weights back."""
        if self._is_arranged and not self._fixed.is_off:
            images = self._images()
            if not all(images[name].is_contiguous(memory_format=self._torch.channels_last) for name in self._lay_last if name in images):
                self._leave(self._tools.report.undone, "the program has rearranged the weights")

    def _leave(self, tell, why):
        self._fixed.is_off = True
        self._tools.models.leave(self._module, NAME, tell, why)

    def _call_with_channels_last(self, *args, **kwargs):
        """Images that are arguments themselves; those in the program's own containers are left to the first convolution, since the model may write into these."""
        return self._plain(*map(self._come_in, args), **{name: self._come_in(value) for name, value in kwargs.items()})

    def _come_in(self, value):
        is_image = isinstance(value, self._torch.Tensor) and value.dim() == 4 and value.is_floating_point()
        return value.contiguous(memory_format=self._torch.channels_last) if is_image else value

    def _in_order(self, result):
        """What was not there at the first call, such as in evaluation, is put into the usual order where it is of images and all that it came from was in that order."""
        orders = iter(self._orders)

        def put(tensor):
            order, now = next(orders, ()), self._order_of(tensor)
            if len(order) != len(now):
                order = (0, 1, 2, 3) if now == CHANNELS_LAST and self._is_usual else now
            return tensor if order == now else in_order(tensor, order)

        return each_tensor(self._torch, result, put)

    def _order_of(self, tensor):
        """The dimensions of a tensor from the outermost in memory to the innermost; none where it has no such order."""
        if tensor.layout is not self._torch.strided:
            return ()
        usual = tuple(range(tensor.dim()))
        strides = tensor.stride()
        return usual if tensor.is_contiguous() else tuple(sorted(usual, key=lambda dimension: -strides[dimension]))


def in_order(tensor, order):
    """The same tensor in another order in memory."""
    if order == tuple(range(len(order))):
        return tensor.contiguous()
    back = sorted(range(len(order)), key=order.__getitem__)
    return tensor.permute(order).contiguous().permute(back)
