"""Where the program `fullwatt` and its shared libraries are."""

import os
import shutil


def program():
    """The path of the command `fullwatt`, or None."""
    return os.environ.get("FULLWATT_PROGRAM") or shutil.which("fullwatt")


def find(name, variable):
    """The path of a library: named by the environment, beside this package, beside the program, or beside the recorder that `fullwatt run` names; empty where there is none."""
    named = os.environ.get(variable)
    if named:
        return named
    package = os.path.dirname(os.path.abspath(__file__))
    folders = [os.path.join(package, "lib"), os.path.join(os.path.dirname(package), "lib")]
    if program():
        root = os.path.dirname(os.path.dirname(os.path.realpath(program())))
        folders += [os.path.join(root, "lib"), os.path.join(root, "lib", "fullwatt"), os.path.join(root, "lib64")]
    folders.append(os.path.dirname(os.environ.get("FULLWATT_RECORDER", "")) or package)
    return next((path for path in (os.path.join(f, name) for f in folders) if os.path.exists(path)), "")
