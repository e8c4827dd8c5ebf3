# SPDX-License-Identifier: Apache-2.0
"""Runs what the documents show: every fenced block of every markdown file, in order, against real
servers; the examples of help texts; and, of inline code, whether what it names exists. README.md
says how blocks are run and how to write one.

Usage: docs_test.py PROGRAM COMPILER
"""

import html
import os
import re
import shutil
import subprocess
import unittest

import answers
from blocks import BadDocument, Block, read_blocks, read_spans
from reader import FOREIGN_FOLDERS, Failure, Reader, documents, files, read_document
from runner import ENVOY, Runner, check_queries, compile_programs, documented_metrics

import support
from support import PATIENCE, REPOSITORY

EXAMPLE = str(REPOSITORY / "examples/sluice.yaml")
LIMITS = str(REPOSITORY / "deploy/envoy/limits")


def documented_settings():
    return set(re.findall(r"^\| `([\w.]+)` \|", read_document("docs/reference/settings.md"), re.M))


class DocumentsTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.redis = support.Redis()
        cls.addClassCleanup(cls.redis.remove)

    def reader(self):
        self.redis.cli("flushall")
        reader = Reader(self.redis)
        self.addCleanup(reader.go)
        return reader

    def folder(self):
        folder = support.Folder()
        self.addCleanup(folder.remove)
        return folder


class Blocks(DocumentsTest):
    def test_do_what_they_show(self):
        runners = []
        for path in documents():
            blocks = read_blocks(str(path), read_document(path))
            if not blocks:
                continue
            runner = Runner(self.reader())
            runners.append(runner)
            for block in blocks:
                with self.subTest(block.place):
                    runner.run(block)
        folder = self.folder()
        with self.subTest("C++"):
            programs = [block for runner in runners for block in runner.programs]
            compile_programs(programs, folder)
        with self.subTest("PromQL"):
            queries = [block for runner in runners for block in runner.queries]
            check_queries(queries, folder)
        self.tell(runners)

    def tell(self, runners):
        not_run = [block for runner in runners for block in runner.not_run]
        count = sum(runner.count for runner in runners)
        self.assertGreater(count, 30, "the documents are not found")
        print(f"{count} blocks in {len(runners)} documents; {len(not_run)} of them are not run:")
        for block in not_run:
            print(f"  {block.place}: {block.directives['not run']}")


class HelpTexts(DocumentsTest):
    """Examples outside documents."""

    def test_examples_of_commands(self):
        reader = self.reader()
        reader.type("sluice serve")  # For those that ask one.
        examples = []
        for command in subcommands():
            text = support.sluice(command, "--help").stdout
            for part in re.findall(r"^Examples?:\n((?:  .*\n)+)", text, re.M):
                examples.append(part)
                with self.subTest(command):
                    reader.type(part)
        self.assertGreaterEqual(len(examples), 3)

    def test_commands_of_the_page_of_the_api(self):
        reader = self.reader()
        reader.type("sluice serve --config examples/sluice.yaml")
        page = (REPOSITORY / "src/api/docs.html").read_text(encoding="utf-8")
        for command in re.findall(r"<code>(curl [^<$]*)</code>", page):
            with self.subTest(command):
                reader.type(html.unescape(command))

    def test_requests_of_the_description(self):
        service = support.Service("--config", EXAMPLE, "--rls-config", LIMITS)
        self.addCleanup(service.remove)
        requests = list(example_requests(service.get("/openapi.json").json))
        self.assertGreaterEqual(len(requests), 3)
        for method, path, body in requests:
            with self.subTest(f"{method} {path}"):
                port = service.admin_port if path.startswith("/admin/") else service.port
                answer = ask(port, method, path, body)
                self.assertLess(answer.status, 300, answer)

    def test_limits(self):
        specs = re.findall(r"^  (algorithm=\S+)$", support.sluice("--help").stdout, re.M)
        self.assertGreaterEqual(len(specs), 6)
        for spec in specs:
            with self.subTest(spec):
                self.assertEqual(support.sluice("replay", "--limit", spec).stderr, "")


