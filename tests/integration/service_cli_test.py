# SPDX-License-Identifier: Apache-2.0
"""`sluice validate`, `sluice config` and the flags of `sluice serve`.

Usage: service_cli_test.py PROGRAM
"""

import contextlib
import json
import os
import re
import resource
import signal
import subprocess

import support
from support import AGES, sluice

GOOD = f"""
http: {{listen: "127.0.0.1:0"}}
defaults: {{TOKEN_BUCKET: "capacity=5,refill=1,period=1s"}}
limits:
  one: limit=1,window=1s
ruleSets:
  - id: api
    rules:
      - {{id: r, scope: GLOBAL, bands: [{{limit: 1, window: {AGES}}}]}}
"""

BAD = """\
http:
  listen: 127.0.0.1:8080
  colour: red
threads: many
nonsense: 1
defaults:
  FIXED_WINDOW: limit=x
limits:
  broken: {algorithm: token_bucket}
ruleSets:
  - id: "no blanks here"
    rules:
      - id: r
        scope: PER_PLANET
      - id: r
        scope: GLOBAL
        bands:
          - {limit: 0, window: 1s}
          - {label: a, limit: 1, window: 1s}
          - {label: a, limit: 1, window: 1s}
        match: {paths: [no-slash]}
"""


class Validate(support.ServiceTest):
    def test_good_files(self):
        folder = self.folder()
        folder.write("a.yaml", GOOD)
        folder.write("b.yaml", GOOD.replace("id: api", "id: other"))
        folder.write("rls.yaml", "domain: edge\ndescriptors: [{key: k, rate_limit: "
                                 "{unit: second, requests_per_unit: 1}}]\n")
        for path in (folder / "a.yaml", folder / "rls.yaml", str(folder)):
            done = sluice("validate", path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertRegex(done.stdout, r"^valid: \d+ rule sets, \d+ limits, \d+ domains\n$")
        self.assertIn("2 rule sets", done.stdout)
        self.assertIn("1 domains", done.stdout)

    def test_a_domain_is_known_however_it_is_written(self):
        folder = self.folder()
        for name, content in (
                ("x.json", '{"domain": "d", "descriptors": []}'),
                ("x.json", '{\n  "descriptors": [],\n  "domain": "d"\n}\n'),
                ("x.yaml", '"domain": d\n'),
                ("x.yaml", "domain : d\n"),
                ("x.yaml", "  domain: d\n  descriptors: []\n"),
                ("x.yaml", "--- {domain: d}\n"),
                ("x.yaml", "\ufeffdomain: d\n")):
            with self.subTest(content):
                done = sluice("validate", folder.write(name, content))
                self.assertEqual((done.returncode, done.stdout, done.stderr),
                                 (0, "valid: 0 rule sets, 0 limits, 1 domains\n", ""))
        # A text that only looks like the key, in a list and in a multi-line text.
        for content in ("- domain: d\n", 'limits: "\ndomain: d"\n', "domain: [\n"):
            with self.subTest(content):
                done = sluice("validate", folder.write("x.yaml", content))
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, r"^\S*x\.yaml:\d+:\d+: .*\n$")
                self.assertNotIn("descriptors", done.stderr)

    def test_the_example_is_valid(self):
        done = sluice("validate", str(support.REPOSITORY / "examples/sluice.yaml"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_every_problem_is_told_with_its_place(self):
        file = self.folder().write("bad.yaml", BAD)
        done = sluice("validate", file)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        lines = done.stderr.splitlines()
        for line in lines:
            self.assertRegex(line, "^" + re.escape(file) + r":\d+:\d+: .*\S$")
        places = {int(re.match(r".*?:(\d+):\d+: ", line)[1]) for line in lines}
        self.assertLessEqual({3, 4, 5, 7, 9, 11, 14, 18, 20, 21}, places)
        self.assertTrue(any("PER_PLANET" in line and "PER_IP" in line for line in lines))
        self.assertTrue(any("colour" in line for line in lines))

    def test_columns_are_exact(self):
        file = self.folder().write("c.yaml", "http:\n  listen: x\n  idleTimeout: soon\n")
        done = sluice("validate", file)
        self.assertIn(f"{file}:3:16: ", done.stderr)

    def test_all_files_are_checked(self):
        folder = self.folder()
        one = folder.write("one.yaml", "ruleSets: 1\n")
        two = folder.write("two.yaml", "ruleSets: 2\n")
        done = sluice("validate", one, two, folder / "missing.yaml")
        self.assertEqual(done.returncode, 2)
        for path in (one, two, folder / "missing.yaml"):
            self.assertIn(path, done.stderr)

    def test_two_files_with_one_id(self):
        folder = self.folder()
        folder.write("a.yaml", GOOD)
        folder.write("b.yaml", GOOD)
        done = sluice("validate", str(folder))
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"b\.yaml:\d+:\d+: .*api.*a\.yaml")

    def test_files_that_are_none(self):
        folder = self.folder()
        for content in ("\x00", "a: [", "- 1\n", "a: &x [*x]\n", "a: 1\na: 2\n", "{" * 200):
            done = sluice("validate", folder.write("x.yaml", content))
            self.assertEqual(done.returncode, 2, content)
            self.assertRegex(done.stderr, r"x\.yaml:\d+:\d+: ")
            lines = done.stderr.splitlines()
            self.assertEqual(len(lines), len(set(lines)), "said twice")
        self.assertEqual(sluice("validate").returncode, 2)

    def test_a_key_that_is_given_twice_is_told_once(self):
        file = self.folder().write("x.yaml", "ruleSets: []\nthreads: 1\nruleSets: []\nthreads: 2\n")
        done = sluice("validate", file)
        self.assertEqual((done.returncode, done.stderr.splitlines()),
                         (2, [f'{file}:{line}:1: key "{key}" is given twice; expected it once'
                              for line, key in ((3, "ruleSets"), (4, "threads"))]))

    def test_what_is_no_text_is_refused(self):
        file = self.folder() / "x.yaml"
        for content, place in ((b"\xff\xfe\x00", "1:1"), (b"ruleSets: []\n# a\x00b\n", "2:4"),
                               ("ruleSets: []\n".encode("utf-16"), "1:1"),
                               (b"limits: {caf\xe9: 'limit=1,window=1s'}", "1:13")):
            with open(file, "wb") as out:
                out.write(content)
            done = sluice("validate", file)
            self.assertEqual((done.returncode, done.stdout), (2, ""), content)
            self.assertEqual(done.stderr,
                             f"{file}:{place}: not a text: expected UTF-8 without NUL bytes\n")

    def test_an_empty_file_is_a_mistake(self):
        folder = self.folder()
        for content in ("", "\n", "ruleSets:\n"):
            done = sluice("validate", folder.write("x.yaml", content))
            self.assertEqual((done.returncode, done.stdout), (2, ""), content)
            self.assertRegex(done.stderr, r"^\S*x\.yaml:\d:1: .*; expected .*\n$")
        for content in ("{}", "# nothing\n", "ruleSets: []"):
            done = sluice("validate", folder.write("x.yaml", content))
            self.assertEqual((done.returncode, done.stderr), (0, ""), content)

    def test_a_pipe_that_is_named_by_hand(self):
        done = subprocess.run(["bash", "-c", '"$0" validate <(echo "$1") <(echo "$2") /dev/stdin',
                               support.PROGRAM, "ruleSets: [{id: a}]", "ruleSets: [{id: b}]"],
                              input="domain: d\n", capture_output=True, text=True, check=False,
                              timeout=support.PATIENCE, env=support.clean_environment())
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, "valid: 2 rule sets, 0 limits, 1 domains\n", ""))

    def test_what_is_most_likely_not_meant_is_warned_of(self):
        file = self.folder().write("x.yaml", """ruleSets:
  - id: api
    rules:
      - {id: none, scope: GLOBAL}
      - id: ip
        scope: PER_IP
        match: {methods: [GETT]}
        bands: [{limit: 1, window: 1m}]
        overrides:
          - {key: ["ip:192.0.2.1", 10.0.0.0/8], blocked: true}
""")
        done = sluice("validate", file, env={
            "SLUICE_HTPP": "s3cret", "SLUICE_HTTP": "", "SLUICE_CONFIG": "",
            # As Kubernetes sets them for services called sluice and sluice-admin.
            "SLUICE_SERVICE_HOST": "10.0.0.1", "SLUICE_PORT": "tcp://10.0.0.1:80",
            "SLUICE_ADMIN_SERVICE_PORT_HTTP": "80", "SLUICE_ADMIN_PORT_80_TCP_ADDR": "10.0.0.1"})
        self.assertEqual((done.returncode, done.stdout),
                         (0, "valid: 1 rule sets, 0 limits, 0 domains\n"))
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 4, lines)
        self.assertRegex(lines[0], "^SLUICE_HTPP: warning: .*did you mean SLUICE_HTTP[?]")
        self.assertNotIn("s3cret", done.stderr)
        for line, place, word in ((lines[1], "4:9", "bands"), (lines[2], "7:27", "GETT"),
                                  (lines[3], "10:20", "ip:")):
            self.assertTrue(line.startswith(f"{file}:{place}: warning: "), line)
            self.assertIn(word, line)

        # Starting the service reports the same.
        service = self.start("--rules", file, env={"SLUICE_HTPP": "s3cret"})
        self.assertEqual(len(service.logged("WARN", "a rule may not do what is meant", count=3)), 3)
        self.assertTrue(service.logged("WARN", "SLUICE_HTPP", "SLUICE_HTTP"))
        done = sluice("config", env={"SLUICE_HTPP": "s3cret"})
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "^SLUICE_HTPP: warning: .*\n$")

    def test_a_month_is_not_a_minute(self):
        folder = self.folder()
        for content in ("ruleSets: [{id: a, rules: [{id: r, scope: GLOBAL, bands: "
                        "[{limit: 1, window: 1M}]}]}]", "limits: {a: 'limit=1,window=1M'}",
                        "http: {idleTimeout: 1M}"):
            done = sluice("validate", folder.write("x.yaml", content))
            self.assertEqual((done.returncode, done.stdout), (2, ""), content)
            self.assertRegex(done.stderr, r'^\S*x\.yaml:1:\d+: .*"1M": .*1m for minutes.*30d\n$')

    def test_settings_that_do_not_go_together(self):
        folder = self.folder()
        for content, place, word in (
                ("http:\n  tlsCertificate: a", "2:19", "tlsKey"),
                ("admin: {token: a, tokenFile: b}", "1:30", "tokenFile"),
                ("client: {trustedProxies: [10.0.0.0/33]}", "1:26", "trustedProxies"),
                ("store: http://x", "1:8", "store"),
                ("store: store", "1:8", "store"),
                ("http: {listen: x}", "1:16", "http.listen"),
                ("http: {listen: ['a:1', 'b:2']}", "1:16", "http.listen"),
                ("admin: {listen: '0.0.0.0:1'}", "1:17", "admin.token"),
                ("guard: {openMin: 2s, openMax: 1s}", "1:18", "guard.openMax"),
                ("rules: {pollInterval: 0s}", "1:23", "1ms")):
            with self.subTest(content):
                file = folder.write("x.yaml", content)
                done = sluice("validate", file)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                for line in done.stderr.splitlines():
                    self.assertTrue(line.startswith(f"{file}:"), line)
                self.assertIn(f"{file}:{place}: ", done.stderr)
                self.assertIn(word, done.stderr)

    def test_one_kind_of_problem_does_not_hide_another(self):
        file = self.folder().write("x.yaml", """http: {listen: x, colour: red}
rules: {path: /nowhere}
limits: 7
ruleSets: {}
""")
        done = sluice("validate", file)
        self.assertEqual(done.returncode, 2)
        self.assertEqual({line.split(": ")[0] for line in done.stderr.splitlines()},
                         {f"{file}:{place}" for place in ("1:16", "1:19", "2:15", "3:9", "4:11")})

    def test_what_a_file_refers_to_is_checked_as_well(self):
        folder = self.folder()
        support.make_certificate(folder, "a")
        support.make_certificate(folder, "b")
        folder.write("rules/one.yaml", "ruleSets: [{id: one}]\n")
        folder.write("rls.yaml", "domain: d\ndescriptors: []\n")
        folder.write("token", "t\n")

        def validate(rules="rules", rls="rls.yaml", key="a.key", token="token"):
            file = folder.write("main.yaml", f"""rules:
  path: {folder / rules}
  rlsPath: {folder / rls}
http:
  tlsCertificate: {folder / "a.pem"}
  tlsKey: {folder / key}
admin:
  tokenFile: {folder / token}
ruleSets: [{{id: own}}]
""")
            done = sluice("validate", file)
            return done.stderr.replace(str(folder), "") if done.returncode else done.stdout

        self.assertEqual(validate(), "valid: 2 rule sets, 0 limits, 1 domains\n")
        self.assertRegex(validate(rules="none"), r"^/main\.yaml:2:9: rules\.path: /none: .*\n$")
        self.assertRegex(validate(rls="none"), r"^/main\.yaml:3:12: rules\.rlsPath: /none: .*\n$")
        self.assertRegex(validate(key="b.key"),
                         r"^/main\.yaml:5:19: http\.tlsCertificate: .*b\.key")
        self.assertRegex(validate(token="none"), r"^/main\.yaml:8:14: admin\.tokenFile: /none: ")
        folder.write("rules/two.yaml", "ruleSets:\n  - {id: own}\n  - {id: bad id}\n")
        self.assertRegex(validate(), r"^/rules/two\.yaml:3:\d+: .*bad id")
        folder.write("rules/two.yaml", "ruleSets:\n  - {id: own}\n")
        self.assertRegex(validate(), r"^/(main|rules/two)\.yaml:\d+:\d+: .*own.*/(main|rules/two)")


