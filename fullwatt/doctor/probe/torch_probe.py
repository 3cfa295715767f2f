"""Asks the PyTorch of this interpreter what it is and whether it computes; prints the fields of model::TorchAnswers.

The doctor runs it in the user's Python with `-c`, in a child process that may hang or crash. It needs nothing but the
standard library, Python 3.8 or later and, if there is one, any torch since 1.8. The answer is the last line of the
output, after a line with MARKER. With FULLWATT_TORCH_NO_GPU=1, in the environment or as an argument, nothing that
could wake a sleeping GPU is called.
"""

import importlib.util
import json
import os
import sys
import warnings

MARKER = "fullwatt-torch-answers:"
TEXT_LIMIT = 2000  # characters of one message; its end says most
WARNING_LIMIT = 50
OPERATION_LIMIT = 16  # devices that are computed on: each context takes memory and time
LIBRARIES = ("libcudnn", "libnccl", "libnvJitLink", "libcublas", "libcudart", "libcuda.so")
SWITCH = "FULLWATT_TORCH_NO_GPU"


def absent(reason, detail=""):
    return {"absent": reason, "code": 0, "detail": detail}


def error_text(error):
    """The error as Python would print it, without the traceback."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:
        text = ""
    return ((name + ": " + text) if text else name)[-TEXT_LIMIT:]


def ask(question, default=None):
    """The answer, or why there is none: an absent value, or `default` where the field cannot hold one."""
    try:
        return question()
    except Exception as error:
        reason = "unsupported" if isinstance(error, AttributeError) else "failed"
        return absent(reason, error_text(error)) if default is None else default


def nothing_known():
    """Every field of model::TorchAnswers, in its order, before anything was asked."""
    not_asked = absent("not-asked")
    return {
        "executable": not_asked,
        "python": "",
        "version": not_asked,
        "file": "",
        "cuda": "",
        "hip": "",
        "xpu": "",
        "archs": [],
        "available": not_asked,
        "warnings": [],
        "device_count": not_asked,
        "devices": [],
        "cudnn": not_asked,
        "libraries": [],
        "matmul_precision": "",
        "deterministic": not_asked,
        "cudnn_benchmark": not_asked,
        "threads": not_asked,
        "cpus_before_import": "",
        "cpus_after_import": "",
        "other_torch": [],
    }


def gpu_allowed():
    return os.environ.get(SWITCH) != "1" and SWITCH + "=1" not in sys.argv[1:]


def number_ranges(numbers):
    """{0, 1, 2, 5} as "0-2,5"."""
    ranges = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(a) if a == b else "%d-%d" % (a, b) for a, b in ranges)


def allowed_cpus():
    return ask(lambda: number_ranges(os.sched_getaffinity(0)), "")


def loaded_libraries():
    """Paths of the vendor's libraries in this process, as really loaded."""
    paths = set()
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            columns = line.rstrip("\n").split(None, 5)
            if len(columns) == 6 and os.path.basename(columns[5]).startswith(LIBRARIES):
                paths.add(columns[5])
    return sorted(paths)


def torch_file():
    """Where torch would come from, found without running it."""
    spec = importlib.util.find_spec("torch")
    return str(spec.origin or "") if spec else ""


def other_torch(imported):
    """Further folders with a torch on the search path than that of the file `imported`."""
    seen = {os.path.realpath(os.path.dirname(imported))} if imported else set()
    others = []
    for entry in sys.path:
        folder = os.path.join(os.path.abspath(entry), "torch")
        real = os.path.realpath(folder)
        if real not in seen and os.path.isfile(os.path.join(folder, "__init__.py")):
            seen.add(real)
            others.append(folder)
    return others


def about_python():
    return {
        "executable": sys.executable or absent("not-there"),
        "python": sys.version.split()[0],
        "cpus_before_import": allowed_cpus(),
    }


def import_torch():
    """The module and None, or None and the absence that says why."""
    try:
        import torch
    except ModuleNotFoundError as error:
        missing = "not-there" if error.name == "torch" else "failed"
        return None, absent(missing, error_text(error))
    except (Exception, SystemExit) as error:
        return None, absent("failed", error_text(error))
    if not isinstance(getattr(torch, "__version__", None), str):
        return None, absent("failed", "the module that is imported as torch has no __version__")
    return torch, None


def build_facts(torch):
    version = getattr(torch, "version", None)
    names = ("cuda", "hip", "xpu")
    return {name: str(getattr(version, name, None) or "") for name in names}


def architectures(torch):
    """What the build holds code for; get_arch_list() would answer nothing where no GPU works."""
    flags = getattr(torch._C, "_cuda_getArchFlags", None)
    return (flags() or "").split() if flags is not None else []


