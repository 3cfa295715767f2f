"""fullwatt.start() and fullwatt.report(), for notebooks and other long-lived processes."""

import datetime
import json
import os
import subprocess
import sys

from . import __version__, entry, libraries
from .libraries import program

NO_PROGRAM = "fullwatt: the program `fullwatt` is not on PATH; add the folder of its binary to PATH, or set FULLWATT_PROGRAM to it"


def start(folder=None):
    """Makes a run folder and hooks torch, imported already or not. Best called before the model and its GradScaler are made."""
    running = entry.current()
    if running is not None:
        return running.folder
    folder = os.path.abspath(folder or new_folder())
    os.makedirs(folder, exist_ok=True)
    write_run(folder)
    entry.begin(folder, libraries.find("libfullwatt_recorder.so", "FULLWATT_RECORDER"))
    return folder


def new_folder():
    """runs/<time>-<pid> in FULLWATT_HOME, or in .fullwatt under the working folder."""
    name = datetime.datetime.now().strftime("%Y%m%d-%H%M%S") + "-%d" % os.getpid()
    return os.path.join(os.environ.get("FULLWATT_HOME") or ".fullwatt", "runs", name)


def write_run(folder):
    """run.json, which `fullwatt run` would write: model::RunInfo of fullwatt/model/run.hpp."""
    started = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    information = {
        "schema": 1,
        "id": os.path.basename(folder),
        "command": [sys.executable or "python"] + list(getattr(sys, "argv", [])),
        "folder": os.getcwd(),
        "version": __version__,
        "started": started,
        "seconds": 0.0,
        "sampler": "started inside the process: nobody sampled the GPU beside it",
    }
    path = os.path.join(folder, "run.json")
    if not os.path.exists(path):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(information, file, indent=1)


def report(folder=None):
    """Asks the program for the report and shows it."""
    running = entry.current()
    folder = folder or (running.folder if running is not None else None)
    if folder is None:
        raise RuntimeError("fullwatt.start() was not called, so there is nothing to report")
    if program() is None:
        print(NO_PROGRAM, file=sys.stderr)
        return None
    if in_notebook() and show_html(folder):
        return None
    answer = subprocess.run([program(), "report", folder], stdout=subprocess.PIPE, universal_newlines=True)
    print(answer.stdout, end="")
    return None


def in_notebook():
    """Whether HTML can be shown in place."""
    ipython = sys.modules.get("IPython")
    try:
        return ipython is not None and ipython.get_ipython() is not None
    except Exception:
        return False


def show_html(folder):
    """Shows the HTML report in the notebook; tells whether there was one."""
    path = os.path.join(folder, "report.html")
    answer = subprocess.run([program(), "report", folder, "--html", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    html = read(path) if answer.returncode == 0 else ""
    if not html:
        return False
    from IPython.display import HTML, display

    frame = '<div><iframe srcdoc="%s" style="width:100%%;height:80vh;border:0"></iframe></div>'
    display(HTML(frame % html.replace("&", "&amp;").replace('"', "&quot;")))
    return True


def read(path):
    """The text of a file, or nothing."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""
