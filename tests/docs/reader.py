# SPDX-License-Identifier: Apache-2.0
"""The documents, and a reader who follows one of them at a shell."""

import collections
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

# pylint: disable=wrong-import-position
import support
from blocks import read_blocks
from support import PATIENCE, PROGRAM, REPOSITORY

COMPILER = sys.argv.pop(2) if len(sys.argv) > 2 else "c++"

# Not ours, or made by the build.
FOREIGN_FOLDERS = {"build", "node_modules", "site", "third_party"}


class Failure(AssertionError):
    """Something that is documented does not work."""


def files(*endings):
    """The files of the repository with this suffix, by their paths in it."""
    for folder, folders, names in os.walk(REPOSITORY):
        folders[:] = sorted(name for name in folders
                            if name not in FOREIGN_FOLDERS and not name.startswith("."))
        for name in sorted(names):
            if name.endswith(endings):
                yield (pathlib.Path(folder) / name).relative_to(REPOSITORY)


def documents():
    return files(".md")


def read_document(path):
    return (REPOSITORY / path).read_text(encoding="utf-8")


class Ports:
    """Free ports that replace those in documents."""

    ADDRESS = re.compile(
        r"(?P<host>127\.0\.0\.1|0\.0\.0\.0|localhost|sluice\.example):(?P<port>\d{4,5})\b")
    OPTION = re.compile(r"(?P<host>\bredis-cli\b[^\n]*? -p) (?P<port>\d{4,5})\b")
    REDIS = re.compile(r"(rediss?://127\.0\.0\.1:\d+)(?![\w/?,:])")

    def __init__(self, redis_port):
        self.real = collections.defaultdict(support.free_port, {6379: redis_port})

    def into(self, text):
        """The text with real ports. Only this machine is contacted, and the store is waited for,
        however busy it is."""
        text = self.REDIS.sub(r"\1?timeout=60s\&connect_timeout=60s", text)
        for pattern, separator in ((self.ADDRESS, ":"), (self.OPTION, " ")):
            text = pattern.sub(lambda match, by=separator: "".join(
                (match["host"].replace("0.0.0.0", "127.0.0.1"), by,
                 str(self.real[int(match["port"])]))), text)
        return text


class Reader:
    """A reader who follows a document from its beginning, in a new folder that looks like the
    repository after `make build`, with some files: recorded traffic in traffic.csv, rules in
    rules.yaml, and a program in app.cc."""

    COPIED = ("examples", "deploy", "tools")
    APP = "#include <sluice/sluice.h>\nint main() {}\n"

    def __init__(self, redis):
        self.ports = Ports(redis.port)
        self.redis = redis
        self.folder = support.Folder()
        self.state = support.Folder()
        self.prefix = self.folder / "usr/local"
        self.output = ""
        self.files = 0
        self.look_like_the_repository()

    def look_like_the_repository(self):
        for entry in REPOSITORY.iterdir():
            if entry.name.startswith(".") or entry.name in FOREIGN_FOLDERS:
                continue
            if entry.name in self.COPIED:
                self.copy(entry)
            else:
                os.symlink(entry, self.folder / entry.name)
        for link, target in (("build/release", os.path.dirname(PROGRAM)), ("bin/sluice", PROGRAM)):
            os.makedirs(os.path.dirname(self.folder / link))
            os.symlink(target, self.folder / link)
        shutil.copy(REPOSITORY / "examples/traffic.csv", self.folder / "traffic.csv")
        self.folder.write("app.cc", self.APP)
        rules = "docs/reference/rules.md"
        self.folder.write("rules.yaml", read_blocks(rules, read_document(rules))[0].text)

    def copy(self, folder):
        """With free ports."""
        for path in folder.rglob("*"):
            if path.is_file():
                name = path.relative_to(REPOSITORY)
                content = self.here(path.read_text(encoding="utf-8", errors="replace"))
                os.chmod(self.folder.write(str(name), content), path.stat().st_mode)

    def here(self, text):
        """The text with free ports, and with a writable folder."""
        return self.ports.into(text).replace("/usr/local", self.prefix)

    def type(self, commands, stdin="", any_status=False):
        """Runs commands, all of which must succeed, and returns what they print."""
        self.files += 1
        script = self.state.write(f"commands-{self.files}", self.here(commands) + "\n")
        environment = support.clean_environment({
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(self.folder),
            "STATE": str(self.state), "REPOSITORY": str(REPOSITORY), "LC_ALL": "C.UTF-8",
            "HTTP_LISTEN": self.here("127.0.0.1:8080"),
            "ADMIN_LISTEN": self.here("127.0.0.1:8090"),
            "REDIS_PORT": str(self.redis.port), "COMPILER": COMPILER,
            "CMAKE_PREFIX_PATH": self.prefix, "PKG_CONFIG_PATH": f"{self.prefix}/lib/pkgconfig"})
        arguments = ["bash", str(HERE / "shell.sh"), script]
        arguments += ["any-status"] if any_status else []
        stdin_path = self.state.write("stdin", self.here(stdin))
        # Not through pipes, which anything left in the background would keep open.
        with (open(stdin_path, "rb") as stdin_file, open(self.state / "stdout", "wb") as stdout,
              open(self.state / "stderr", "wb") as stderr):
            status = subprocess.run(arguments, cwd=str(self.folder), env=environment,
                                    stdin=stdin_file, stdout=stdout, stderr=stderr,
                                    timeout=2 * PATIENCE, check=False).returncode
        printed = pathlib.Path(self.state / "stdout").read_text("utf-8", "replace")
        complaint = pathlib.Path(self.state / "stderr").read_text("utf-8", "replace")
        if status != 0:
            raise Failure(f"exit status {status} of\n{commands}\n{printed}{complaint}")
        self.output = printed
        return printed

    def go(self):
        """Leaves nothing behind."""
        pid_file = pathlib.Path(self.state / "service.pid")
        if pid_file.exists():
            pid = int(pid_file.read_text())
            try:
                if os.path.samefile(f"/proc/{pid}/exe", PROGRAM):
                    os.kill(pid, signal.SIGKILL)
            except OSError:
                pass  # It has ended.
        self.folder.remove()
        self.state.remove()
