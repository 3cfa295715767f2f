"""The bytes that an operation reads from memory and writes to it, were there no caches: what a GPU without fused operations moves."""

NEW_MEMORY = ("empty", "new_empty", "_efficientzerotensor")  # beginnings of names


def add(sums, func, args, kwargs, out):
    """Adds what the operation moves to the sums by device type."""
    schema = func._schema
    if schema.name.split("::")[-1].startswith(NEW_MEMORY):
        return
    read = list(_tensors(args)) + list(_tensors(kwargs))
    written = list(_tensors(_written(schema, args, kwargs) if schema.is_mutable else out))
    if not schema.is_mutable and _is_view(read, written):
        return
    for tensor in read + written:
        kind = tensor.device.type
        sums[kind] = sums.get(kind, 0) + _bytes(tensor)


def _tensors(value):
    """The tensors in arguments or results, which come in lists, too."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif hasattr(value, "untyped_storage") and hasattr(value, "element_size"):
        yield value


def _written(schema, args, kwargs):
    """The arguments that the operation changes."""
    changed = [(index, argument.name) for index, argument in enumerate(schema.arguments) if argument.alias_info is not None and argument.alias_info.is_write]
    return [args[index] if index < len(args) else kwargs.get(name) for index, name in changed]


def _is_view(read, written):
    """Whether all results are other looks at the arguments' memory."""
    places = {tensor.untyped_storage().data_ptr() for tensor in read}
    return bool(written) and all(tensor.untyped_storage().data_ptr() in places for tensor in written)


def _bytes(tensor):
    """An expanded tensor has more elements than memory."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
