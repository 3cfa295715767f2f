"""The backward pass in the thread that asks for it. Torch has a thread of its own for each GPU, which must be woken first, and to which that one hands Python over and back."""

NAME = "backward-inline"


def inline(tools, _):
    """`torch.autograd.backward` without the engine's own threads."""
    torch, report = tools.torch, tools.report
    if not torch.cuda.is_available():
        report.refused(NAME, "there is no GPU, and passes on the CPU are where they are asked for")
        return
    are_used, use = torch._C._is_multithreading_enabled, torch._C._set_multithreading_enabled
    is_on = [True]

    def turn(on):
        is_on[0] = on

    def make(original):
        def backward(*args, **kwargs):
            if not is_on[0] or not are_used():
                return original(*args, **kwargs)
            use(False)
            try:
                report.in_force(NAME, "backward passes")
                return original(*args, **kwargs)
            finally:
                use(True)

        return backward

    if tools.turns.takes(NAME, turn):
        turn(False)
    report.waiting(NAME, "until the first backward pass")
    tools.patches.replace(torch.autograd, "backward", make)
    tools.patches.on_restore(lambda: turn(False))
