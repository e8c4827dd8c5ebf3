# SPDX-License-Identifier: Apache-2.0
"""Runs `sluice replay` as its users do and compares its output, byte by byte where possible.

Usage: replay_cli_test.py PROGRAM
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""

HEADER = "allowed,remaining,retry_after_us,reset_after_us,delay_us"
SECOND = 1_000_000
T0 = 1_700_000_000 * SECOND  # 20 s into its minute, 80,000 s into its day.
MINUTE_START = T0 - 20 * SECOND
TIME_MAX = 2**52 - 1

BUCKET = "algorithm=token_bucket,capacity=2,refill=1,period=1s"
WIDE = "algorithm=fixed_window,limit=1000000,window=1d"


def run(*arguments, stdin=b"", env=None, stdout=subprocess.PIPE):
    if isinstance(stdin, str):
        stdin = stdin.encode()
    return subprocess.run(
        [PROGRAM, *arguments], input=stdin, stdout=stdout, stderr=subprocess.PIPE, timeout=120,
        env=None if env is None else {**os.environ, **env}, check=False)


def limit_flags(limits):
    return [part for limit in limits for part in ("--limit", limit)]


class ReplayTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        return path

    def replay(self, *arguments, stdin=b"", limits=(BUCKET,)):
        """Replays and returns the completed process; it must succeed in silence."""
        done = run("replay", *limit_flags(limits), *arguments, stdin=stdin)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return done

    def decisions(self, records, limits=(BUCKET,), extra=()):
        """The decision lines for records, each a tuple of timestamp, key and perhaps cost."""
        text = "".join(",".join(map(str, record)) + "\n" for record in records)
        lines = self.replay("--decisions", *extra, stdin=text, limits=limits).stdout.decode()
        self.assertTrue(lines.endswith("\n"))
        header, *rest = lines[:-1].split("\n")
        self.assertEqual(header, HEADER)
        return rest

    def summary(self, stdin, *arguments, limits=(BUCKET,)):
        output = self.replay("--json", *arguments, stdin=stdin, limits=limits).stdout
        self.assertEqual(output.count(b"\n"), 1)
        return json.loads(output)

    def assert_fails(self, done, *parts):
        """Exit status 2, nothing on standard output, and an error that has all of these parts."""
        error = done.stderr.decode()
        self.assertEqual(done.returncode, 2, error)
        self.assertIn(done.stdout, (b"", None))
        self.assertTrue(error.startswith("sluice"), error)
        self.assertTrue(error.endswith("\n"), error)
        for part in parts:
            self.assertIn(part, error)

    def assert_line_fails(self, text, number, *parts, limits=(BUCKET,), extra=()):
        """The same for every kind of output: bad input at this line."""
        for mode in ([], ["--json"], ["--decisions"]):
            with self.subTest(mode=mode):
                done = run("replay", *limit_flags(limits), *mode, *extra, stdin=text)
                self.assert_fails(done, f"standard input:{number}: ", *parts)
                self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)


class Decisions(ReplayTest):
    """Traffic and its decisions, worked out by hand."""

    def check(self, limits, steps):
        """Steps are (time after T0, key, cost, decision line)."""
        records = [(T0 + after, key, cost) for after, key, cost, _ in steps]
        expected = [line for *_, line in steps]
        self.assertEqual(self.decisions(records, limits), expected)

    def test_token_bucket(self):
        self.check([BUCKET], [
            (0, "a", 1, "1,1,0,1000000,0"),
            (0, "a", 1, "1,0,0,2000000,0"),
            (0, "a", 1, "0,0,1000000,2000000,0"),
            (0, "b", 1, "1,1,0,1000000,0"),  # Another key, another budget.
            (999_999, "a", 1, "0,0,1,1000001,0"),
            (1_000_000, "a", 1, "1,0,0,2000000,0"),
            (10_000_000, "a", 2, "1,0,0,2000000,0"),  # Full again, and no fuller.
            (10_500_000, "a", 0, "1,0,0,1500000,0"),
            (10_500_000, "a", 2, "0,0,1500000,1500000,0"),
        ])

    def test_leaky_bucket(self):
        self.check(["algorithm=leaky_bucket,capacity=3,leak=1,period=1s"], [
            (0, "a", 1, "1,2,0,1000000,0"),
            (0, "a", 1, "1,1,0,2000000,1000000"),
            (0, "a", 1, "1,0,0,3000000,2000000"),
            (0, "a", 1, "0,0,1000000,3000000,0"),  # A denial has no delay.
            (999_999, "a", 1, "0,0,1,2000001,0"),
            (1_000_000, "a", 1, "1,0,0,3000000,2000000"),
            (10_000_000, "a", 1, "1,2,0,1000000,0"),
            (10_000_000, "a", 0, "1,2,0,1000000,1000000"),
        ])

    def test_gcra(self):
        # Three tokens, one every 333,333.3 us.
        self.check(["algorithm=gcra,burst=2,count=3,period=1s"], [
            (0, "a", 3, "1,0,0,1000000,0"),
            (0, "a", 1, "0,0,333334,1000000,0"),
            (333_333, "a", 1, "0,0,1,666667,0"),
            (333_334, "a", 1, "1,0,0,1000000,0"),  # 0.000002 tokens are left, and count.
            (1_000_000, "a", 1, "1,1,0,666667,0"),
        ])

    def test_fixed_window(self):
        self.check(["algorithm=fixed_window,limit=2,window=60s"], [
            (0, "a", 1, "1,1,0,40000000,0"),
            (0, "a", 1, "1,0,0,40000000,0"),
            (1_000_000, "a", 1, "0,0,39000000,39000000,0"),
            (39_999_999, "a", 1, "0,0,1,1,0"),
            (40_000_000, "a", 2, "1,0,0,60000000,0"),  # Twice the limit around the boundary.
            (40_000_000, "b", 0, "1,2,0,60000000,0"),
        ])

    def test_sliding_window(self):
        for name in ("sliding_window", "sliding_window_log"):
            self.check([f"algorithm={name},limit=2,window=10s"], [
                (0, "a", 1, "1,1,0,10000000,0"),
                (4_000_000, "a", 1, "1,0,0,10000000,0"),
                (4_000_000, "a", 1, "0,0,6000000,10000000,0"),
                (4_000_000, "a", 2, "0,0,10000000,10000000,0"),  # Both have to leave.
                (9_999_999, "a", 1, "0,0,1,4000001,0"),
                (10_000_000, "a", 1, "1,0,0,10000000,0"),
                (12_000_000, "a", 0, "1,0,0,8000000,0"),
                (20_000_000, "a", 0, "1,2,0,0,0"),
            ])

    def test_sliding_window_counter(self):
        # Times from the start of a minute, like the weights.
        steps = [
            (0, 8, "1,2,0,120000000,0"),
            # The next minute. 8 * 54/60 = 7.2 of the 8 are left; 2.8 fit, and 3 from 7.5 s on.
            (66_000_000, 3, "0,2,1500000,54000000,0"),
            (67_499_999, 3, "0,2,1,52500001,0"),
            (67_500_000, 3, "1,0,0,112500000,0"),
            # 8 * 30/60 + 3 = 7 of 10.
            (90_000_000, 0, "1,3,0,90000000,0"),
            (90_000_000, 3, "1,0,0,90000000,0"),
            # 5 fit when 6 * x/60 is down to 5: in the next minute, 10 s in.
            (90_000_000, 5, "0,0,40000000,90000000,0"),
            (129_999_999, 5, "0,4,1,50000001,0"),
            (130_000_000, 5, "1,0,0,110000000,0"),
        ]
        records = [(MINUTE_START + after, "a", cost) for after, cost, _ in steps]
        # This is also what a limit without an algorithm means.
        for limit in ("algorithm=sliding_window_counter,limit=10,window=60s", "limit=10,window=1m"):
            self.assertEqual(self.decisions(records, [limit]), [line for *_, line in steps])

    def test_cost_zero_looks_and_takes_nothing(self):
        peeks = [(0, "a", 0, "1,2,0,0,0")] * 5
        self.check([BUCKET], peeks + [(0, "a", 2, "1,0,0,2000000,0")] +
                   [(0, "a", 0, "1,0,0,2000000,0")] * 5 + [(2_000_000, "a", 0, "1,2,0,0,0")])

    def test_denials_take_nothing(self):
        self.check([BUCKET], [(0, "a", 2, "1,0,0,2000000,0")] +
                   [(0, "a", 1, "0,0,1000000,2000000,0")] * 100 +
                   [(1_000_000, "a", 1, "1,0,0,2000000,0")])

    def test_several_limits_are_all_or_nothing(self):
        limits = ["algorithm=token_bucket,capacity=4,refill=1,period=1d",
                  "algorithm=fixed_window,limit=3,window=60s"]
        steps = [
            # The smallest remaining (the window's) and the longest reset (the bucket's).
            (0, "a", 1, "1,2,0,86400000000,0"),
            # The bucket holds 3, but the window only 2: neither is charged.
            (0, "a", 3, "0,2,40000000,86400000000,0"),
            (0, "a", 3, "0,2,40000000,86400000000,0"),
            # The 3 are still there only if the bucket was not charged; it has 40 s of a day back.
            (40_000_000, "a", 3, "1,0,0,345560000000,0"),
            # Both deny; the longest wait counts.
            (40_000_000, "a", 1, "0,0,86360000000,345560000000,0"),
        ]
        self.check(limits, steps)
        self.check(limits[::-1], steps)

    def test_denied_group_has_no_delay(self):
        self.check(["algorithm=leaky_bucket,capacity=5,leak=1,period=1s",
                    "algorithm=fixed_window,limit=2,window=60s"], [
            (0, "a", 1, "1,1,0,40000000,0"),
            (0, "a", 1, "1,0,0,40000000,1000000"),
            (0, "a", 1, "0,0,40000000,40000000,0"),
            (40_000_000, "a", 1, "1,1,0,60000000,0"),
        ])

    def test_identical_limits_are_two_budgets(self):
        steps = [(0, "a", 2, "1,0,0,2000000,0"), (0, "a", 1, "0,0,1000000,2000000,0"),
                 (1_500_000, "a", 1, "1,0,0,1500000,0")]
        self.check([BUCKET], steps)
        self.check([BUCKET] * 2, steps)
        self.check([BUCKET] * 64, steps)
        summary = self.summary(f"{T0},a,2\n{T0},a\n", limits=[BUCKET] * 2)
        self.assertEqual(summary["limits"], [{"limit": BUCKET, "denied": 1}] * 2)

    def test_time_never_runs_backwards_for_a_key(self):
        self.check(["algorithm=token_bucket,capacity=1,refill=1,period=1s"], [
            (0, "a", 1, "1,0,0,1000000,0"),
            (-5_000_000, "a", 1, "0,0,1000000,1000000,0"),  # As of T0.
            (-5_000_000, "b", 1, "1,0,0,1000000,0"),  # Another key has its own time.
            (1_000_000, "a", 1, "1,0,0,1000000,0"),
            (-4_000_000, "b", 1, "1,0,0,1000000,0"),
        ])
        self.check(["algorithm=fixed_window,limit=1,window=60s"], [
            (50_000_000, "a", 1, "1,0,0,50000000,0"),
            (0, "a", 1, "0,0,60000000,60000000,0"),  # As of the start of the newest window.
        ])
        self.check(["algorithm=sliding_window,limit=1,window=10s"], [
            (0, "a", 1, "1,0,0,10000000,0"),
            (-9_000_000, "a", 1, "0,0,10000000,10000000,0"),
        ])

    def test_state_that_has_recovered_is_not_forgotten_for_late_records(self):
        one = "algorithm=token_bucket,capacity=1,refill=1,period=1s"
        spread = [(T0 + 100 * SECOND, "a")]
        spread += [(T0 + (200 + i) * SECOND, f"k{i}") for i in range(20_000)]
        lines = self.decisions(spread + [(T0, "a")], [one])
        self.assertEqual(lines, ["1,0,0,1000000,0"] * 20_001 + ["0,0,1000000,1000000,0"])

    def test_first_and_last_moment(self):
        lines = self.decisions([(0, "a"), (TIME_MAX, "a")])
        self.assertEqual(lines, ["1,1,0,1000000,0"] * 2)

    def test_names_and_units_in_upper_case(self):
        upper = "ALGORITHM=TOKEN_BUCKET,CAPACITY=2,Refill=1,PERIOD=1S"
        self.assertEqual(self.decisions([(T0, "a")], [upper]), ["1,1,0,1000000,0"])
        self.assertEqual(self.summary(f"{T0},a\n", limits=[upper])["limits"][0]["limit"], BUCKET)

    def test_fields_in_any_order_and_among_blanks(self):
        self.assertEqual(
            self.decisions([(T0, "a")], [" period = 1000ms, refill=1 ,capacity=2,"
                                         "algorithm=token_bucket"]), ["1,1,0,1000000,0"])


class Ops(ReplayTest):
    """JSON lines that do more than check."""

    COLUMNS = "allowed,remaining,retry_after_us,reset_after_us,delay_us,held,status"

    def rows(self, *ops, limits):
        lines = "".join(json.dumps({"timestamp_us": T0 + at, "key": "a", "op": op, **more}) + "\n"
                        for at, op, more in ops)
        done = self.replay("--decisions", stdin=lines, limits=limits)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        header, *rows = done.stdout.decode().splitlines()
        self.assertEqual(header, self.COLUMNS)
        return rows

    def test_hold_settle_and_give(self):
        window = "algorithm=fixed_window,limit=10,window=1h"
        left = 3600 * SECOND - T0 % (3600 * SECOND)
        self.assertEqual(
            self.rows((0, "hold", {"id": "x", "cost": 6, "ttl_us": SECOND}),
                      (0, "hold", {"id": "x", "cost": 6, "ttl_us": SECOND}),
                      (0, "hold", {"id": "x", "cost": 5, "ttl_us": SECOND}),
                      (0, "hold", {"cost": 6, "ttl_us": SECOND}),
                      (1, "settle", {"id": "x", "cost": 2}),
                      (1, "extend", {"id": "x", "ttl_us": SECOND}),
                      (1, "hold", {"id": "y", "ttl_us": 1000, "on_expiry": "release"}),
                      (1001, "check", {}),
                      (1001, "settle", {"id": "y", "cost": 3}),
                      (1001, "give", {"cost": 1}),
                      (1001, "release", {"id": "nobody"}),
                      (1001, "reset", {}), limits=[window]),
            [f"1,4,0,{left},0,6,ok", f"1,4,0,{left},0,6,ok", "0,0,0,0,0,0,HOLD_CONFLICT",
             f"0,4,{left},{left},0,6,denied", f"1,8,0,{left - 1},0,0,ok", "0,0,0,0,0,0,HOLD_LOST",
             f"1,7,0,{left - 1},0,1,ok", f"1,7,0,{left - 1001},0,0,ok",
             f"1,4,0,{left - 1001},0,0,late", f"1,5,0,{left - 1001},0,0,ok",
             f"1,5,0,{left - 1001},0,0,late", f"1,10,0,{left - 1001},0,0,ok"])

    def test_concurrency_and_several_limits(self):
        slots = "algorithm=concurrency,limit=1,ttl=10s"
        bucket = "algorithm=token_bucket,capacity=5,refill=1,period=1s"
        self.assertEqual(
            self.rows((0, "check", {}), (0, "hold", {"id": "x", "ttl_us": SECOND}),
                      (0, "hold", {"id": "y", "ttl_us": SECOND}),
                      (SECOND - 1, "hold", {"id": "y", "ttl_us": SECOND}),
                      (SECOND, "hold", {"id": "y", "ttl_us": SECOND}), limits=[bucket, slots]),
            ["0,0,0,0,0,0,NEEDS_HOLD", f"1,0,0,{SECOND},0,1,ok",
             # The bucket fills up to what is not on hold, until the hold expires and stays charged.
             f"0,0,{SECOND},{SECOND},0,1,denied", f"0,0,1,{SECOND},0,1,denied",
             f"1,0,0,{2 * SECOND},0,1,ok"])

    def test_what_ops_need(self):
        for line, expected in (({"op": "grab"}, "expected check, hold, settle"),
                               ({"op": 1}, "expected a string"),
                               ({"op": "settle"}, "needs the id"),
                               ({"op": "extend", "id": ""}, "needs the id"),
                               ({"op": "hold", "id": "x"}, "ttl"),
                               ({"op": "hold", "id": "x", "ttl_us": 999}, "1000 to 86400000000"),
                               ({"op": "hold", "id": "x" * 65, "ttl_us": 1000}, "1 to 64"),
                               ({"op": "hold", "id": "x", "ttl_us": 1000, "on_expiry": "stay"},
                                "expected charge or release")):
            stdin = json.dumps({"timestamp_us": T0, "key": "a", **line}) + "\n"
            self.assert_line_fails(stdin, 1, expected)


class Input(ReplayTest):
    """Where records come from and what they may look like."""

    CSV = f"{T0},a\n{T0},a,2\n{T0},b,0\n"
    JSON = (f'{{"timestamp_us":{T0},"key":"a"}}\n{{"key":"a","cost":2,"timestamp_us":{T0}}}\n'
            f'{{"timestamp_us":{T0},"key":"b","cost":0,"more":[1,{{}}]}}\n')
    EXPECTED = f"{HEADER}\n1,1,0,1000000,0\n0,1,1000000,1000000,0\n1,2,0,0,0\n".encode()

    def test_file_dash_and_absent_file_are_the_same(self):
        for name, text in (("traffic.csv", self.CSV), ("traffic.jsonl", self.JSON),
                           ("no extension", self.CSV)):
            path = self.write(name, text)
            self.assertEqual(self.replay("--decisions", path).stdout, self.EXPECTED)
            self.assertEqual(self.replay("--decisions", "-", stdin=text).stdout, self.EXPECTED)
            self.assertEqual(self.replay("--decisions", stdin=text).stdout, self.EXPECTED)
            self.assertEqual(self.replay("--decisions", "/dev/stdin", stdin=text).stdout,
                             self.EXPECTED)

    def test_options_may_follow_the_file(self):
        path = self.write("traffic.csv", self.CSV)
        done = run("replay", path, "--decisions", "--limit", BUCKET, "--store", "memory")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, self.EXPECTED, b""))
        done = run("replay", f"--limit={BUCKET}", "--store=memory", "--decisions", "--", path)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, self.EXPECTED, b""))

    def test_shapes_of_csv(self):
        header = "timestamp_us,key,cost\n"
        full = f"{T0},a,1\n{T0},a,2\n{T0},b,0\n"
        shapes = {
            "header": header + full,
            "header in upper case": header.upper() + full,
            "empty cost": header + f"{T0},a,\n{T0},a,2\n{T0},b,0\n",
            "carriage returns": (header + full).replace("\n", "\r\n"),
            "byte order mark": "\ufeff" + header + full,
            "byte order mark without a header": "\ufeff" + full,
            "blank lines": "\n  \n" + header + "\n\t\n" + full + "\n\n",
            "no newline at the end": full[:-1],
            "quotes": f'"{T0}","a","1"\n{T0},"a",2\n{T0},"b",0\n',
            "blanks around numbers": f" {T0} ,a, 1\n{T0},a,2 \n{T0},b,0\n",
            "reordered, with more columns":
                f"host,cost,key,note,timestamp_us\nh,1,a,,{T0}\nh,2,a,\"x,y\",{T0}\nh,0,b,,{T0}\n",
        }
        for name, text in shapes.items():
            with self.subTest(name):
                self.assertEqual(self.replay("--decisions", stdin=text).stdout, self.EXPECTED)

    def test_header_without_cost(self):
        text = f"key,timestamp_us\na,{T0}\n"
        self.assertEqual(self.summary(text)["requests"], 1)

    def test_quoted_keys(self):
        text = f'{T0},"say ""hi"", then go"\n' * 3
        self.assertEqual(self.summary(text)["top_denied"],
                         [{"key": 'say "hi", then go', "denied": 1}])

    def test_keys_in_json_and_csv_are_the_same_bytes(self):
        csv = f"{T0},\u00e9,2\n"
        as_json = f'{{"timestamp_us":{T0},"key":"\\u00e9","cost":2}}\n'
        text = csv + f"{T0},e\u0301,2\n"
        self.assertEqual(self.summary(text)["denied"], 0)  # Two keys: nothing is normalised.
        self.assertEqual(self.summary(csv + csv)["top_denied"][0]["key"], "\u00e9")
        self.assertEqual(self.summary(as_json * 2)["top_denied"][0]["key"], "\u00e9")

    def test_key_with_nul_and_any_other_byte(self):
        keys = [bytes([byte]) for byte in range(256) if byte not in b'\n\r,"'] + [b"a\0b", b"a\0c"]
        text = b"".join(b"%d,%s,2\n" % (T0, key) for key in keys)
        # Each is its own key: a second request would be denied.
        self.assertEqual(self.summary(text)["allowed"], len(keys))

    def test_empty_input(self):
        for text in ("", "\n", "\r\n \n", "\ufeff", "timestamp_us,key\n", "timestamp_us,key,cost"):
            with self.subTest(text=text):
                path = self.write("empty", text)
                for source in ([path], ["-"]):
                    done = self.replay("--decisions", *source, stdin=text)
                    self.assertEqual(done.stdout.decode(), HEADER + "\n")
                    done = self.replay(*source, stdin=text)
                    self.assertEqual(done.stdout.decode(),
                                     "requests  0\nallowed   0  0.0 %\ndenied    0  0.0 %\n")
                summary = self.summary(text)
                self.assertEqual((summary["requests"], summary["timeline"]), (0, []))

    def test_format_overrides_detection(self):
        for text, format_ in ((self.CSV, "csv"), (self.JSON, "jsonl")):
            self.assertEqual(self.replay("--decisions", "--format", format_, stdin=text).stdout,
                             self.EXPECTED)
        self.assert_line_fails(self.CSV, 1, "not JSON", extra=["--format", "jsonl"])
        self.assert_line_fails(self.JSON, 1, "", extra=["--format", "csv"])

        braces = f"{{id}},timestamp_us,key\n{{7}},{T0},a\n"
        self.assert_line_fails(braces, 1, "not JSON")
        self.assertEqual(self.summary(braces, "--format", "csv")["requests"], 1)
        self.assertEqual(
            self.summary("# a remark\n" + self.JSON, "--format", "jsonl", "--skip-bad"),
            {**self.summary(self.JSON), "bad_lines": 1})

    def test_largest_key(self):
        key = "k" * 1024
        self.assertEqual(self.decisions([(T0, key)]), ["1,1,0,1000000,0"])
        self.assertEqual(self.summary(f"{T0},{key},2\n" * 2)["top_denied"],
                         [{"key": key, "denied": 1}])

    def test_largest_line(self):
        text = f"timestamp_us,key,x\n{T0},a,"
        text += "x" * (2**20 - len(f"{T0},a,")) + "\n"
        self.assertEqual(self.summary(text)["requests"], 1)


class BadInput(ReplayTest):
    """Each a clear error with its line, exit status 2 and nothing on standard output."""

    def test_malformed_csv(self):
        cases = [
            ("", "1 field", "rubbish"),
            ("", "1 field", f"{T0}"),
            ("", "4 fields", f"{T0},a,1,x"),
            ("", 'timestamp_us "now"', "now,a"),
            ("", 'timestamp_us ""', ",a"),
            ("", 'timestamp_us "-1"', "-1,a"),
            ("", 'timestamp_us "1.5"', "1.5,a"),
            ("", 'timestamp_us "1e6"', "1e6,a"),
            ("", f'timestamp_us "{TIME_MAX + 1}"', f"{TIME_MAX + 1},a"),
            ("", f'timestamp_us "{10**30}"', f"{10**30},a"),
            ("", 'cost "-1"', f"{T0},a,-1"),
            ("", 'cost "0.5"', f"{T0},a,0.5"),
            ("", 'cost "1e3"', f"{T0},a,1e3"),
            ("", 'cost "x"', f"{T0},a,x"),
            ("", f'cost "{10**30}"', f"{T0},a,{10**30}"),
            ("", "quote is not closed", f'{T0},"a'),
            ("", "follows a closing quote", f'{T0},"a"b'),
            ("timestamp_us,key,cost\n", "expected 3 as in the header", f"{T0},a,1,2"),
            ("timestamp_us,key,cost\n", 'timestamp_us "timestamp_us"', "timestamp_us,key,cost"),
            ("", "more than 64 fields", "," * 64),
            ("", 'timestamp_us "timestamp_us"', "timestamp_us,user"),
        ]
        for before, part, line in cases:
            with self.subTest(line=line):
                self.assert_line_fails(f"{before}{line}\n", before.count("\n") + 1, part)

    def test_malformed_json(self):
        good = f'{{"timestamp_us":{T0},"key":"a"}}\n'
        cases = [
            ("not JSON", '{"timestamp_us":1,"key":"a"'),
            ("not JSON", '{"timestamp_us":1,"key":"a"} x'),
            ("not JSON", '{"timestamp_us":1,"key":"a",}'),
            ("not JSON", f"{T0},a"),
            ("expected an object", "[]"),
            ("timestamp_us is missing", '{"key":"a"}'),
            ("key is missing", '{"timestamp_us":1}'),
            ("timestamp_us ", '{"timestamp_us":"1","key":"a"}'),
            ("timestamp_us ", '{"timestamp_us":1.5,"key":"a"}'),
            ("timestamp_us ", '{"timestamp_us":1e6,"key":"a"}'),
            ('timestamp_us "-1"', '{"timestamp_us":-1,"key":"a"}'),
            (f'timestamp_us "{2**52}"', f'{{"timestamp_us":{2**52},"key":"a"}}'),
            (f'timestamp_us "{2**63}"', f'{{"timestamp_us":{2**63},"key":"a"}}'),
            ('key "7"', '{"timestamp_us":1,"key":7}'),
            ('cost "-1"', '{"timestamp_us":1,"key":"a","cost":-1}'),
            ("cost ", '{"timestamp_us":1,"key":"a","cost":"1"}'),
            ("INVALID_KEY", '{"timestamp_us":1,"key":""}'),
            ("COST_EXCEEDS_LIMIT", '{"timestamp_us":1,"key":"a","cost":3}'),
        ]
        for part, line in cases:
            with self.subTest(line=line):
                self.assert_line_fails(good + line + "\n", 2, part)

    def test_line_number_counts_every_line(self):
        text = f"\n\ntimestamp_us,key\r\n{T0},a\n\n{T0},a\nrubbish\n{T0},a\n"
        self.assert_line_fails(text, 7, "1 field")
        path = self.write("traffic.csv", text)
        for arguments in ([path], ["--decisions", path]):
            done = run("replay", "--limit", BUCKET, *arguments)
            self.assert_fails(done, f"{path}:7: 1 field")

    def test_last_line_without_newline_has_a_number_too(self):
        self.assert_line_fails(f"{T0},a\nrubbish", 2, "1 field")

    def test_empty_key(self):
        self.assert_line_fails(f"{T0},a\n{T0},\n", 2, "a key of 0 bytes", "1 to 1024")
        self.assert_line_fails(f"{T0},,1\n", 1, "a key of 0 bytes")

    def test_key_that_is_too_long(self):
        self.assert_line_fails(f"{T0},a\n{T0},{'k' * 1025}\n", 2, "a key of 1025 bytes",
                               "1 to 1024")

    def test_cost_that_can_never_fit(self):
        for limit, amount in ((BUCKET, 2),
                              ("algorithm=leaky_bucket,capacity=3,leak=1,period=1s", 3),
                              ("algorithm=gcra,burst=3,count=1,period=1s", 4),
                              ("algorithm=fixed_window,limit=5,window=1m", 5),
                              ("algorithm=sliding_window,limit=6,window=1m", 6),
                              ("algorithm=sliding_window_counter,limit=7,window=1m", 7)):
            with self.subTest(limit=limit):
                self.assert_line_fails(f"{T0},a,{amount}\n{T0},a,{amount + 1}\n", 2,
                                       f"cost {amount + 1}", limit, limits=[limit])
                self.assert_line_fails(f"{T0},a,{2**63 - 1}\n", 1, f"cost {2**63 - 1}", limit,
                                       limits=[limit])
                # The limit that cannot is named, wherever it is.
                self.assert_line_fails(f"{T0},a,{amount + 1}\n", 1, limit, limits=[WIDE, limit])

    def test_line_that_is_too_long(self):
        text = f"{T0},a\n{'x' * (2**20 + 1)}\n{T0},a\n"
        self.assert_line_fails(text, 2, "longer than 1048576 bytes")

    def test_errors_show_no_control_bytes(self):
        for line in (b"\x1b[31m,a", b"%d,a,\x1b[31m" % T0, b"\xff,a", b"1\0002,a"):
            with self.subTest(line=line):
                done = run("replay", "--limit", BUCKET, stdin=line + b"\n")
                self.assert_fails(done, "standard input:1: ", "\\x")
                error = done.stderr[:-1].decode()
                self.assertTrue(error.isascii() and error.isprintable(), done.stderr)

    def test_late_error_leaves_no_output(self):
        text = f"{T0},a\n" * 100_000 + "rubbish\n"
        self.assert_line_fails(text, 100_001, "1 field")


class SkipBad(ReplayTest):
    TEXT = (f"{T0},a\nrubbish\n{T0},\n{T0},{'k' * 1025}\n{T0},a,3\n{T0},a,-1\n-1,a\n"
            f"{'x' * (2**20 + 1)}\n{T0},\"a\n\n{T0},a\n{T0},a\n")

    def test_counts_bad_lines_and_goes_on(self):
        summary = self.summary(self.TEXT, "--skip-bad")
        self.assertEqual((summary["requests"], summary["allowed"], summary["denied"],
                          summary["bad_lines"]), (3, 2, 1, 8))
        text = self.replay("--skip-bad", stdin=self.TEXT).stdout.decode()
        self.assertTrue(text.startswith("requests  3\nallowed   2  66.7 %\ndenied    1  33.3 %\n"
                                        "bad lines 8  skipped\n"), text)

    def test_decisions_are_those_of_the_good_lines(self):
        done = run("replay", "--limit", BUCKET, "--decisions", "--skip-bad", stdin=self.TEXT)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stdout.decode(),
                         f"{HEADER}\n1,1,0,1000000,0\n1,0,0,2000000,0\n0,0,1000000,2000000,0\n")
        self.assertIn(b"bad lines skipped: 8", done.stderr)

    def test_without_bad_lines_changes_nothing(self):
        for mode in ([], ["--json"], ["--decisions"]):
            self.assertEqual(self.replay(*mode, "--skip-bad", stdin=Input.CSV).stdout,
                             self.replay(*mode, stdin=Input.CSV).stdout)

    def test_nothing_but_bad_lines(self):
        summary = self.summary("x\ny\nz\n", "--skip-bad")
        self.assertEqual((summary["requests"], summary["bad_lines"]), (0, 3))

    def test_json_lines(self):
        text = Input.JSON + '{"timestamp_us":\n[]\n' + Input.JSON
        summary = self.summary(text, "--skip-bad")
        self.assertEqual((summary["requests"], summary["bad_lines"]), (6, 2))

    def test_does_not_hide_what_is_no_bad_line(self):
        for arguments in (["--limit", "rubbish"], ["--limit", BUCKET, "missing file"],
                          ["--limit", BUCKET, self.folder]):
            self.assert_fails(run("replay", "--skip-bad", *arguments))


class CommandLine(ReplayTest):
    def test_help_and_version(self):
        for arguments in (["--help"], ["-h"], ["replay", "--help"], ["replay", "-h"]):
            done = run(*arguments)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            self.assertIn(b"replay", done.stdout)
        for flag in (b"--limit", b"--store", b"--format", b"--decisions", b"--json", b"--skip-bad",
                     b"FILE"):
            self.assertIn(flag, run("replay", "--help").stdout)
        done = run("--version")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertRegex(done.stdout.decode(), r"\Asluice \d+\.\d+\.\d+\n\Z")

    def test_calendars_follow_the_clocks_of_their_zone(self):
        # 29 March 2026 has 23 hours in Berlin.
        midnight = 1_774_738_800 * SECOND
        day = 23 * 3600 * SECOND
        lines = "".join(f"{at},ann,1\n" for at in (midnight, midnight + day - 1, midnight + day))
        done = run("replay", "--decisions", "--limit",
                   "algorithm=calendar,limit=1,every=day,zone=Europe/Berlin", stdin=lines)
        self.assertEqual(done.stdout.decode().splitlines(),
                         [HEADER, f"1,0,0,{day},0", "0,0,1,1,0", f"1,0,0,{24 * 3600 * SECOND},0"])
        done = run("replay", "--limit", "algorithm=calendar,limit=1,every=day,zone=Europe/Berln")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"did you mean Europe/Berlin?", done.stderr)

    def test_examples_of_the_help_are_limits(self):
        limits = [line.strip() for line in run("--help").stdout.decode().splitlines()
                  if line.startswith("  algorithm=")]
        self.assertEqual(len(limits), 8)
        hold = json.dumps({"timestamp_us": T0, "key": "a", "op": "hold"})
        for limit in limits:
            line = hold if "concurrency" in limit else f"{T0},a"
            self.assertEqual(self.summary(line + "\n", limits=[limit])["allowed"], 1)

    def test_bad_command_lines(self):
        path = self.write("traffic.csv", Input.CSV)
        limit = ["--limit", BUCKET]
        cases = [
            ([], ""),
            (["no-such-command"], 'unknown command "no-such-command"; expected one of replay, '),
            (["--no-such-flag"], ""),
            (["replay"], "--limit"),
            (["replay", path], "--limit"),
            (["replay", "--limit"], "--limit"),
            (["replay", *limit, "--no-such-flag", path], "--no-such-flag"),
            (["replay", *limit, "-x", path], "-x"),
            (["replay", *limit, path, "another-file"], "more arguments than expected"),
            (["replay", *limit, "--store", "floppy", path], "floppy"),
            (["replay", *limit, "--store"], "--store"),
            (["replay", *limit, "--format", "xml", path], "xml"),
            (["replay", *limit, "--format"], "--format"),
            (["replay", *limit, "--json", "--decisions", path], "--json"),
        ]
        for arguments, part in cases:
            with self.subTest(arguments=arguments):
                self.assert_fails(run(*arguments), part)

    def test_limits_that_do_not_validate(self):
        cases = [
            ("", "name=value"),
            ("rubbish", "name=value"),
            ("algorithm=token_bucket,", "name=value"),
            ("algorithm=hourglass,limit=1,window=1s", 'unknown algorithm "hourglass"'),
            ("algorithm=hourglass", "sliding_window_counter"),  # The known ones are listed.
            ("algorithm=,limit=1,window=1s", 'unknown algorithm ""'),
            ("algorithm=token_bucket,capacity=1,refill=1,period=1s,colour=red", '"colour"'),
            ("algorithm=fixed_window,capacity=1,window=1s", '"capacity"'),
            ("algorithm=token_bucket,capacity=1,period=1s", "needs refill"),
            ("limit=1", "needs window"),
            ("limit=1,limit=2,window=1s", '"limit" is given twice'),
            ("limit=1,LIMIT=2,window=1s", '"LIMIT" is given twice'),
            ("limit=1,window=1", 'window="1"'),
            ("limit=1,window=1parsec", 'window="1parsec"'),
            ("limit=1,window=s", 'window="s"'),
            ("limit=1,window=-1s", 'window="-1s"'),
            ("limit=1,window=1.5s", 'window="1.5s"'),
            ("limit=1,window=0s", "window=0us is out of range"),
            ("limit=1,window=99999999d", 'window="99999999d"'),
            ("limit=1,window=99999999999999999999s", 'window="99999999999999999999s"'),
            ("limit=0,window=1s", "limit=0 is out of range"),
            ("limit=-1,window=1s", "limit=-1 is out of range"),
            ("limit=x,window=1s", 'limit="x"'),
            ("limit=1e3,window=1s", 'limit="1e3"'),
            ("limit=99999999999999999999,window=1s", 'limit="99999999999999999999"'),
            ("algorithm=token_bucket,capacity=0,refill=1,period=1s", "capacity=0"),
            ("algorithm=token_bucket,capacity=1,refill=0,period=1s", "refill=0"),
            ("algorithm=leaky_bucket,capacity=1,leak=0,period=1s", "leak=0"),
            ("algorithm=gcra,burst=-1,count=1,period=1s", "burst=-1"),
            ("algorithm=gcra,burst=1,count=0,period=1s", "count=0"),
            ("algorithm=sliding_window,limit=0,window=1s", "limit=0"),
            (f"algorithm=fixed_window,limit={2**53},window=1s", f"limit={2**53}"),
            ("algorithm=token_bucket,capacity=9007199254740991,refill=1,period=7d", "2^53"),
        ]
        for limit, part in cases:
            with self.subTest(limit=limit):
                # Also after a valid one, and whatever is read.
                self.assert_fails(run("replay", "--limit", limit, stdin=Input.CSV), "--limit", part)
                self.assert_fails(
                    run("replay", "--decisions", "--limit", BUCKET, "--limit", limit), part)

    def test_at_most_64_limits(self):
        self.assertEqual(self.summary(Input.CSV, limits=[WIDE] * 64)["requests"], 3)
        self.assert_fails(run("replay", *limit_flags([WIDE] * 65), stdin=Input.CSV), "65", "64")

    def test_file_that_cannot_be_read(self):
        missing = os.path.join(self.folder, "missing.csv")
        cases = [(missing, "No such file"), (self.folder, "Is a directory"), ("", "No such file"),
                 (os.path.join(self.write("file", ""), "below"), "Not a directory")]
        for path, part in cases:
            with self.subTest(path=path):
                for mode in ([], ["--json"], ["--decisions"]):
                    self.assert_fails(run("replay", "--limit", BUCKET, *mode, path), path, part)

    @unittest.skipIf(os.geteuid() == 0, "root may read everything")
    def test_file_without_permission(self):
        path = self.write("secret.csv", Input.CSV)
        os.chmod(path, 0)
        self.assert_fails(run("replay", "--limit", BUCKET, path), path, "Permission denied")

    def test_closed_standard_input(self):
        done = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", PROGRAM, "replay", "--limit",
                               BUCKET], capture_output=True, timeout=60, check=False)
        self.assert_fails(done, "Bad file descriptor")


class Summary(ReplayTest):
    TEXT = f"{T0},a\n{T0},b\n{T0},a\n{T0 + 2},a\n{T0 + 2},a\n{T0 + 2},c,0\n"

    def test_text(self):
        self.assertEqual(
            self.replay(stdin=self.TEXT).stdout.decode(),
            "requests  6\n"
            "allowed   4  66.7 %\n"
            "denied    2  33.3 %\n"
            "from      2023-11-14T22:13:20.000000Z\n"
            "to        2023-11-14T22:13:20.000002Z\n"
            "\n"
            "denied by\n"
            f"  2  {BUCKET}\n"
            "\n"
            "top denied keys\n"
            '  2  "a"\n'
            "\n"
            "over time, 1 us a row   # allowed  - denied\n"
            f"  2023-11-14T22:13:20.000000Z  3 0  {'#' * 48}\n"
            "  2023-11-14T22:13:20.000001Z  0 0\n"
            f"  2023-11-14T22:13:20.000002Z  1 2  {'#' * 16}{'-' * 32}\n")

    def test_json(self):
        self.assertEqual(self.summary(self.TEXT), {
            "requests": 6, "allowed": 4, "denied": 2, "bad_lines": 0,
            "first_us": T0, "last_us": T0 + 2,
            "limits": [{"limit": BUCKET, "denied": 2}],
            "top_denied": [{"key": "a", "denied": 2}],
            "timeline_width_us": 1,
            "timeline": [{"start_us": T0, "allowed": 3, "denied": 0},
                         {"start_us": T0 + 2, "allowed": 1, "denied": 2}]})

    def test_says_which_limit_denied(self):
        limits = [BUCKET, "algorithm=fixed_window,limit=3,window=1m"]
        # Two pass, the bucket denies one; a second later one passes, and then both deny.
        text = f"{T0},a\n" * 3 + f"{T0 + SECOND},a\n" * 2
        summary = self.summary(text, limits=limits)
        self.assertEqual(summary["limits"],
                         [{"limit": limits[0], "denied": 2}, {"limit": limits[1], "denied": 1}])
        self.assertEqual((summary["allowed"], summary["denied"]), (3, 2))

    def test_top_keys_are_ordered_and_ten_at_most(self):
        lines = [f"{T0},k{i:02},2" for i in range(15) for _ in range(3 if i % 2 else 2)]
        random.Random(1).shuffle(lines)
        summary = self.summary("\n".join(lines))
        expected = [{"key": f"k{i:02}", "denied": 2} for i in range(1, 15, 2)]
        expected += [{"key": f"k{i:02}", "denied": 1} for i in (0, 2, 4)]
        self.assertEqual(summary["top_denied"], expected)

    def test_keys_that_are_not_utf8_give_valid_json(self):
        for key in (b"\xff", b"a\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"):
            with self.subTest(key=key):
                summary = self.summary(b"%d,%s,2\n" % (T0, key) * 2)
                self.assertEqual(summary["denied"], 1)
                self.assertIn("\\x", summary["top_denied"][0]["key"])

    def test_keys_are_escaped_in_the_text(self):
        text = self.replay(stdin=b"%d,\x1b[31m\xff,2\n" % T0 * 2).stdout
        self.assertIn(b'"\\x1b[31m\\xff"\n', text)
        self.assertTrue(text.isascii())

    def test_timeline_holds_every_request(self):
        generator = random.Random(2)
        for span_us in (1, 1_000, SECOND, 86_400 * SECOND, TIME_MAX - T0):
            text = "".join(f"{T0 + generator.randrange(span_us)},k{generator.randrange(50)}\n"
                           for _ in range(2_000))
            summary = self.summary(text)
            for count in ("allowed", "denied"):
                self.assertEqual(sum(row[count] for row in summary["timeline"]), summary[count])
            width = summary["timeline_width_us"]
            starts = [row["start_us"] for row in summary["timeline"]]
            self.assertEqual(starts, sorted(set(starts)))
            self.assertTrue(all(start % width == 0 for start in starts))
            self.assertLess((starts[-1] - starts[0]) // width, 24)
            self.assertLessEqual(starts[0], summary["first_us"])
            self.assertLess(summary["last_us"], starts[-1] + width)

    def test_agrees_with_the_decisions(self):
        generator = random.Random(3)
        text = "".join(f"{T0 + i * 10_000},k{generator.randrange(5)},{generator.randrange(3)}\n"
                       for i in range(5_000))
        lines = self.replay("--decisions", stdin=text).stdout.decode().splitlines()[1:]
        summary = self.summary(text)
        self.assertEqual(summary["requests"], len(lines))
        self.assertEqual(summary["allowed"], sum(line.startswith("1,") for line in lines))
        self.assertGreater(summary["allowed"], 0)
        self.assertGreater(summary["denied"], 0)


class Output(ReplayTest):
    def test_full_disk_is_an_error(self):
        for mode in ([], ["--json"], ["--decisions"]):
            with self.subTest(mode=mode), open("/dev/full", "wb") as full:
                done = run("replay", "--limit", BUCKET, *mode, stdin=Input.CSV, stdout=full)
                self.assert_fails(done, "No space left on device")

    def test_closed_standard_output_is_an_error(self):
        path = self.write("traffic.csv", Input.CSV)
        for mode in ([], ["--json"], ["--decisions"]):
            with self.subTest(mode=mode):
                done = subprocess.run(
                    ["sh", "-c", 'exec "$@" >&-', "sh", PROGRAM, "replay", "--limit", BUCKET, *mode,
                     path], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
                self.assert_fails(done, "cannot write")

    def close_early(self, restore_signals):
        """Reads the first line of far more than a pipe holds, like head."""
        path = self.write("traffic.csv", f"{T0},a\n" * 100_000)
        with subprocess.Popen([PROGRAM, "replay", "--limit", BUCKET, "--decisions", path],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              restore_signals=restore_signals) as process:
            self.assertEqual(process.stdout.readline().decode(), HEADER + "\n")
            process.stdout.close()
            errors = process.stderr.read()
            return process.wait(timeout=60), errors

    def test_reader_that_goes_away_ends_it_quietly(self):
        status, errors = self.close_early(restore_signals=True)
        self.assertIn(status, (-signal.SIGPIPE, 2))
        self.assertNotIn(b"terminate", errors)
        self.assertLessEqual(errors.count(b"\n"), 1, errors)

    def test_reader_that_goes_away_is_an_error_where_the_signal_is_ignored(self):
        # Python ignores SIGPIPE, and without restore_signals so do those that it starts.
        status, errors = self.close_early(restore_signals=False)
        self.assertEqual(status, 2)
        self.assertIn(b"Broken pipe", errors)

    def test_locale_and_time_zone_make_no_difference(self):
        plain = run("replay", "--limit", BUCKET, stdin=Summary.TEXT)
        for env in ({"TZ": "America/New_York"}, {"TZ": "Asia/Kathmandu", "LC_ALL": "de_DE.UTF-8"},
                    {"LC_ALL": "C"}):
            done = run("replay", "--limit", BUCKET, stdin=Summary.TEXT, env=env)
            self.assertEqual((done.returncode, done.stdout), (0, plain.stdout))


class Units(ReplayTest):
    def test_times_that_look_like_another_unit_are_warned_of(self):
        for unit, scale in (("seconds", 1), ("milliseconds", 1_000)):
            text = "".join(f"{(T0 // SECOND + i) * scale},a\n" for i in range(3))
            done = run("replay", "--limit", BUCKET, "--decisions", stdin=text)
            self.assertEqual((done.returncode, done.stderr.decode()), (
                0, f"sluice replay: warning: the times look like {unit} since the epoch, and are "
                   "taken for microseconds\n"))
            self.assertEqual(done.stdout.count(b"\n"), 4)
        # Microseconds since the epoch, and since the start of the recording.
        for first in (T0, 0, 5 * SECOND):
            self.replay(stdin=f"{first},a\n{first + 2_000 * SECOND},a\n")
        self.replay(stdin="")


class Large(ReplayTest):
    def test_many_lines_give_the_same_output_every_time(self):
        generator = random.Random(4)
        path = self.write("traffic.csv", "".join(
            f"{T0 + i * 500 + generator.randrange(-3_000, 3_000)},"
            f"user:{generator.randrange(3_000)},{generator.randrange(4)}\n"
            for i in range(200_000)))
        limits = ["algorithm=token_bucket,capacity=5,refill=3,period=7s",
                  "algorithm=sliding_window,limit=20,window=30s", "limit=100,window=1m"]
        for mode in ([], ["--json"], ["--decisions"]):
            first = self.replay(*mode, path, limits=limits).stdout
            self.assertEqual(self.replay(*mode, path, limits=limits).stdout, first)
            if mode == ["--decisions"]:
                self.assertEqual(first.count(b"\n"), 200_001)
                self.assertIn(b"\n0,", first)

    def test_decisions_beyond_the_memory_set_aside_for_them(self):
        # 31 bytes a line: more than the 16 MiB that are held back in memory.
        count = 700_000
        amount = 10**12
        limits = [f"algorithm=fixed_window,limit={amount},window=1d"]
        line = f"{T0},a\n".encode()
        path = self.write("traffic.csv", line * count)
        reset_us = (86_400 - 80_000) * SECOND
        expected = (HEADER + "\n" + "".join(
            f"1,{amount - i},0,{reset_us},0\n" for i in range(1, count + 1))).encode()
        self.assertGreater(len(expected), 16 << 20)
        # Not assertEqual: it would print both.
        self.assertTrue(self.replay("--decisions", path, limits=limits).stdout == expected)

        with open("/dev/full", "wb") as full:
            done = run("replay", *limit_flags(limits), "--decisions", path, stdout=full)
            self.assert_fails(done, "No space left on device")

        with open(path, "ab") as file:
            file.write(b"rubbish\n")
        done = run("replay", *limit_flags(limits), "--decisions", path)
        self.assert_fails(done, f"{path}:{count + 1}: ")

    def test_closed_standard_output_is_not_mistaken_for_the_temporary_file(self):
        # A file opened later gets the lowest free descriptor, which is that of standard output.
        path = self.write("traffic.csv", f"{T0},a\n" * 1_000_000)
        done = subprocess.run(
            ["sh", "-c", 'input=$1; shift; exec "$@" <"$input" >&-', "sh", path, PROGRAM, "replay",
             "--limit", WIDE, "--decisions"], capture_output=True, timeout=120, check=False)
        self.assert_fails(done, "cannot write")


if __name__ == "__main__":
    if not PROGRAM:
        sys.exit(__doc__)
    unittest.main(argv=[sys.argv[0]])