def matmul_precision(torch):
    """Before torch 1.12 there is only the switch behind it."""
    if hasattr(torch, "get_float32_matmul_precision"):
        return str(torch.get_float32_matmul_precision())
    return "high" if torch.backends.cuda.matmul.allow_tf32 else "highest"


def settings(torch):
    """Flags of the process; reading them does not touch a GPU."""
    return {
        "archs": ask(lambda: architectures(torch), []),
        "matmul_precision": ask(lambda: matmul_precision(torch), ""),
        "deterministic": ask(lambda: bool(torch.are_deterministic_algorithms_enabled())),
        "cudnn_benchmark": ask(lambda: bool(torch.backends.cudnn.benchmark)),
        "threads": ask(lambda: int(torch.get_num_threads())),
    }


def cudnn_version(torch):
    version = torch.backends.cudnn.version()
    return absent("not-there") if version is None else int(version)


def checked_product(torch, index):
    """Small whole numbers: exact in every precision that a matrix product may be set to."""
    size = 64
    left = torch.arange(size * size).reshape(size, size).remainder(7).sub(3).to(torch.float32)
    right = left.t().contiguous().add(1)
    wanted = left.matmul(right)
    device = torch.device("cuda", index)
    got = left.to(device).matmul(right.to(device)).cpu()
    worst = float((got - wanted).abs().max())
    return "ok" if worst <= 1e-3 else "the matrix product is wrong by up to %g" % worst


def operation(torch, index):
    if index >= OPERATION_LIMIT:
        return absent("not-asked")
    try:
        return checked_product(torch, index)
    except Exception as error:
        return error_text(error)


def uuid_text(properties):
    text = str(getattr(properties, "uuid", "") or "")
    return text if not text or text.startswith(("GPU-", "MIG-")) else "GPU-" + text


def describe(torch, index):
    properties = torch.cuda.get_device_properties(index)
    return {
        "name": str(properties.name),
        "uuid": uuid_text(properties),
        "compute_capability": "%d.%d" % (properties.major, properties.minor),
    }


def device(torch, index):
    facts = ask(lambda: describe(torch, index), {"name": "", "uuid": "", "compute_capability": ""})
    facts["operation"] = operation(torch, index)
    return facts


def gpu_answers(torch):
    answers = {
        "available": ask(lambda: bool(torch.cuda.is_available())),
        "device_count": ask(lambda: int(torch.cuda.device_count())),
        "cudnn": ask(lambda: cudnn_version(torch)),
    }
    count = answers["device_count"]
    answers["devices"] = [device(torch, i) for i in range(count)] if isinstance(count, int) else []
    return answers


def sleeping_gpu_answers():
    return {name: absent("asleep") for name in ("available", "device_count", "cudnn")}


def with_warnings(question):
    """The answers, and in them what was warned of meanwhile, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answers = question()
    texts = dict.fromkeys(str(warning.message)[-TEXT_LIMIT:] for warning in caught)
    answers["warnings"] = list(texts)[:WARNING_LIMIT]
    return answers


def torch_answers(torch):
    answers = {"version": str(torch.__version__), "file": str(getattr(torch, "__file__", None) or "")}
    answers.update(build_facts(torch))
    answers.update(settings(torch))
    answers.update(with_warnings(lambda: gpu_answers(torch)) if gpu_allowed() else sleeping_gpu_answers())
    return answers


def collect(answers):
    """Fills `answers` step by step, so that what is known stays known when a step fails."""
    answers.update(about_python())
    torch, why = import_torch()
    answers["cpus_after_import"] = allowed_cpus()
    if torch is None:
        answers.update({"version": why, "file": ask(torch_file, "")})
    else:
        answers.update(torch_answers(torch))
    answers["libraries"] = ask(loaded_libraries, [])
    answers["other_torch"] = ask(lambda: other_torch(answers["file"]), [])


def clean(value):
    """The same with text that is valid Unicode: undecodable bytes of a path would make invalid JSON."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {key: clean(item) for key, item in value.items()}
    return [clean(item) for item in value] if isinstance(value, list) else value


def write(answers):
    """Straight to the file descriptor: sys.stdout may have been replaced by what was imported."""
    try:
        sys.stdout.flush()
    except Exception:
        pass
    data = ("\n%s\n%s\n" % (MARKER, json.dumps(clean(answers)))).encode("ascii")
    while data:
        data = data[os.write(1, data) :]


def main():
    answers = nothing_known()
    try:
        collect(answers)
    except BaseException as error:
        answers["warnings"].append("the probe ended early: " + error_text(error))
    try:
        write(answers)
    finally:
        os._exit(0)  # whatever is registered for the end could print after the answer, or hang


main()