def ask(port, method, target, body=None):
    """Any request, even one that the description does not know."""
    client = support.Client(port)
    try:
        return client.request(method, target, body)
    finally:
        client.close()


def example_requests(description):
    """Those that can be sent as they are: with a body, and without parameters in the path."""
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            if "{" in path or "requestBody" not in operation:
                continue
            for content in operation["requestBody"]["content"].values():
                examples = [named["value"] for named in content.get("examples", {}).values()]
                examples += [content["example"]] if "example" in content else []
                for body in examples:
                    yield method.upper(), path, body


def subcommands():
    listed = support.sluice("--help").stdout.partition("Subcommands:")[2]
    return re.findall(r"^  (\w+) ", listed, re.M)


def flags(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text))


def flags_of_commands():
    return {command: flags(support.sluice(command, "--help").stdout) for command in subcommands()}


class Proxies(DocumentsTest):
    """What the comments in deploy/ say to write into a proxy's configuration."""

    def shown(self, name, pattern):
        """The part of a file's comment that matches."""
        lines = (REPOSITORY / name).read_text(encoding="utf-8").splitlines()
        comment = "".join(line.removeprefix("#   ").removeprefix("#") + "\n" for line in lines
                          if line.startswith("#"))
        return re.search(pattern, comment, re.M | re.S)[0]

    def test_nginx(self):
        folder = self.folder()
        shown = self.shown("deploy/nginx/sluice.conf", r"^http \{$.*^\}$")
        for old, new in (
                ("/etc/nginx/sluice.conf", str(REPOSITORY / "deploy/nginx/sluice.conf")),
                ("http {", "http {\n  access_log off;\n  upstream app { server 127.0.0.1:1; }\n" +
                 "".join(f"  {kind}_temp_path {folder}/{kind};\n" for kind in
                         ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))),
                ("server {\n", f"server {{\n    listen 127.0.0.1:{support.free_port()};\n")):
            self.assertIn(old, shown)
            shown = shown.replace(old, new)
        config = folder.write("nginx.conf", f"pid {folder}/nginx.pid;\nevents {{}}\n{shown}")
        self.succeeds([shutil.which("nginx") or "/usr/sbin/nginx", "-t", "-q", "-e", "stderr",
                       "-c", config], folder)

    def test_caddy(self):
        folder = self.folder()
        shown = self.shown("deploy/caddy/Caddyfile", r"^import .*^\}$")
        for old, new in (
                ("/etc/caddy/sluice/Caddyfile", str(REPOSITORY / "deploy/caddy/Caddyfile")),
                ("example.com {", f"http://127.0.0.1:{support.free_port()} {{")):
            self.assertIn(old, shown)
            shown = shown.replace(old, new)
        config = folder.write("Caddyfile", shown)
        self.succeeds(["caddy", "validate", "--config", config, "--adapter", "caddyfile"], folder)

    def succeeds(self, command, folder):
        home = {name: str(folder) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE,
                              check=False, env=os.environ | home)
        self.assertEqual(done.returncode, 0, done.stderr)


