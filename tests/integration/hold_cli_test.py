# SPDX-License-Identifier: Apache-2.0
"""`sluice hold`: commands that run while they hold a slot of a real service.

Usage: hold_cli_test.py PROGRAM
"""

import contextlib
import fcntl
import os
import pathlib
import re
import signal
import socket
import subprocess
import termios

import support
from support import eventually, eventually_get

# Written out, and under rules.
LIMIT = ("--limit", "algorithm=concurrency,limit=1,ttl=10m", "--key", "k")
SLOT = ("--rule-set", "slot", "--context", "userId=k")

RULES = """
ruleSets:
  - id: hourly
    rules:
      - id: slot
        scope: GLOBAL
        bands: [{label: open, algorithm: CONCURRENCY, limit: 1, ttl: 10m}]
      - id: rate
        scope: GLOBAL
        bands: [{label: runs, algorithm: FIXED_WINDOW, limit: 1, window: 10000d}]
  - id: slot
    rules:
      - id: one
        scope: PER_USER
        bands: [{label: open, algorithm: CONCURRENCY, limit: 1, ttl: 10m}]
  - id: jobs
    rules:
      - id: slots
        scope: PER_USER
        bands: [{label: open, algorithm: CONCURRENCY, limit: 1, ttl: 10m}]
      - id: tenants
        scope: CUSTOM
        attribute: tenant
        bands: [{label: open, algorithm: CONCURRENCY, limit: 1, ttl: 10m}]
"""

# Ends by SIGTERM, unless `trap` says something else, and shows that it runs.
SLEEPER = 'trap "exit 7" TERM; echo running; while :; do sleep 0.05; done'


class Hold(support.Process):
    """`sluice hold` in the background."""

    def __init__(self, service, *arguments, command=("sh", "-c", SLEEPER)):
        super().__init__([support.PROGRAM, "hold", "--server", url(service), *arguments, "--",
                          *command])

    def wait_until_running(self):
        eventually(lambda: self.ended_or("running" in self.output()), "the command runs")

    def ended_or(self, condition):
        if not condition and not self.running():
            raise AssertionError(f"it ended: {self.log()}")
        return condition


def url(service):
    return f"http://127.0.0.1:{service.port}"


class HoldCommandTest(support.ServiceTest):
    def hold(self, service, *arguments, command=("true",), env=None):
        """To its end."""
        return support.sluice("hold", "--server", url(service), *arguments, "--", *command, env=env)

    def run_hold(self, service, *arguments, **options):
        process = Hold(service, *arguments, **options)
        self.addCleanup(process.remove)
        return process

    def serve(self, *arguments, **options):
        return self.start("--rules", self.folder().write("rules.yaml", RULES), *arguments,
                          **options)

    def held(self, service):
        """How many hold SLOT."""
        return service.check("slot", permits=0, userId="k").json.get("held", 0)

    def wait_until_free(self, service):
        eventually(lambda: self.held(service) == 0, "the slot is free")


