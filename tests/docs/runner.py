# SPDX-License-Identifier: Apache-2.0
"""Runs blocks of documents, each as its language or the comment before it says."""

import os
import re
import subprocess

import answers
from reader import COMPILER, Failure, read_document

from support import PATIENCE, REPOSITORY

ENVOY = REPOSITORY / "tests/integration/envoy/site/envoy/_bin/envoy"

LANGUAGES = {"sh": "sh", "bash": "sh", "shell": "sh", "console": "console", "yaml": "yaml",
             "yml": "yaml", "json": "json", "cpp": "cpp", "c++": "cpp", "promql": "promql",
             "cmake": "cmake"}

# How a line of commands begins, in a block without a language.
COMMAND = re.compile(r"(\w+=\S+ )*(\$|curl|sluice|make|redis-cli|(build|bench|tests|tools)/\S+) ")

WHAT_TO_DO = """\
nothing says how to run this block. Give it a language that is run (sh, console, yaml, json, cpp,
cmake, promql), or say in a comment before it what to do with it: `<!-- stdin of: COMMAND -->`,
`<!-- output of: COMMAND -->`, `<!-- part of: FILE -->` or, if it cannot be run,
`<!-- not run: REASON -->`. tests/docs/README.md has more."""


class Runner:
    """Runs the blocks of a document."""

    def __init__(self, reader):
        self.reader = reader
        self.programs = []
        self.queries = []
        self.not_run = []
        self.count = 0

    def run(self, block):
        self.count += 1
        try:
            self.run_as_it_says(block)
        except Failure as failure:
            raise Failure(f"{block.place}: {failure}") from None

    def run_as_it_says(self, block):
        says = block.directives
        if "not run" in says:
            if not says["not run"]:
                raise Failure("`not run:` needs a reason")
            self.not_run.append(block)
            return
        if "first" in says:
            self.reader.type(says["first"])
        if "part of" in says:
            self.check_part(block, says["part of"])
        elif "stdin of" in says:
            self.reader.type(says["stdin of"], stdin=block.text)
        elif "output of" in says:
            printed = self.reader.type(says["output of"], any_status=True)
            self.compare(block.text, printed)
        else:
            self.run_by_language(block)

    def run_by_language(self, block):
        language = LANGUAGES.get(block.language) if block.language else guess_language(block.text)
        if language is None:
            raise Failure(WHAT_TO_DO)
        getattr(self, f"run_{language}")(block)

    def run_sh(self, block):
        self.reader.type(block.text)

    def run_console(self, block):
        """Commands after `$ `, each followed by its output; if none is shown, none is printed."""
        for command, shown in read_session(block.text):
            printed = self.reader.type(command, any_status=bool(shown))
            if shown:
                self.compare(shown, printed)

    def run_json(self, block):
        """An answer to what was asked before it, or rule sets."""
        document = answers.parse_json(block.text)
        if document is None:
            raise Failure("this is no JSON; … may stand for a text and for further members")
        if "ruleSets" in document:
            self.run_yaml(block)
            return
        if answers.parse_json(self.reader.output) is None:
            raise Failure("the command before this JSON did not answer with any. If it is a body, "
                          "put `<!-- stdin of: curl -d @- URL -->` before it; if it is the answer "
                          "to a command that is not shown, `<!-- output of: COMMAND -->`")
        self.compare(block.text, self.reader.output)

    def run_yaml(self, block):
        """Settings, rule sets or descriptors; of Envoy, a part of its filter."""
        if re.search(r"^rate_limit_service:", block.text, re.M):
            self.check_envoy_filter(block)
        else:
            self.reader.type("cat > shown.yaml && sluice validate shown.yaml", stdin=block.text)

    def run_cmake(self, block):
        """A part of the CMakeLists.txt of a program `app`. The generator reports what is not
        found."""
        begin = ("cmake_minimum_required(VERSION 3.25)\nproject(app CXX)\n"
                 "add_executable(app app.cc)\n")
        self.reader.type('rm -rf app && mkdir app && cp app.cc app && cat > app/CMakeLists.txt && '
                         'cmake -S app -B app/build -DCMAKE_CXX_COMPILER="$COMPILER"',
                         stdin=begin + block.text)

    def run_cpp(self, block):
        self.programs.append(block)  # All are compiled together.

    def run_promql(self, block):
        self.queries.append(block)  # All are read together.

    @staticmethod
    def compare(shown, real):
        problem = answers.differences(shown, real)
        if problem:
            raise Failure(f"the answer is another one than is shown: {problem}")

    @staticmethod
    def check_part(block, name):
        """The lines of the block occur in a file, in this order, whatever their indentation."""
        lines = iter(line.strip() for line in (REPOSITORY / name).read_text().splitlines())
        for line in filter(None, map(str.strip, block.text.splitlines())):
            if line not in lines:
                raise Failure(f"{line!r} is not in {name}, or not at this place")

    def check_envoy_filter(self, block):
        """Replaces that of deploy/envoy; skipped without an Envoy."""
        if not os.access(ENVOY, os.X_OK):
            print(f"{block.place}: skipped: there is no {ENVOY}; tools/setup_proxies installs it")
            return
        text = block.text if re.search("^domain:", block.text, re.M) else "domain: x\n" + block.text
        config = (REPOSITORY / "deploy/envoy/envoy.yaml").read_text()
        inner = re.compile(r"^( *)domain: edge\n(?:.*\n)*? *grpc_service:.*\n", re.M)
        config, replaced = inner.subn(
            lambda match: "".join(f"{match[1]}{line}\n" for line in text.splitlines()), config)
        if replaced != 1:
            raise Failure("deploy/envoy/envoy.yaml has no filter as is expected here")
        self.reader.type(f"cat > envoy.yaml && {ENVOY} --mode validate --use-dynamic-base-id "
                         "-l error -c envoy.yaml", stdin=config)