class Inline(DocumentsTest):
    """What prose names exists: targets, commands, flags, settings, variables, paths, metrics,
    limits, files."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.spans = [(str(path), span) for path in documents() if path.name != "CHANGELOG.md"
                     for span in read_spans(str(path), read_document(path))]

    def each(self, pattern, check):
        """Checks the spans that match, each once."""
        found = {}
        for path, span in self.spans:
            match = re.match(pattern, span)
            if match:
                found.setdefault(span, (path, match))
        self.assertTrue(found, "the documents are not read as expected")
        for span, (path, match) in sorted(found.items()):
            with self.subTest(f"{path}: {span}"):
                check(match)

    def test_targets_of_make(self):
        reader = self.reader()

        def check(match):
            if match[1] != "run":
                reader.type(f"make {match[1]}")
        self.each(r"make ((?:[a-z][\w-]*)(?: [A-Z_]+=[\w-]+)?)", check)

    def test_commands_and_their_flags(self):
        known = flags_of_commands()

        def check(match):
            self.assertTrue(match[1] in known, "there is no such command")
            self.assertEqual(flags(match[2]) - known[match[1]], set(), "there are no such flags")
        self.each(r"(?:build/release/)?sluice ([a-z]+)\b(.*)", check)

    def test_flags(self):
        known = set().union(*flags_of_commands().values())
        self.each(r"--[a-z].*", lambda match: self.assertEqual(
            flags(match[0]) - known, set(), "there are no such flags"))

    def test_flags_of_what_is_not_run(self):
        """Synopses, and comments in configurations of proxies."""
        known = flags_of_commands()
        texts = [(block.place, block.text) for path in documents()
                 for block in read_blocks(str(path), read_document(path))
                 if "not run" in block.directives]
        texts += [(str(path.relative_to(REPOSITORY)), path.read_text(encoding="utf-8"))
                  for path in sorted((REPOSITORY / "deploy").rglob("*")) if path.is_file()]
        commands = [(place, *match.groups()) for place, text in texts
                    for match in re.finditer(r"\bsluice ([a-z]+) (.*(?:\n {6,}.*)*)", text)
                    if match[1] in known]
        self.assertGreaterEqual(len(commands), 4)
        for place, command, rest in commands:
            with self.subTest(place):
                self.assertEqual(flags(rest) - known[command], set(), "there are no such flags")

    def test_settings(self):
        # Members of the status are written the same way.
        service = support.Service()
        self.addCleanup(service.remove)
        status = service.admin("GET", "/admin/v1/status").json
        known = documented_settings() | {f"{name}.{member}" for name, part in status.items()
                                         if isinstance(part, dict) for member in part}
        sections = {name.partition(".")[0] for name in known if "." in name}
        self.each(rf"((?:{'|'.join(sorted(sections))})\.(?!yaml$)[a-z]\w*)(?::.*)?$",
                  lambda match: self.assertTrue(match[1] in known, "there is no such setting"))

    def test_limits(self):
        self.each(r"(?:algorithm|limit|capacity)=\S*,\S*$", lambda match: self.assertEqual(
            support.sluice("replay", "--limit", match[0]).stderr, ""))

    def test_metrics(self):
        known = documented_metrics()
        samples = {}
        for arguments in ((), ("--store", self.redis.uri)):
            service = support.Service("--config", EXAMPLE, *arguments)
            self.addCleanup(service.remove)
            for name, labels in service.metrics():
                samples.setdefault(name, set()).update(labels)

        def check(match):
            self.assertTrue(match[1] in known, "there is no such metric")
            labels = set(support.LABEL.findall(match[2] or ""))
            # Some series exist only while something is wrong.
            unknown = labels - samples.get(match[1], labels)
            self.assertEqual(unknown, set(), "there are no such labels")
        self.each(r"((?:sluice|rate_limiter|process)_\w+)(\{.*\})?$", check)

    def test_variables(self):
        known = {name for path in files(".cc", ".h", ".py", "run")
                 for name in re.findall(r"\"(SLUICE_[A-Z_]+)\"", read_document(path))}
        known |= set(re.findall(r"SLUICE_[A-Z0-9_]+", read_document("docs/reference/settings.md")))
        self.each(r"(SLUICE_[A-Z0-9_]+)\b",
                  lambda match: self.assertTrue(match[1] in known, "there is no such variable"))

    def test_paths(self):
        service = support.Service("--config", EXAMPLE, "--rls-config", LIMITS)
        self.addCleanup(service.remove)

        def check(match):
            method, query = match[1], match[3] or ""
            path = re.sub(r"\{\w+\}", "api", match[2].replace("{domain}", "edge"))
            # No path accepts this method, and existing ones report which they accept.
            found = {port: answer for port in (service.port, service.admin_port)
                     for answer in [ask(port, "TRACE", path)] if answer.status == 405}
            self.assertTrue(found, "there is no such path at either door")
            port, answer = found.popitem()
            self.assertIn(method, re.split(r",\s*", answer.header("Allow")))
            if method == "GET" and "…" not in query:
                # The resource may not exist, but it can be requested.
                self.assertIn(ask(port, method, path + query).status, (200, 404))
        self.each(r"(GET|POST|PUT|DELETE) (/[^\s?…]*)(\?.*)?$", check)

    def test_files(self):
        folders = "|".join(name for name in sorted(os.listdir(REPOSITORY))
                           if (REPOSITORY / name).is_dir() and name not in FOREIGN_FOLDERS
                           and not name.startswith("."))
        self.each(rf"(?:\w+=\S+ )?((?:{folders})/[\w./-]+)(?: |$)",
                  lambda match: self.assertTrue((REPOSITORY / match[1]).exists(),
                                                "there is no such file"))

    def test_json(self):
        self.each(r'\{ ?"', lambda match: self.assertIsNotNone(answers.parse_json(match.string)))

    def test_links(self):
        checked = 0
        for path in documents():
            prose = re.sub(r"```.*?```", "", read_document(path), flags=re.S)
            for target in re.findall(r"\]\(([^)\s]+)\)", prose):
                if re.match(r"[a-z]+:", target):
                    continue
                checked += 1
                name, _, anchor = target.partition("#")
                file = (REPOSITORY / path).parent / name if name else REPOSITORY / path
                with self.subTest(f"{path}: {target}"):
                    self.assertTrue(file.exists(), "there is no such file")
                    if anchor:
                        self.assertIn(anchor, anchors(file.read_text(encoding="utf-8")))
        self.assertGreater(checked, 50)


def anchors(markdown):
    """Anchors as GitHub makes them from headings."""
    headings = re.findall(r"^#+ (.*)$", markdown, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
            for heading in headings}


class Harness(DocumentsTest):
    """A wrong document is detected."""

    def run_all(self, markdown):
        runner = Runner(self.reader())
        for block in read_blocks("shown.md", markdown):
            runner.run(block)
        return runner

    def assert_fails(self, markdown, why):
        with self.assertRaisesRegex((Failure, BadDocument), why):
            self.run_all(markdown)

    def test_a_command_that_fails(self):
        for commands in ("false", "true\nfalse\ntrue", "false | cat", "echo $UNSET",
                         "sluice validate no-such-file.yaml", "sluice serve --no-such-flag",
                         "make no-such-target", "make chaos SCENARIO=no-such-scenario",
                         "redis-cli NO.SUCH.COMMAND"):
            with self.subTest(commands):
                self.assert_fails(f"```sh\n{commands}\n```\n", r"^shown.md:1: exit status")
        self.assert_fails("text\n\n```console\n$ true\n$ false\n```\n", r"^shown.md:3: exit status")

    def test_an_answer_that_is_an_error(self):
        begin = "```sh\nmake run\n```\n```\ncurl http://127.0.0.1:8080"
        self.run_all(begin + "/health\n```\n")
        self.assert_fails(begin + "/healthy\n```\n", "NOT_FOUND")
        self.assert_fails(begin.replace("8080", "8081") + "/health\n```\n", "exit status 7")

    def test_an_answer_that_is_not_as_shown(self):
        ask = ("```console\n$ make run\n"
               "$ curl -i 'http://127.0.0.1:8080/api/v1/rate-limit/check?key=a'\n")
        self.run_all(ask + "HTTP/1.1 200 OK\nX-RateLimit-Remaining: 99\n```\n")
        self.run_all(ask + 'HTTP/1.1 200 OK\n\n{"allowed": true, "remaining": 99, …}\n```\n')
        for shown, why in (("HTTP/1.1 429 Too Many Requests\n", "expected 'HTTP/1.1 429"),
                           ("HTTP/1.1 200 OK\nX-RateLimit-Remaining: 98\n", "98"),
                           ("HTTP/1.1 200 OK\nX-Rate: 1\n", "there is none"),
                           ('HTTP/1.1 200 OK\n\n{"allowed": true}\n', "is not shown"),
                           ('HTTP/1.1 200 OK\n\n{"left": 1, …}\n', "there is no left"),
                           ('HTTP/1.1 200 OK\n\n{"remaining": 98, …}\n', "expected 98"),
                           ('HTTP/1.1 200 OK\n\n{"remaining": "99", …}\n', "expected '99'")):
            with self.subTest(shown):
                self.assert_fails(f"{ask}{shown}```\n", why)

    def test_json_is_the_answer_before_it(self):
        ask = "```sh\necho '{\"a\": [1, \"x\"], \"resetAfterSeconds\": 5}'\n```\n"
        self.run_all(ask + '```json\n{"a": [1, "…"], "resetAfterSeconds": 9}\n```\n')
        self.run_all(ask + '```json\n{"a": […], …}\n```\n')
        self.run_all(ask + '```json\n{"a": [1, "…"], "resetAfterSeconds": …}\n```\n')
        self.assert_fails(ask + '```json\n{"a": [2, "x"], …}\n```\n', "expected 2")
        self.assert_fails(ask + '```json\n{"a": 1, …}\n```\n', "expected 1")
        self.assert_fails(ask + '```json\n{"resetAfterSeconds": 0, …}\n```\n', "expected 0")
        self.assert_fails('```json\n{"a": 1}\n```\n', "stdin of")

    def test_files_that_are_not_valid(self):
        self.assert_fails("```yaml\nhttp: {colour: red}\n```\n", "colour")
        if os.access(ENVOY, os.X_OK):
            self.assert_fails("```yaml\nrate_limit_service: {colour: V3}\n```\n", "colour")
        conf = "<!-- stdin of: cat > redis.conf && check_redis_conf redis.conf -->\n```\n{}\n```\n"
        self.run_all(conf.format("appendonly yes"))
        self.assert_fails(conf.format("appendonly yes # comment"), "wrong number of arguments")

    def test_programs_and_queries(self):
        program = Block("shown.md", 7, "cpp", "#include <sluice/sluice.h>\nsluice::Limitt x;\n", {})
        with self.assertRaisesRegex(Failure, r"shown\.md:9"):
            compile_programs([program], self.folder())
        for query, why in (("sum(rate(sluice_keys[5m])", "parse"),
                           ("sum(sluice_kes)", "no metric")):
            with self.subTest(query), self.assertRaisesRegex(Failure, why):
                check_queries([Block("shown.md", 7, "promql", query, {})], self.folder())

    def test_blocks_that_nobody_can_run(self):
        for text in ("```\nsome text\n```\n", "```text\nsome text\n```\n", "```rust\nx\n```\n"):
            self.assert_fails(text, "nothing says how to run this block")
        self.assert_fails("<!-- not run: -->\n```\nx\n```\n", "needs a reason")
        self.assert_fails("<!-- part of: Makefile -->\n```\nno such line\n```\n",
                          "is not in Makefile")
        self.assert_fails("<!-- first: true -->\ntext\n", "no block follows")
        self.assert_fails("```sh\ntrue\n", "does not end")
        self.assertEqual(len(self.run_all("<!-- not run: a picture -->\n```\nx\n```\n").not_run), 1)

    def test_state_flows(self):
        self.run_all("<!-- first: A=1 -->\n```sh\nB=$((A + 1)); echo x > file\n```\n"
                     "<!-- stdin of: test $B = 2 && test $(cat) = $(cat file) -->\n```\nx\n```\n")


if __name__ == "__main__":
    support.main()
