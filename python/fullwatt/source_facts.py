"""Reads Python files as text and prints what stands in them, as JSON: definitions, calls, assignments, comparisons, loops.

Usage: python source_facts.py FILE...

It runs in a process of its own after the training, imports nothing of the user's, and decides nothing: `fullwatt/explain`
does. A file that cannot be read or parsed is reported under `error`. Python 3.8 and newer.
"""

import ast
import json
import sys

SCHEMA = 1
MOST_BYTES = 4 * 1024 * 1024
MOST_CALLS = 20000
WATCHED_METHODS = ("item", "cpu", "numpy", "tolist", "nonzero", "synchronize", "empty_cache", "is_nonzero")
WATCHED_FUNCTIONS = ("print",)
STEP_METHODS = ("backward", "step")
CONVERTERS = ("str", "bool", "int", "float", "lower", "strip", "upper", "isinstance")


def dotted(node):
    """`torch.backends.cudnn` of an attribute chain; what is not a name becomes `()` or `[]`; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return (dotted(node.value) or "()") + "." + node.attr
    if isinstance(node, ast.Call):
        return (dotted(node.func) or "") + "()"
    if isinstance(node, ast.Subscript):
        return (dotted(node.value) or "") + "[]"
    return ""


def index_of(node):
    """The index of a subscript, which Python 3.8 wraps once more."""
    index = node.slice
    return getattr(index, "value", index) if type(index).__name__ == "Index" else index


def printable(text):
    """Text that is valid UTF-8: half a surrogate pair would break the reader of the JSON."""
    return text.encode("utf-8", "replace").decode("utf-8")


def literal(node):
    """A literal as (text, type), or None. A negative number is an operator and a number to Python."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = literal(node.operand)
        return ("-" + inner[0], inner[1]) if inner and inner[1] in ("int", "float") else None
    if not isinstance(node, ast.Constant) or isinstance(node.value, (bytes, complex, type(...))):
        return None
    if isinstance(node.value, str):
        return (printable(node.value[:200]), "str")
    return (str(node.value), type(node.value).__name__)


def name_of(function):
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def is_converted(node):
    """Whether the value passes through str(), int(), .lower() and the like before it is looked at."""
    return isinstance(node, ast.Call) and name_of(node.func) in CONVERTERS


def unwrapped(node):
    """The expression without such conversions: config['amp'] of str(config['amp']).lower()."""
    while is_converted(node):
        inner = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0] if node.args else None
        if inner is None:
            break
        node = inner
    return node