def guess_language(text):
    """The language of a block without one: commands and JSON are recognised, nothing else."""
    if text.startswith("$ "):
        return "console"
    if COMMAND.match(text):
        return "sh"
    return "json" if answers.parse_json(text) is not None else None


def read_session(text):
    """Commands with what is shown after them. A command goes on after a backslash."""
    session = []
    goes_on = False
    for line in text.splitlines():
        if goes_on:
            session[-1][0] += "\n" + line
        elif line.startswith("$ "):
            session.append([line[2:], ""])
        elif session:
            session[-1][1] += line + "\n"
        else:
            raise Failure("a session begins with a command behind `$ `; for commands alone use sh")
        goes_on = line.endswith("\\") and (goes_on or line.startswith("$ "))
    return session


def compile_programs(blocks, folder):
    """All C++ that is shown, at once: each block in its own namespace, its includes before all. A
    block without main is taken for statements."""
    includes = []
    bodies = []
    for number, block in enumerate(blocks):
        lines = block.text.splitlines()
        includes += [line for line in lines if line.startswith("#include")]
        body = "\n".join("" if line.startswith("#include") else line for line in lines)
        if not re.search(r"^int main\(", body, re.M):
            body = f"void Serve(); void Shown() {{\n#line {block.line + 1}\n{body}\n}}"
        place = f'#line {block.line + 1} "{block.path}"'
        bodies.append(f"namespace shown_{number} {{\n{place}\n{body}\n}}")
    source = folder.write("shown.cc", "\n".join([*dict.fromkeys(includes), *bodies]) + "\n")
    done = subprocess.run([COMPILER, "-std=c++23", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
                           "-Wno-return-type", f"-I{REPOSITORY / 'include'}", source],
                          capture_output=True, text=True, timeout=5 * PATIENCE, check=False)
    if done.returncode != 0:
        raise Failure(f"C++ that is shown does not compile:\n{done.stderr}")


def read_queries(text):
    """One per line; indented lines belong to the line before."""
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return re.split(r"\n(?!\s)", "\n".join(lines))


def check_queries(blocks, folder):
    """Prometheus parses every query, and it asks for existing metrics."""
    known = documented_metrics()
    rules = ["groups:", "- name: shown", "  rules:"]
    for block in blocks:
        for query in read_queries(block.text):
            rules += [f"  - record: shown_{len(rules)}", "    expr: |-"]
            rules += [f"      {line}" for line in query.splitlines()]
            for name in re.findall(r"\b(?:sluice|rate_limiter|process)_\w+", query):
                if name not in known and re.sub("_(bucket|sum|count)$", "", name) not in known:
                    raise Failure(f"{block.place}: there is no metric {name}")
    path = folder.write("rules.yml", "\n".join(rules) + "\n")
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True,
                          timeout=PATIENCE, check=False)
    if done.returncode != 0:
        places = ", ".join(block.place for block in blocks)
        raise Failure(f"PromQL of {places}:\n{done.stdout}{done.stderr}")


def documented_metrics():
    """By their names. service_metrics tests that the reference names exactly these."""
    return set(re.findall(r"^\| `(\w+)` \|", read_document("docs/reference/metrics.md"), re.M))