class Config(support.ServiceTest):
    def effective(self, *arguments, env=None):
        done = sluice("config", *arguments, env=env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def value(self, text, section, name):
        block = re.search(rf"^{section}:\n((?:  .*\n|\n)*)", text, re.M)[1] if section else text
        indent = "  " if section else ""
        return re.search(rf"^{indent}{name}: (.*)$", block, re.M)[1].strip('"')

    def test_flags_win_over_the_environment_and_that_over_the_file(self):
        file = self.folder().write("c.yaml", "threads: 3\nlog: {level: warn, format: json}\n"
                                             "http: {idleTimeout: 5s, bodyBytesMax: 2048}\n")
        text = self.effective("--config", file, "--threads", "5",
                              env={"SLUICE_THREADS": "4", "SLUICE_LOG_LEVEL": "error",
                                   "SLUICE_HTTP_IDLE_TIMEOUT": "7s"})
        self.assertEqual(self.value(text, "", "threads"), "5")
        self.assertEqual(self.value(text, "log", "level"), "error")
        self.assertEqual(self.value(text, "log", "format"), "json")
        self.assertEqual(self.value(text, "http", "idleTimeout"), "7s")
        self.assertEqual(self.value(text, "http", "bodyBytesMax"), "2048")
        self.assertEqual(self.value(text, "admin", "listen"), "127.0.0.1:8090")

    def test_the_file_can_be_named_by_the_environment(self):
        file = self.folder().write("c.yaml", "threads: 3\n")
        text = self.effective(env={"SLUICE_CONFIG": file})
        self.assertEqual(self.value(text, "", "threads"), "3")

    def test_what_it_prints_is_a_configuration_file(self):
        folder = self.folder()
        weird = folder.write('r\u00fcles "and" \\ #x: y.yaml', "domain: d\ndescriptors: []\n")
        first = self.effective("--rls-config", weird,
                               "--trusted-proxies", "10.0.0.0/8,2001:db8::/32", "--snapshot", "- x",
                               "--http-idle-timeout", "1500ms", "--admin", "",
                               "--http-on-store-failure", "LOCAL", "--grpc-headers", "true",
                               "--store", "redis://127.0.0.1:6379/3?prefix=a")
        second = self.effective("--config", folder.write("first.yaml", first))
        self.assertEqual(first, second)
        self.assertIn("r\u00fcles", first)
        done = sluice("validate", folder / "first.yaml")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_limits_and_rules_are_part_of_it(self):
        folder = self.folder()
        config = folder.write("c.yaml", f"""
limits: {{"odd: name": "limit=5,window={AGES}", null: "limit=6,window=1s"}}
defaults: {{gcra: "burst=9,count=1,period=1s"}}
ruleSets:
  - id: own
    description: 'with: colon # and "quotes"'
    rules:
      - id: r
        scope: PER_API_KEY
        match:
          methods: [GET]
          paths: ["/v1/{{id}}/**"]
          attributes: {{plan: [free], x: {{present: false}}}}
        cost: {{attribute: tokens, default: 2, max: 50}}
        bands: ["limit=5,window={AGES}"]
        overrides:
          - {{key: [s3cret-1, s3cret-2], unlimited: true}}
          - {{key: s3cret-3, blocked: true}}
          - {{pattern: "partner-*", bands: ["limit=7,window={AGES}"]}}
  - id: empty
""".replace("null:", '"null":'))
        rules = folder.write("rules.yaml", "ruleSets: [{id: filed, rules: "
                                           "[{id: r, scope: PER_USER, bands: ['limit=1,window=1s'],"
                                           " overrides: [{key: alice, unlimited: true}]}]}]\n")
        first = self.effective("--config", config, "--rules", rules)
        self.assertNotIn("s3cret", first)
        for part in ("alice", "partner-*", "GCRA: ", "TOKEN_BUCKET: ", "burst=9", "rules.yaml"):
            self.assertIn(part, first)
        printed = folder.write("first.yaml", first)
        second = self.effective("--config", printed)
        self.assertEqual([line for line in first.splitlines() if not line.startswith("#")],
                         [line for line in second.splitlines() if not line.startswith("#")])
        done = sluice("validate", printed)
        self.assertEqual((done.returncode, done.stdout),
                         (0, "valid: 3 rule sets, 2 limits, 0 domains\n"), done.stderr)
        # It serves as before.
        before = self.start("--config", config, "--rules", rules)
        after = self.start("--config", printed, "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0")
        for name in ("filed", "empty"):
            self.assertEqual(after.admin("GET", f"/admin/v1/rule-sets/{name}").json,
                             before.admin("GET", f"/admin/v1/rule-sets/{name}").json)

    def test_rules_that_are_no_good(self):
        folder = self.folder()
        bad = folder.write("rules.yaml", "ruleSets: [{id: 'a b'}]\n")
        done = sluice("config", "--rules", bad)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, "^" + re.escape(bad) + r":1:\d+: ")
        done = sluice("config", "--rules", folder / "none.yaml")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("none.yaml", done.stderr)

    def test_a_redacted_secret_is_not_taken_for_one(self):
        folder = self.folder()
        text = self.effective("--admin-token", "s3cret", "--resp-password", "s3cret")
        self.assertNotIn("s3cret", text)
        self.assertEqual(text.count("***"), 2)
        again = self.effective("--config", folder.write("c.yaml", text))
        self.assertNotIn("***", again)

    # A value that is not the default, for each kind of setting.
    SAMPLES = {"N": "7", "BYTES": "4096", "BITS": "56", "DURATION": "300ms", "BOOL": "true",
               "ADDRESS:PORT": "127.0.0.1:4711", "URI": "redis://127.0.0.1:6379", "TEXT": "word",
               "FILE": "some.file", "PATH": "", "CIDRS": "10.0.0.0/8", "HEADERS": "X-Real-IP",
               "LEVEL": "error", "FORMAT": "json", "POLICY": "LOCAL", "LABELS": "zone=eu",
               # By name: a generic value would not do.
               "bufferedBytesMax": "33554432"}
    # What goes with it, where one setting needs another.
    TOGETHER = {"tlsCertificate": "tlsKey", "tlsKey": "tlsCertificate",
                "tlsClientCa": "tlsCertificate"}

    def settings(self):
        """Section, name, flag, variable and sample of each."""
        kinds = dict(re.findall(r"^  +(--[a-z0-9-]+) ([A-Z:]+)", sluice("serve", "--help").stdout,
                                re.M))
        section = ""
        pending = None
        for line in self.effective().splitlines():
            if comment := re.match(r" *# .*\. (--\S+), (SLUICE_\w+)$", line):
                pending = comment.groups()
            elif pending and (setting := re.match(r"( *)(\w+): (.*)$", line)):
                flag, variable = pending
                yield (section if setting[1] else "", setting[2], flag, variable,
                       self.SAMPLES.get(setting[2]) or self.SAMPLES[kinds[flag]])
                pending = None
            elif head := re.match(r"(\w+):$", line):
                section = head[1]

    def test_every_setting_works_by_file_by_variable_and_by_flag(self):
        folder = self.folder()
        rules = folder.write("rules.yaml", "ruleSets: []\n")
        domains = folder.write("domains.yaml", "domain: d\ndescriptors: []\n")
        count = 0
        for section, name, flag, variable, value in self.settings():
            if name in self.TOGETHER:
                continue  # Needs real files; the TLS tests have them.
            value = value or (domains if name == "rlsPath" else rules)
            document = {section: {name: value}} if section else {name: value}
            ways = ((("--config", folder.write("c.yaml", json.dumps(document))), None),
                    ((), {variable: value}),
                    ((flag, value), None))
            for arguments, environment in ways:
                with self.subTest(f"{section}.{name} {arguments} {environment}"):
                    text = self.effective(*arguments, env=environment)
                    if name in ("token", "password"):
                        self.assertRegex(text, rf"\n  # {name}: \"\*\*\*\"\n")
                    elif name == "path":
                        self.assertIn(f"rule sets of {rules}", text)
                    else:
                        self.assertEqual(self.value(text, section, name), value)
            count += 1
        self.assertGreater(count, 45)

    def test_the_reference_is_what_the_program_says(self):
        tool = support.REPOSITORY / "tools/settings-reference"
        made = subprocess.run([str(tool), support.PROGRAM], capture_output=True, text=True,
                              check=True).stdout
        self.assertEqual(made, (support.REPOSITORY / "docs/reference/settings.md").read_text())

    def test_every_setting_is_told_with_flag_and_variable(self):
        text = self.effective()
        flags = set(re.findall(r"^  +(--[a-z0-9-]+) [A-Z]", sluice("serve", "--help").stdout, re.M))
        flags -= {"--config"}
        self.assertGreater(len(flags), 40)
        for flag in flags:
            variable = "SLUICE_" + flag[2:].upper().replace("-", "_")
            self.assertRegex(text, rf"{flag}, {variable}\n")

    def test_wrong_values(self):
        for flag, value in (("--threads", "x"), ("--threads", "-1"), ("--threads", "100000"),
                            ("--http", "nonsense"), ("--log-level", "loud"),
                            ("--log-format", "xml"), ("--drain-timeout", "soon"),
                            ("--drain-timeout", "-1s"), ("--trusted-proxies", "10.0.0.0/99"),
                            ("--trusted-proxies", "me"), ("--ipv6-prefix", "129"),
                            ("--http-on-store-failure", "PANIC"), ("--grpc-headers", "maybe"),
                            ("--store", "nonsense"), ("--store", "redis://"),
                            ("--http-body-bytes-max", "1"), ("--http-body-bytes-max", "20000000"),
                            ("--buffered-bytes-max", "1000000"), ("--http-tls-key", "alone.pem"),
                            ("--grpc-tls-client-ca", "alone.pem"), ("--http-public", "yes"),
                            ("--rules-redis", "store"), ("--memory-keys-max", "0"),
                            ("--rules-poll-interval", "0s"), ("--snapshot-interval", "0s"),
                            ("--http-idle-timeout", "0s"), ("--deadline", "0s"),
                            ("--http-headers-max", "0"), ("--rules-redis", "memory")):
            for command in ("config", "serve"):
                with self.subTest(f"{command} {flag} {value}"):
                    done = sluice(command, flag, value)
                    self.assertEqual((done.returncode, done.stdout), (2, ""))
                    self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        done = sluice("config", env={"SLUICE_THREADS": "x"})
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"^SLUICE_THREADS: .*x.*\n$")
        both = sluice("config", "--threads", "x", "--log-level", "y")
        self.assertEqual(len(both.stderr.splitlines()), 2)

    def test_wrong_flags(self):
        for arguments in (("--nonsense",), ("--threads",), ("extra",), ("--threads", "1", "2")):
            for command in ("config", "serve"):
                done = sluice(command, *arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
                self.assertIn("--help", done.stderr)
        self.assertEqual(sluice().returncode, 2)
        self.assertEqual(sluice("nonsense").returncode, 2)


class Example(support.ServiceTest):
    """What `make run` serves, and what it suggests to try."""

    def test_the_lines_to_paste_work(self):
        script = (support.REPOSITORY / "tools/run").read_text()
        commands = re.findall(r"^  ((?:curl|for) .*(?:\n    .*)*)", script, re.M)
        self.assertGreaterEqual(len(commands), 4)
        service = self.start("--config", str(support.REPOSITORY / "examples/sluice.yaml"))
        outputs = []
        for command in commands:
            pasted = command.replace(":8080", f":{service.port}").replace(
                ":8090", f":{service.admin_port}")
            done = subprocess.run(["bash", "-c", pasted], capture_output=True, text=True,
                                  timeout=support.PATIENCE, check=False)
            self.assertEqual(done.returncode, 0, (command, done.stderr))
            outputs.append(done.stdout)
        self.assertIn("HTTP/1.1 200", outputs[0])
        self.assertIn('"allowed":true', outputs[1])
        self.assertEqual(outputs[2].split(), ["200", "200", "200", "429"])


class Serve(support.ServiceTest):
    def test_help(self):
        done = sluice("serve", "--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for word in ("--http", "--store", "--rules", "--admin-token", "SIGHUP", "SLUICE_HTTP",
                     "[127.0.0.1:8080]"):
            self.assertIn(word, done.stdout)

    def test_help_and_version_are_commands_as_well(self):
        self.assertEqual(sluice("version").stdout, sluice("--version").stdout)
        self.assertEqual(sluice("help").stdout, sluice("--help").stdout)
        for command in ("serve", "config", "validate", "check", "purge", "replay"):
            done = sluice("help", command)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(done.stdout, sluice(command, "--help").stdout)
            self.assertIn(command, sluice("help").stdout)
        done = sluice("help", "nonsense")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn('unknown command "nonsense"', done.stderr)
        self.assertEqual(sluice("help", "serve", "config").returncode, 2)

    def test_a_flag_with_an_empty_value_takes_no_other(self):
        done = sluice("config", "--admin=", "--threads=3", "--http-token-file=", "--http=")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "--http: http.listen: nothing would listen; expected an address for at "
                                      "least one of http, admin, resp and grpc\n")
        done = sluice("config", "--admin=", "--threads=3", "--snapshot=", "--http", "127.0.0.1:7")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for part in ('\nthreads: 3\n', 'listen: "127.0.0.1:7"'):
            self.assertIn(part, done.stdout)
        # A switch has no value that could be empty, and what follows is not taken for one.
        done = sluice("replay", "--limit=limit=1,window=1s", "--json=", "-", stdin="")
        self.assertIn(done.returncode, (0, 2))
        done = sluice("replay", "--limit=limit=1,window=1s", "--format=", "-", stdin="")
        self.assertEqual((done.returncode, done.stdout), (2, ""))

    def assert_json_lines(self, text):
        lines = text.splitlines()
        self.assertTrue(lines)
        for line in lines:
            document = json.loads(line)
            self.assertLessEqual({"time", "level", "message"}, document.keys())
        return lines

    def test_json_logs_are_json_in_every_line(self):
        folder = self.folder()
        rules = folder.write("rules.yaml", "ruleSets: [{id: a, rules: [{id: r, scope: GLOBAL}]}]\n")
        service = self.start("--rules", rules, "--log-format", "json", "--resp", "127.0.0.1:0",
                             env={"SLUICE_NONSENSE": "1"})
        folder.replace("rules.yaml", "ruleSets: 7\n")
        support.eventually(lambda: "not valid" in service.log(), "the reload is refused")
        service.send(signal.SIGTERM)
        self.assertEqual(service.wait(), 0)
        self.assertEqual(len(self.assert_json_lines(service.output())), 3)
        log = "\n".join(self.assert_json_lines(service.log()))
        for part in ("SLUICE_NONSENSE", "has no bands", "stopped"):
            self.assertIn(part, log)

    def test_json_logs_say_why_it_cannot_start(self):
        folder = self.folder()
        bad = folder.write("bad.yaml", "log: {format: json}\nthreads: many\nhttp: {colour: red}\n")
        json_flag = ("--log-format", "json")
        for arguments, env, count in (
                (("--config", bad), None, 2),
                (("--config", "/nowhere/x"), {"SLUICE_LOG_FORMAT": "JSON"}, 1),
                (("--threads", "x", *json_flag), None, 1),
                (("--threads", "x", "--http", "y", "--log-format=json"), None, 1),
                (("--rules", "/nowhere/x", "--http=127.0.0.1:0", *json_flag), None, 1),
                (("--nonsense", *json_flag), None, 1),
                (("--threads",), {"SLUICE_LOG_FORMAT": "json"}, 1)):
            with self.subTest(arguments):
                done = sluice("serve", *arguments, env=env)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertEqual(len(self.assert_json_lines(done.stderr)), count, done.stderr)
        # The last one counts, and text is for people.
        done = sluice("serve", "--nonsense", "--log-format", "text",
                      env={"SLUICE_LOG_FORMAT": "json"})
        self.assertIn("Try 'sluice --help'", done.stderr)

    def test_bad_files_stop_it_with_their_place(self):
        folder = self.folder()
        listeners = ("--http", "127.0.0.1:0", "--admin", "127.0.0.1:0")
        bad = folder.write("bad.yaml", "http:\n  colour: red\n")
        done = sluice("serve", *listeners, "--config", bad)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, "^" + re.escape(bad) + r":2:3: .*colour.*\n$")
        rules = folder.write("rules.yaml", "ruleSets:\n  - id: a\n    rules:\n      - id: r\n")
        done = sluice("serve", *listeners, "--rules", rules)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, "^" + re.escape(rules) + r":4:\d+: .*scope.*\n$")

    def test_missing_files(self):
        listeners = ("--http", "127.0.0.1:0", "--admin", "127.0.0.1:0")
        for flag in ("--config", "--rules", "--rls-config"):
            done = sluice("serve", *listeners, flag, "/nowhere/x.yaml")
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn("/nowhere/x.yaml", done.stderr)
        folder = self.folder()
        done = sluice("serve", *listeners, "--http-tls-certificate", folder / "c.pem",
                      "--http-tls-key", folder / "k.pem")
        self.assertEqual(done.returncode, 2)
        self.assertIn("c.pem", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_pipes_are_not_waited_for(self):
        folder = self.folder()
        pipe = folder / "x.yaml"
        os.mkfifo(pipe)
        listeners = ("--http", "127.0.0.1:0", "--admin", "127.0.0.1:0")
        for flag, value in (("--config", pipe), ("--rules", pipe), ("--rules", str(folder)),
                            ("--rls-config", pipe), ("--snapshot", pipe)):
            done = sluice("serve", *listeners, flag, value)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, r"^.*x\.yaml: expected a regular file\n$")

    def test_a_snapshot_that_cannot_be_written(self):
        folder = self.folder()
        os.mkdir(folder / "state")
        for snapshot in (folder / "none/state.snapshot", folder / "state"):
            done = sluice("serve", "--http", "127.0.0.1:0", "--admin", "", "--snapshot", snapshot)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn(snapshot, done.stderr)

    def test_something_must_listen(self):
        done = sluice("serve", "--http", "", "--admin", "")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("nothing would listen", done.stderr)

    def test_a_snapshot_that_redis_has_no_use_for(self):
        service = self.start("--store", f"redis://127.0.0.1:{support.free_port()}",
                             "--snapshot", self.folder() / "state")
        self.assertTrue(service.logged("WARN", "memory.snapshotFile is not used"))

    def test_an_admin_token_in_clear(self):
        warning = ("WARN", "tokens travel in clear", "door=admin")
        service = self.start("--admin", "0.0.0.0:0", "--admin-token", "t")
        self.assertTrue(service.logged(*warning))
        self.assertEqual(self.start("--admin-token", "t").log_lines(*warning), [])

    def test_settings_by_environment(self):
        folder = self.folder()
        rules = folder.write("rules.yaml", f"""ruleSets: [{{id: env, rules: []}}]""")
        service = self.start(env={"SLUICE_RULES": rules, "SLUICE_THREADS": "3",
                                  "SLUICE_LOG_FORMAT": "json"})
        self.assertEqual(service.check("env").status, 200)
        self.assertTrue(service.logged('"threads":3'))

    def test_has_descriptors_for_all_its_connections(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        service = self.start("--http-connections-max", "1000")
        self.assertGreater(service.metric("process_max_fds"), 1000)
        self.assertEqual(service.log_lines("files_max"), [])
        if hard == resource.RLIM_INFINITY or hard > 1_000_000:
            return
        service = self.start("--http-connections-max", "1000000")
        self.assertEqual(service.metric("process_max_fds"), hard)
        self.assertTrue(service.logged("WARN", f"files_max={hard}"))

    def test_has_descriptors_for_all_its_loops(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        service = self.start("--threads", "100", "--resp", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
        self.assertEqual(service.get("/health").status, 200)

    @contextlib.contextmanager
    def logging_to_a_pipe(self, *arguments):
        port = support.free_port()
        with subprocess.Popen([support.PROGRAM, "serve", "--http", f"127.0.0.1:{port}",
                               "--admin", "", *arguments], env=support.clean_environment(),
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as program:
            self.addCleanup(program.kill)
            program.stderr.readline()
            client = support.Client(port)
            self.addCleanup(client.close)
            yield program, client
            program.send_signal(signal.SIGTERM)
            self.assertEqual(program.wait(support.PATIENCE), 0)

    def lines_lost(self, client):
        text = client.request("GET", "/metrics").body.decode()
        return support.parse_metrics(text)["sluice_log_lines_lost_total", frozenset()]

    def test_outlives_whoever_reads_its_log(self):
        with self.logging_to_a_pipe() as (program, client):
            program.stderr.close()

            def lost():
                program.send_signal(signal.SIGHUP)  # Which is logged.
                return self.lines_lost(client)

            support.eventually(lambda: lost() > 0, "lines are lost, and counted")

    def test_does_not_wait_for_whoever_reads_its_log(self):
        with self.logging_to_a_pipe("--log-level", "debug") as (program, client):
            check = support.target("/api/v1/rate-limit/check", key="k" * 256)

            def lost():
                for _ in range(200):
                    client.request("GET", check)
                return self.lines_lost(client)

            support.eventually(lambda: lost() > 0, "lines are lost, and counted")
            # It catches up with a late reader, and reports what is missing.
            self.assertTrue(any(b"log lines were lost" in line for line in program.stderr))

    def test_folders_of_rules_may_be_empty(self):
        folder = self.folder()
        os.mkdir(folder / "rules")
        service = self.start("--rules", folder / "rules")
        self.assertEqual(service.check("x").status, 404)


if __name__ == "__main__":
    support.main()