def key_of(node):
    """The setting that an expression reads: `amp` of config['train'].get('amp'), cfg.amp, args['amp'] and amp."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    wanted = None
    if isinstance(node, ast.Subscript):
        wanted = index_of(node)
    elif isinstance(node, ast.Call) and name_of(node.func) == "get" and node.args:
        wanted = node.args[0]
    elif isinstance(node, ast.Call) and name_of(node.func) == "getattr" and len(node.args) > 1:
        wanted = node.args[1]
    found = literal(wanted)
    return found[0] if found and found[1] == "str" else ""


class Reader(ast.NodeVisitor):
    """Walks one file and fills `facts`."""

    def __init__(self, source):
        self.lines = source.splitlines()
        self.scope = []
        self.loops = 0
        self.inner_loops = 0  # of the enclosing ones, those that do not train
        self.in_training_for = False
        self.aliases = {}
        self.references = set()
        self.facts = {name: [] for name in (
            "functions", "calls", "assignments", "comparisons", "truths", "loops", "uses", "loaders", "fields")}

    def function(self):
        return ".".join(self.scope)

    def text(self, node, limit=120):
        if node.lineno != getattr(node, "end_lineno", None):
            return ""
        line = self.lines[node.lineno - 1] if node.lineno <= len(self.lines) else b""
        return line[node.col_offset:node.end_col_offset].decode("utf-8", "replace")[:limit]

    def add(self, kind, node, **fields):
        self.facts[kind].append(dict(fields, line=node.lineno, function=self.function()))

    # Scopes

    def visit_ClassDef(self, node):
        self.scope.append(node.name)
        self.generic_visit(node)
        self.scope.pop()

    def visit_FunctionDef(self, node):
        qualified = ".".join(self.scope + [node.name])
        decorators = [dotted(item.func if isinstance(item, ast.Call) else item) for item in node.decorator_list]
        self.facts["functions"].append({
            "name": node.name, "qualified": qualified, "line": node.lineno,
            "end_line": getattr(node, "end_lineno", node.lineno), "decorators": [name for name in decorators if name]})
        for item in node.decorator_list + node.args.defaults + [value for value in node.args.kw_defaults if value]:
            self.visit(item)
        self.scope.append(node.name)
        around = self.loops, self.inner_loops, self.in_training_for
        self.loops, self.inner_loops, self.in_training_for = 0, 0, False
        for item in node.body:
            self.visit(item)
        self.loops, self.inner_loops, self.in_training_for = around
        self.scope.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    # Loops

    def visit_For(self, node):
        is_training = trains(node)
        if self.inner_loops == 0 and not (is_training and self.in_training_for):
            self.outermost_loop(node, is_training)
        around, self.in_training_for = self.in_training_for, self.in_training_for or is_training
        self.inside_loop(node, is_training)
        self.in_training_for = around

    visit_AsyncFor = visit_For

    def visit_While(self, node):
        self.truth(node.test)
        self.inside_loop(node, trains(node))

    def inside_loop(self, node, is_training):
        self.loops += 1
        self.inner_loops += not is_training
        self.generic_visit(node)
        self.inner_loops -= not is_training
        self.loops -= 1

    def outermost_loop(self, node, is_training):
        """A loop that stands in no other one, or in nothing but training loops."""
        depth = loop_depth(node)
        inner = [item for item in ast.walk(node) if isinstance(item, ast.For)]
        self.add("loops", node, end_line=getattr(node, "end_lineno", node.lineno), depth=depth,
                 over=[self.text(item.iter) for item in inner][:8],
                 ranges=sum(1 for item in inner if dotted(getattr(item.iter, "func", None)) in ("range", "enumerate")),
                 writes=sorted(written_names(node)), trains=is_training)

    # Statements

    def visit_Assign(self, node):
        for target in node.targets:
            self.assignment(target, node.value, node)
        self.generic_visit(node)

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.assignment(node.target, node.value, node)
        self.generic_visit(node)

    def assignment(self, target, value, node):
        name = dotted(target)
        if isinstance(target, ast.Subscript) and dotted(target.value) == "os.environ":
            found = literal(index_of(target))
            name = "os.environ[%s]" % (found[0] if found else "")
        key = self.key(value)
        if key and name and not is_converted(value):
            self.aliases[name] = key
        if "." not in name and not name.isidentifier():
            return
        found = literal(value)
        if name.startswith(("torch.", "os.environ", "cudnn.")) or found or ".backends." in name:
            self.add("assignments", node, target=name, value=found[0] if found else self.text(value),
                     type=found[1] if found else "")

    def visit_If(self, node):
        self.truth(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node):
        self.truth(node.test)
        self.generic_visit(node)

    def truth(self, node):
        """A setting that is asked for its truth: `if config['amp']:`."""
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                self.truth(value)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.truth(node.operand)
        else:
            key = self.key(node)
            if key:
                self.add("truths", node, key=key, converted=is_converted(node))

    def key(self, node):
        node = unwrapped(node)
        return self.aliases.get(dotted(node)) or key_of(node)

    # Expressions

    def visit_Compare(self, node):
        left = node.left
        for operator, right in zip(node.ops, node.comparators):
            self.comparison(node, left, operator, right)
            left = right
        self.generic_visit(node)

    def comparison(self, node, left, operator, right):
        if literal(left) and not literal(right):
            left, right = right, left
        several = right.elts if isinstance(right, (ast.Tuple, ast.List, ast.Set)) else [right]
        key = self.key(left)
        for item in several:
            found = literal(item)
            if key and found:
                self.add("comparisons", node, what=self.text(left), key=key, literal=found[0], type=found[1],
                         operator=type(operator).__name__, converted=is_converted(left))

    def visit_Call(self, node):
        name = dotted(node.func)
        last = name.rsplit(".", 1)[-1]
        if len(self.facts["calls"]) < MOST_CALLS and name:
            self.add("calls", node, name=name, keywords=keywords(node), in_loop=self.loops > 0)
        attribute = isinstance(node.func, ast.Attribute)
        if (attribute and last in WATCHED_METHODS) or (not attribute and last in WATCHED_FUNCTIONS):
            self.add("uses", node, what=last, in_loop=self.loops > 0)
        if last.endswith("DataLoader"):
            self.add("loaders", node, name=name, keywords=keywords(node))
        if last == "isinstance" and node.args:
            self.add("truths", node, key=self.key(node.args[0]), converted=True)
        self.generic_visit(node)

    def visit_Dict(self, node):
        if self.gives_samples():
            for item in node.keys:
                found = literal(item) if item is not None else None
                if found and found[1] == "str":
                    self.add("fields", node, name=found[0])
        self.generic_visit(node)

    def visit_Subscript(self, node):
        found = literal(index_of(node))
        if found and found[1] == "str" and self.gives_samples():
            self.add("fields", node, name=found[0])
        self.generic_visit(node)

    def gives_samples(self):
        return bool(self.scope) and (self.scope[-1] == "__getitem__" or "collate" in self.scope[-1])

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Load):
            self.references.add(node.id)

    def visit_Attribute(self, node):
        if isinstance(node.ctx, ast.Load):
            self.references.add(node.attr)
        self.generic_visit(node)

    def visit_Constant(self, node):
        if isinstance(node.value, str) and node.value.isidentifier():
            self.references.add(node.value)

    def visit_alias(self, node):
        self.references.add((node.asname or node.name).rsplit(".", 1)[-1])


def keywords(node):
    """The keyword arguments of a call; an argument that is no literal is given as an empty text."""
    found = {}
    for item in node.keywords:
        if item.arg is not None:
            value = literal(item.value)
            found[item.arg] = value[0] if value else ""
    return found


def loop_depth(node):
    """How deep `for` loops stand inside each other, this one included; functions defined inside do not count."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            deepest = max(deepest, loop_depth(child))
    return deepest + (1 if isinstance(node, (ast.For, ast.AsyncFor)) else 0)


