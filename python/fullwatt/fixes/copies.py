"""Copies from pinned memory to the GPU that do not make the program wait."""


def non_blocking(tools, _):
    """Tensor.to, Tensor.cuda: from pinned memory, unless the program says how. The order on the stream keeps it right, and torch keeps the memory."""
    torch, report = tools.torch, tools.report
    if not torch.cuda.is_available():
        report.refused("non-blocking", "there is no GPU")
        return

    is_on = [True]

    def turn(on):
        is_on[0] = on

    def seen():
        report.in_force("non-blocking", "copies from pinned memory")

    def make(original):
        def copy(self, *args, **kwargs):
            if is_on[0] and "non_blocking" not in kwargs and not self.is_cuda and goes_to_gpu(torch, original, args, kwargs) and self.is_pinned():
                kwargs["non_blocking"] = True
                seen()
            return original(self, *args, **kwargs)

        return copy

    if tools.turns.takes("non-blocking", turn):
        turn(False)
    report.waiting("non-blocking", "until a copy from pinned memory is made")
    for name in ("to", "cuda"):
        tools.patches.replace(torch.Tensor, name, make)
    tools.patches.on_restore(lambda: turn(False))


def goes_to_gpu(torch, copy, args, kwargs):
    """Whether the first argument of Tensor.to, or its device, is a GPU; Tensor.cuda has none and always goes there."""
    target = kwargs.get("device", args[0] if args else "cuda" if copy.__name__ == "cuda" else None)
    if any(isinstance(argument, bool) for argument in args[1:3]):
        return False  # non_blocking is given by position
    if isinstance(target, str):
        return target.startswith("cuda")
    if isinstance(target, torch.Tensor):
        return target.is_cuda
    return isinstance(target, torch.device) and target.type == "cuda" or isinstance(target, int) and not isinstance(target, bool)