class InMemory(HoldCommandTest):
    def setUp(self):
        self.service = self.serve("--log-level", "debug")

    def test_runs_a_command_while_it_holds_a_slot(self):
        # What the command itself sees, and its arguments as they are.
        look = (f'curl -s -d \'{{"ruleSet": "slot", "permits": 0, "context": {{"userId": "k"}}}}\' '
                f'{url(self.service)}/api/v1/check | grep -o "\\"held\\":[0-9]*" | head -n 1; '
                f'printf "<%s>" "$@"')
        done = self.hold(self.service, *SLOT, command=("sh", "-c", look, "sh", "a  b", "--", "[x]"))
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, '"held":1\n<a  b><--><[x]>', ""))
        self.assertEqual(self.held(self.service), 0)

    def test_on_a_limit_and_key(self):
        first = self.run_hold(self.service, *LIMIT)
        first.wait_until_running()
        self.assertEqual(self.hold(self.service, *LIMIT).returncode, 75)
        other = self.hold(self.service, *LIMIT[:2], "--key", "other", command=("echo", "ran"))
        self.assertEqual((other.returncode, other.stdout), (0, "ran\n"))
        first.send(signal.SIGTERM)
        self.assertEqual(first.wait(), 7)
        self.assertEqual(self.hold(self.service, *LIMIT).returncode, 0)

    def test_exits_as_the_command(self):
        for script, status in (("exit 0", 0), ("exit 3", 3), ("exit 255", 255),
                               ("kill -KILL $$", 128 + 9), ("kill -TERM $$", 128 + 15)):
            done = self.hold(self.service, *SLOT, command=("sh", "-c", script))
            self.assertEqual((done.returncode, done.stderr), (status, ""), script)
            self.assertEqual(self.held(self.service), 0)

    def test_a_command_that_cannot_be_started(self):
        text = self.folder().write("text", "no program")
        for command, status, why in (("/no/such/command", 127, "No such file"),
                                     (text, 126, "Permission denied")):
            done = self.hold(self.service, *SLOT, command=(command,))
            self.assertEqual(done.returncode, status, done)
            self.assertIn(why, done.stderr)
            self.assertEqual(self.held(self.service), 0)

    def test_a_denial_has_a_status_of_its_own(self):
        first = self.run_hold(self.service, *SLOT)
        first.wait_until_running()
        done = self.hold(self.service, *SLOT, command=("echo", "ran"))
        self.assertEqual((done.returncode, done.stdout), (75, ""))
        self.assertEqual(done.stderr, "sluice hold: denied, 0 of 1 left, 1 on hold\n")
        waited = self.hold(self.service, *SLOT, "--wait", "300ms", command=("echo", "ran"))
        self.assertEqual((waited.returncode, waited.stdout), (75, ""))
        self.assertIn("sluice hold: denied, 0 of 1 left, 1 on hold", waited.stderr)

    def test_waits_until_another_releases(self):
        first = self.run_hold(self.service, *SLOT)
        first.wait_until_running()
        second = self.run_hold(self.service, *SLOT, "--wait", command=("echo", "second"))
        eventually(lambda: second.ended_or("waiting" in second.log()), "it waits")
        self.assertEqual(second.output(), "")
        first.send(signal.SIGTERM)
        self.assertEqual(first.wait(), 7)
        self.assertEqual(second.wait(), 0, second.log())
        self.assertEqual(second.output(), "second\n")
        self.assertEqual(self.held(self.service), 0)

    def test_waiting_ends_by_a_signal(self):
        first = self.run_hold(self.service, *SLOT)
        first.wait_until_running()
        second = self.run_hold(self.service, *SLOT, "--wait", command=("echo", "second"))
        eventually(lambda: second.ended_or("waiting" in second.log()), "it waits")
        second.send(signal.SIGTERM)
        self.assertEqual(second.wait(), 128 + signal.SIGTERM)
        self.assertEqual(second.output(), "")

    def test_passes_signals_on_and_releases_when_the_command_has_ended(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1,
                       signal.SIGUSR2):
            script = SLEEPER.replace("TERM", number.name[3:])
            process = self.run_hold(self.service, *SLOT, command=("sh", "-c", script))
            process.wait_until_running()
            self.assertEqual(self.held(self.service), 1)
            process.send(number)
            self.assertEqual(process.wait(), 7, process.log())
            self.assertEqual(self.held(self.service), 0)

    def test_goes_on_holding_while_the_command_takes_its_time(self):
        done = self.folder() / "done"
        script = (f'trap "echo stopping" TERM; echo running; '
                  f'until test -e {done}; do sleep 0.05; done')
        process = self.run_hold(self.service, *SLOT, "--ttl", "10s",
                                command=("sh", "-c", script))
        process.wait_until_running()
        process.send(signal.SIGTERM)
        eventually(lambda: "stopping" in process.output(), "the command got it")
        # For longer than the ttl.
        self.service.logged("/extend", count=4)
        self.assertEqual(self.held(self.service), 1)
        pathlib.Path(done).touch()
        self.assertEqual(process.wait(), 0)
        self.assertEqual(self.held(self.service), 0)

    def test_signals_that_the_caller_ignores_stay_ignored(self):
        first = self.run_hold(self.service, *SLOT)
        first.wait_until_running()
        second = support.Process(
            ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", support.PROGRAM, "hold", "--server",
             url(self.service), *SLOT, "--wait", "--", "echo", "second"])
        self.addCleanup(second.remove)
        eventually(lambda: "waiting" in second.log(), "it waits")
        second.send(signal.SIGHUP)
        first.send(signal.SIGTERM)
        self.assertEqual((second.wait(), second.output()), (0, "second\n"))

    def test_a_terminal_that_hangs_up(self):
        """Only the leader of the session is told, which this is, as by `ssh -t`."""
        terminal, its_side = os.openpty()
        process = self.start_hold("--ttl", "10m", script=SLEEPER.replace("TERM", "HUP"),
                                  stdin=its_side, stdout=its_side, start_new_session=True,
                                  preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(its_side)
        self.assertEqual(os.read(terminal, 7), b"running")
        os.close(terminal)
        self.assertEqual(process.wait(support.PATIENCE), 7)
        self.assertEqual(self.held(self.service), 0)

    def test_goes_on_when_nobody_reads_what_it_says(self):
        ours, errors = os.pipe()
        process = self.start_hold("--ttl", "3s", script=SLEEPER, stdout=subprocess.PIPE,
                                  stderr=errors)
        os.close(errors)
        self.assertEqual(process.stdout.readline(), b"running\n")
        os.close(ours)
        self.service.kill()
        # After it has said why.
        self.assertEqual(process.wait(support.PATIENCE), 7)

    def start_hold(self, *arguments, script, **options):
        process = subprocess.Popen(
            [support.PROGRAM, "hold", "--server", url(self.service), *SLOT, *arguments, "--", "sh",
             "-c", script], env=support.clean_environment(), **options)

        def remove():
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        self.addCleanup(remove)
        return process

    def test_kill_9_leaves_the_slot_until_its_ttl_and_ends_the_command(self):
        process = self.run_hold(self.service, *SLOT, "--ttl", "10s",
                                command=("sh", "-c", 'echo $$ running; exec sleep 1000'))
        process.wait_until_running()
        child = int(re.match(r"\d+", process.output())[0])
        self.addCleanup(end, child)
        process.kill()
        self.assertEqual(self.held(self.service), 1)
        eventually(lambda: not runs(child), "the command has ended, too")
        self.wait_until_free(self.service)

    def test_kill_9_with_a_command_that_runs_on(self):
        process = self.run_hold(self.service, *SLOT, "--on-lost", "continue", "--ttl", "3s",
                                command=("sh", "-c", 'echo $$ running; exec sleep 1000'))
        process.wait_until_running()
        child = int(re.match(r"\d+", process.output())[0])
        self.addCleanup(end, child)
        process.kill()
        self.wait_until_free(self.service)
        self.assertTrue(runs(child))

    def test_a_lost_hold_ends_the_command(self):
        process = self.run_hold(self.service, *SLOT, "--ttl", "3s")
        process.wait_until_running()
        self.reset(process)
        self.assertEqual(process.wait(), 7)
        self.assertRegex(process.log(), "the hold is lost: HOLD_LOST.*; ending the command")

    def test_or_not(self):
        process = self.run_hold(self.service, *SLOT, "--ttl", "3s", "--on-lost", "continue")
        process.wait_until_running()
        self.reset(process)
        eventually(lambda: process.ended_or("the command runs on" in process.log()), "it says so")
        process.send(signal.SIGTERM)
        self.assertEqual(process.wait(), 7)

    def reset(self, process):
        """Forgets the holds on the key."""
        answer = self.service.admin("DELETE", "/admin/v1/rule-sets/slot/keys?key=user:k")
        self.assertEqual(answer.status, 200, answer)
        self.assertTrue(process.running())

    def test_under_rules(self):
        rules = ("--rule-set", "jobs")
        first = self.run_hold(self.service, *rules, "--context", "userId=ann", "--context",
                              "tenant=a")
        first.wait_until_running()
        for context, status in ((("userId=ann", "tenant=b"), 75), (("userId=bob", "tenant=a"), 75),
                                (("userId=bob", "tenant=b"), 0), (("userId=ann",), 75)):
            flags = [part for pair in context for part in ("--context", pair)]
            done = self.hold(self.service, *rules, *flags)
            self.assertEqual(done.returncode, status, (context, done))

    def test_a_rate_is_charged_if_the_command_ran(self):
        rules = ("--rule-set", "hourly")
        self.assertEqual(self.hold(self.service, *rules, command=("/no/such",)).returncode, 127)
        self.assertEqual(self.hold(self.service, *rules, command=("false",)).returncode, 1)
        done = self.hold(self.service, *rules)
        self.assertEqual((done.returncode, done.stderr),
                         (75, "sluice hold: denied, 0 of 1 left\n"))

    def test_nothing_to_hold_is_no_slot(self):
        done = self.hold(self.service, "--rule-set", "jobs", command=("echo", "ran"))
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("no limit applies", done.stderr)

    def test_what_the_service_refuses(self):
        for arguments, why in ((("--limit", "nonsense", "--key", "k"), "nonsense"),
                               (("--rule-set", "nobody"), "NOT_FOUND"),
                               ((*SLOT, "--permits", "2"), "COST_EXCEEDS_LIMIT")):
            done = self.hold(self.service, *arguments, "--wait", command=("echo", "ran"))
            self.assertEqual((done.returncode, done.stdout), (2, ""), done)
            self.assertIn(why, done.stderr)

    def test_a_service_that_is_not_there(self):
        with contextlib.closing(socket.socket()) as nobody:
            nobody.bind(("127.0.0.1", 0))
            server = f"http://127.0.0.1:{nobody.getsockname()[1]}"
            done = support.sluice("hold", "--server", server, *SLOT, "--wait", "--", "true")
        self.assertEqual(done.returncode, 69)
        self.assertEqual(done.stderr, f"sluice hold: {server}: Connection refused\n")

    def test_a_service_that_does_not_answer(self):
        with contextlib.closing(socket.socket()) as mute:
            mute.bind(("127.0.0.1", 0))
            mute.listen()
            server = f"http://127.0.0.1:{mute.getsockname()[1]}"
            done = support.sluice("hold", "--server", server, *SLOT, "--ttl", "1s", "--",
                                  "true")
        self.assertEqual(done.returncode, 69, done)
        self.assertIn("a hold may have been made: it expires within 1s", done.stderr)

    def test_a_service_that_goes_away(self):
        process = self.run_hold(self.service, *SLOT, "--ttl", "6s")
        process.wait_until_running()
        self.service.kill()
        self.assertEqual(process.wait(), 7)
        self.assertIn("could not be renewed in time; ending the command", process.log())

    def test_a_service_that_is_away_when_the_command_ends(self):
        done = self.folder() / "done"
        script = f"echo running; until test -e {done}; do sleep 0.05; done; exit 4"
        process = self.run_hold(self.service, *SLOT, command=("sh", "-c", script))
        process.wait_until_running()
        self.service.kill()
        pathlib.Path(done).touch()
        self.assertEqual(process.wait(), 4, process.log())
        self.assertIn("could not be released", process.log())

    def test_the_address_from_the_environment(self):
        done = support.sluice("hold", *SLOT, "--", "true",
                              env={"SLUICE_SERVER": url(self.service) + "/"})
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_wrong_options(self):
        for arguments, why in (
                (("--key", "k", "--", "true"), "expected --limit and --key, or --rule-set"),
                ((*LIMIT, "--rule-set", "r", "--", "true"), "or --rule-set"),
                ((*LIMIT, "--context", "userId=a", "--", "true"), "or --rule-set"),
                (("--rule-set", "r", "--context", "ann", "--", "true"), "expected NAME=VALUE"),
                (SLOT, "expected -- and the command"),
                ((*SLOT, "--"), "expected -- and the command"),
                ((*SLOT, "--ttl", "10ms", "--", "true"), "from 1s to 1d"),
                ((*SLOT, "--ttl", "25h", "--", "true"), "from 1s to 1d"),
                ((*SLOT, "--wait", "soon", "--", "true"), "--wait: expected a duration"),
                ((*SLOT, "--permits", "0", "--", "true"), "--permits: expected"),
                ((*SLOT, "--on-lost", "panic", "--", "true"), "--on-lost"),
                ((*SLOT, "--server", "127.0.0.1", "--", "true"), "--server: expected"),
                ((*SLOT, "--token-file", "/no/such", "--", "true"), "/no/such")):
            done = support.sluice("hold", *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertIn(why, done.stderr, arguments)


class WithTokens(HoldCommandTest):
    def test_shows_its_token(self):
        folder = self.folder()
        tokens = folder.write("tokens", "# Who may ask.\ncron s3cret\nother x\n")
        service = self.start("--http-token-file", tokens, token="s3cret")
        mine = folder.write("mine", "cron s3cret\n# Until May.\n")
        done = self.hold(service, *LIMIT, "--token-file", mine)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for file, why in ((folder.write("wrong", "guess"), "UNAUTHORIZED"),
                          (tokens, "expected one token")):
            refused = self.hold(service, *LIMIT, "--token-file", file)
            self.assertEqual(refused.returncode, 2, refused)
            self.assertIn(why, refused.stderr)
            self.assertNotIn("guess", refused.stderr)
        self.assertEqual(self.hold(service, *LIMIT).returncode, 2)

    def test_over_tls(self):
        folder = self.folder()
        support.make_certificate(folder, "service")
        service = self.start("--http-tls-certificate", folder / "service.pem",
                             "--http-tls-key", folder / "service.key", wait=False)
        port = eventually_get(service.announced, lambda ports: "http" in ports, "it listens")["http"]
        command = ("hold", "--server", f"https://127.0.0.1:{port}", *LIMIT,
                   "--", "echo", "ran")
        trusted = support.sluice(*command, env={"SSL_CERT_FILE": folder / "service.pem"})
        self.assertEqual((trusted.returncode, trusted.stdout), (0, "ran\n"), trusted)
        unknown = support.sluice(*command)
        self.assertEqual((unknown.returncode, unknown.stdout), (69, ""), unknown)
        self.assertIn("certificate verify failed", unknown.stderr)


class OverRedis(HoldCommandTest):
    def test_one_slot_of_two_services(self):
        redis = support.Redis()
        self.addCleanup(redis.remove)
        one = self.start("--store", redis.patient_uri)
        two = self.start("--store", redis.patient_uri)
        first = self.run_hold(one, *LIMIT)
        first.wait_until_running()
        self.assertEqual(self.hold(two, *LIMIT).returncode, 75)
        second = self.run_hold(two, *LIMIT, "--wait", command=("echo", "second"))
        eventually(lambda: second.ended_or("waiting" in second.log()), "it waits")
        first.send(signal.SIGTERM)
        self.assertEqual(first.wait(), 7)
        self.assertEqual((second.wait(), second.output()), (0, "second\n"))

    def test_nothing_runs_without_a_store(self):
        """By default, endpoints let requests pass then."""
        redis = support.Redis()
        self.addCleanup(redis.remove)
        service = self.start("--store", redis.uri)
        redis.kill()
        done = self.hold(service, *LIMIT, command=("echo", "ran"))
        self.assertEqual((done.returncode, done.stdout), (69, ""), done)


def runs(pid):
    """Whether there is such a process that has not ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def end(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    support.main()