def written_names(node):
    """What a loop fills element by element: `heatmap` of heatmap[i, y, x] = …."""
    names = set()
    for item in ast.walk(node):
        targets = item.targets if isinstance(item, ast.Assign) else [item.target] if isinstance(item, ast.AugAssign) else []
        for target in targets:
            while isinstance(target, ast.Subscript):
                target = target.value
                if isinstance(target, (ast.Name, ast.Attribute)):
                    names.add(dotted(target).rsplit(".", 1)[-1])
    return names


def trains(node):
    """Whether a loop is the training loop itself."""
    return any(isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in STEP_METHODS
               for item in ast.walk(node))


def read(path):
    """The facts of one file."""
    facts = {"path": printable(path), "error": None}
    try:
        with open(path, "rb") as file:
            source = file.read(MOST_BYTES + 1)
        if len(source) > MOST_BYTES:
            raise ValueError("larger than %d bytes" % MOST_BYTES)
        reader = Reader(source)
        reader.visit(ast.parse(source, filename=path))
        facts.update(reader.facts, references=sorted(reader.references))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError, AttributeError) as error:
        facts["error"] = "%s: %s" % (type(error).__name__, str(error)[:200])
    return facts


def main(paths):
    sys.setrecursionlimit(5000)
    json.dump({"schema": SCHEMA, "files": [read(path) for path in paths]}, sys.stdout)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
