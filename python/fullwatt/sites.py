"""Where in the user's code something happens: the innermost frame that is neither Python's, a library's nor ours."""

import dis
import os
import sys

FRAME_LIMIT = 200
# A program of these only starts the user's one: its own package is nobody's training code.
LAUNCHERS = {"torch", "accelerate", "deepspeed", "ipykernel", "ipykernel_launcher", "IPython", "pytest", "debugpy", "unittest"}
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Sites:
    """Tells the user's files from the others, and names places. Code objects are kept, so that their addresses stay theirs."""

    def __init__(self):
        self._start_folder = os.getcwd() if _folder_exists() else "/"
        self._prefixes = None
        self._own_package = ""
        self._is_user = {}
        self._codes = {}
        self._texts = {}
        self.text = None  # turns a text into its id in the spool

    def refresh(self):
        """Judges anew: torch was imported, and may lie anywhere."""
        self._prefixes = None
        self._is_user.clear()

    def prefixes(self):
        """Folders that are not the user's."""
        if self._prefixes is None:
            self._prefixes = library_folders()
            self._own_package = main_package(self._prefixes)
        return self._prefixes

    def is_user(self, filename):
        """Whether a file is the user's."""
        known = self._is_user.get(filename)
        if known is None:
            known = self._is_user[filename] = self._judge(filename)
        return known

    def _judge(self, filename):
        if filename.startswith("<"):
            return filename in ("<string>", "<stdin>") or filename.startswith("<ipython-input")
        path = self.absolute(filename)
        if path.startswith(_PACKAGE):
            return False
        prefixes = self.prefixes()
        if self._own_package and path.startswith(self._own_package):
            return True
        if "/site-packages/" in path or "/dist-packages/" in path:
            return False
        return not path.startswith(tuple(prefixes))

    def absolute(self, filename):
        """The path of a code object's file; the program may have changed its folder since."""
        return filename if filename.startswith(("/", "<")) else os.path.normpath(os.path.join(self._start_folder, filename))

    def frame(self):
        """The innermost frame of the user's code that led here, or None."""
        return self.user_frame(sys._getframe(1))

    def user_frame(self, frame):
        """The frame itself or the nearest of its callers that is the user's."""
        for _ in range(FRAME_LIMIT):
            if frame is None or self.is_user(frame.f_code.co_filename):
                return frame
            frame = frame.f_back
        return None

    def here(self):
        """The user's place as a fact has it."""
        frame = self.frame()
        if frame is None:
            return None
        code = frame.f_code
        return {"file": self.absolute(code.co_filename), "line": frame.f_lineno, "function": code.co_name}

    def describe(self, frame):
        """file:line:function of a frame."""
        return self.describe_code(frame.f_code, frame.f_lasti)

    def describe_code(self, code, instruction):
        """The same of a place in a code object."""
        key = (id(code), instruction)
        text = self._texts.get(key)
        if text is None:
            self._codes[id(code)] = code
            text = "%s:%d:%s" % (self.absolute(code.co_filename), line_of(code, instruction), code.co_name)
            self._texts[key] = text
        return text

    def id_here(self):
        """The user's place as the id of a text; 0 when no user's code is on the stack."""
        frame = self.frame()
        return self.text(self.describe(frame)) if frame is not None else 0


def line_of(code, instruction):
    """The line of an instruction, given by its place in the bytes."""
    line = code.co_firstlineno
    for start, starting in dis.findlinestarts(code):
        if start > instruction:
            break
        line = starting if starting is not None else line
    return line


def _folder_exists():
    try:
        os.getcwd()
        return True
    except OSError:
        return False


def library_folders():
    """Where Python, its packages and this one lie, longest first."""
    import site
    import sysconfig

    folders = {_PACKAGE, os.path.dirname(os.__file__)}
    folders.update(sysconfig.get_paths().get(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    for ask in ("getsitepackages", "getusersitepackages"):
        try:
            found = getattr(site, ask)()
            folders.update([found] if isinstance(found, str) else found)
        except Exception:
            pass
    torch = sys.modules.get("torch")
    if getattr(torch, "__file__", None):
        folders.add(os.path.dirname(torch.__file__))
    both = {variant for folder in folders if folder for variant in (os.path.abspath(folder), os.path.realpath(folder))}
    return sorted((folder.rstrip(os.sep) + os.sep for folder in both), key=len, reverse=True)


def main_file():
    """The path of the main script or module; empty for -c and in a notebook."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.abspath(path) if path else ""


def main_package(prefixes):
    """The folder of the main program's package when it is an installed one: then that is the user's code."""
    path = main_file()
    name = _entry_point_package(path) if _is_script(path) else None
    root = next((prefix for prefix in prefixes if path.startswith(prefix)), None)
    if name is None and root is not None:
        name = os.path.splitext(path[len(root):].split(os.sep)[0])[0]
    if not name or name in LAUNCHERS or name == "fullwatt":
        return ""
    for prefix in prefixes:
        if os.path.isdir(prefix + name):
            return prefix + name + os.sep
    return ""


def _is_script(path):
    return bool(path) and os.path.dirname(path) == os.path.dirname(os.path.abspath(sys.executable))


def _entry_point_package(path):
    """The package behind an installed command such as bin/my-train."""
    try:
        from importlib import metadata

        for distribution in metadata.distributions():
            for point in distribution.entry_points:
                if point.group == "console_scripts" and point.name == os.path.basename(path):
                    return point.value.split(":")[0].split(".")[0]
    except Exception:
        pass
    return None
