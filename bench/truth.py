"""What is known about the workloads by construction: tests/workloads/workloads.yaml and the `# planted` lines of the programs."""

import pathlib
import re
import shutil

WORKLOADS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "workloads"
TOKEN = re.compile(r"\s*('(?:[^']|'')*'|[\[\]{},]|:(?=\s)|(?:[^\s\[\]{},:']|:(?!\s))(?:[^\[\]{},:]|:(?!\s))*)")
WORDS = {"true": True, "false": False, "": None}


def scalar(text):
    text = text.strip()
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    return WORDS.get(text, int(text) if text.isdigit() else text)


def flow(tokens):
    """One value of YAML's flow style; the tokens are used up from the front."""
    token = tokens.pop(0)
    if token == "[":
        values = []
        while tokens[0] != "]":
            values.append(flow(tokens))
            if tokens[0] == ",":
                tokens.pop(0)
        tokens.pop(0)
        return values
    if token != "{":
        return scalar(token)
    mapping = {}
    while tokens[0] != "}":
        key = scalar(tokens.pop(0))
        tokens.pop(0)
        mapping[key] = flow(tokens)
        if tokens[0] == ",":
            tokens.pop(0)
    tokens.pop(0)
    return mapping


def read_yaml(text):
    """Mappings by indentation with values in flow style: all that the truth uses, so that no package is needed to read it."""
    root = {}
    levels = [(-1, root)]
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        key, _, value = line.strip().partition(":")
        while levels[-1][0] >= indent:
            levels.pop()
        parent = levels[-1][1]
        if value.strip():
            value = value.strip()
            parent[key] = flow(TOKEN.findall(value)) if value[0] in "[{" else scalar(value)
        else:
            parent[key] = {}
            levels.append((indent, parent[key]))
    return root


def load():
    return read_yaml((WORKLOADS / "workloads.yaml").read_text(encoding="utf-8"))["workloads"]


def script(name):
    return WORKLOADS / f"{name}.py"


def planted_lines(name, program=None):
    """Of the program as it is, or of the copy that a recording kept."""
    lines = (program or script(name)).read_text(encoding="utf-8").splitlines()
    return [number for number, line in enumerate(lines, 1) if line.rstrip().endswith("# planted")]


def without_cause(name, truth, folder):
    """A copy of the program in which the planted cause is taken away."""
    text = script(name).read_text(encoding="utf-8")
    for old, new in truth["fixed"].items():
        if old not in text:
            raise ValueError(f"{name}: '{old}' does not stand in the program")
        text = text.replace(old, new)
    copy = pathlib.Path(folder) / f"{name}.py"
    copy.write_text(text, encoding="utf-8")
    shutil.copy(WORKLOADS / "common.py", folder)
    return copy
