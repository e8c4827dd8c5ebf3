# SPDX-License-Identifier: Apache-2.0
"""Compares the windows of calendars with what Python's zoneinfo makes of the same rules, around every
change of the clock from 1970 to 2100.

Usage: windows_test.py PROGRAM   (tests/calendar/windows.cc)
"""

import bisect
import datetime
import os
import subprocess
import sys
import unittest
import zoneinfo

PROGRAM = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""

# With changes at midnight, of half an hour, of a whole day, in the winter instead of the summer,
# during Ramadan, by seconds, and of the rule of the future.
ZONES = [
    "Africa/Cairo", "Africa/Casablanca", "Africa/Monrovia", "America/Asuncion", "America/Havana",
    "America/New_York", "America/Nuuk", "America/Sao_Paulo", "America/St_Johns",
    "Antarctica/Troll", "Asia/Beirut", "Asia/Gaza", "Asia/Kathmandu", "Asia/Tehran",
    "Atlantic/Azores", "Australia/Lord_Howe", "Europe/Berlin", "Europe/Dublin", "Europe/London",
    "Pacific/Apia", "Pacific/Kiritimati", "Pacific/Kwajalein",
]
DAY = 86_400
MICROS = 1_000_000
EPOCH = datetime.datetime(1970, 1, 1)
END = int((datetime.datetime(2101, 1, 1) - EPOCH).total_seconds())
WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]


def last_of(year, month):
    following = datetime.date(year + month // 12, month % 12 + 1, 1)
    return (following - datetime.timedelta(days=1)).day


def clipped(year, month, day):
    return datetime.datetime(year, month, min(day, last_of(year, month)))


class Zone:
    def __init__(self, name):
        self.name = name
        self.info = zoneinfo.ZoneInfo(name)
        self.changes = self._changes()
        self.known_bounds = {}

    def offset(self, utc):
        at = EPOCH.replace(tzinfo=datetime.timezone.utc) + datetime.timedelta(seconds=utc)
        return int(at.astimezone(self.info).utcoffset().total_seconds())

    def _changes(self):
        changes = []
        before = self.offset(-2 * 366 * DAY)
        for day in range(-2 * 366 * DAY, END + 800 * DAY, DAY):
            after = self.offset(day + DAY)
            if after == before:
                continue
            low, high = day, day + DAY
            while high - low > 1:
                middle = (low + high) // 2
                if self.offset(middle) == before:
                    low = middle
                else:
                    high = middle
            changes.append(high)
            before = after
        return changes

    def local(self, utc):
        return EPOCH + datetime.timedelta(seconds=utc + self.offset(utc))

    def moment(self, local):
        """The first moment at which the clocks show this time; if it is skipped, the end of the gap."""
        at = local.replace(tzinfo=self.info, fold=0)
        utc = int((at - EPOCH.replace(tzinfo=datetime.timezone.utc)).total_seconds())
        if self.local(utc) == local:
            return utc
        return self.changes[bisect.bisect_right(self.changes, utc) - 1]

    def bounds(self, every, anchor, utc):
        """The beginnings of windows near a moment."""
        day = self.local(utc).replace(hour=0, minute=0, second=0)
        known = (every, anchor, day)
        if known not in self.known_bounds:
            self.known_bounds[known] = self._bounds(every, anchor, day)
        return self.known_bounds[known]

    def _bounds(self, every, anchor, local):
        if every == "day":
            hour, minute = map(int, anchor.split(":"))
            first = datetime.datetime(local.year, local.month, local.day, hour, minute)
            starts = [first + datetime.timedelta(days=i) for i in range(-3, 4)]
        elif every == "week":
            first = datetime.datetime(local.year, local.month, local.day)
            first -= datetime.timedelta(days=(first.weekday() - WEEKDAYS.index(anchor)) % 7)
            starts = [first + datetime.timedelta(days=7 * i) for i in range(-2, 3)]
        elif every == "year":
            month, day = map(int, anchor.split("-"))
            starts = [clipped(local.year + i, month, day) for i in range(-2, 3)]
        else:
            months = local.year * 12 + local.month - 1
            length = 3 if every == "quarter" else 1
            first = months // length * length
            starts = []
            for i in range(-2, 3):
                month = first + length * i
                starts.append(clipped(month // 12, month % 12 + 1, int(anchor)))
        return sorted(self.moment(start) for start in starts)

    def window(self, every, anchor, micros):
        utc = micros // MICROS
        bounds = self.bounds(every, anchor, utc)
        at = bisect.bisect_right(bounds, utc)
        return max(0, bounds[at - 1] * MICROS), bounds[at] * MICROS


def questions(zone):
    """Calendars and moments at which something could go wrong."""
    for change in zone.changes:
        if not 0 <= change < END:
            continue
        shown = [zone.local(change - 1), zone.local(change)]
        calendars = {("day", "00:00"), ("day", "02:30"), ("day", "23:59"), ("week", "monday"),
                     ("month", "1"), ("month", "31"), ("quarter", "31"), ("year", "01-01"),
                     ("year", "02-29")}
        for local in shown:
            calendars |= {("day", local.strftime("%H:%M")), ("week", WEEKDAYS[local.weekday()]),
                          ("month", str(local.day)), ("quarter", str(local.day)),
                          ("year", local.strftime("%m-%d"))}
        for every, anchor in sorted(calendars):
            for moment in (change - DAY, change - 3600, change, change + 1800, change + DAY):
                for micros in (-1, 0):
                    yield every, anchor, max(0, moment * MICROS + micros)
            start, end = zone.window(every, anchor, change * MICROS)
            for bound in (start, end):
                for micros in (-1, 0):
                    yield every, anchor, max(0, bound + micros)


def plain_questions():
    """Where there are no changes: leap days, and ends of months and years."""
    for year in (1970, 1972, 1999, 2000, 2024, 2025, 2096, 2100):
        for month in range(1, 13):
            for day in (1, 15, last_of(year, month)):
                at = int((datetime.datetime(year, month, day) - EPOCH).total_seconds()) * MICROS
                for every, anchor in (("day", "06:00"), ("week", "sunday"), ("month", "29"),
                                      ("month", "30"), ("month", "31"), ("quarter", "15"),
                                      ("quarter", "31"), ("year", "02-29"), ("year", "12-31")):
                    yield every, anchor, at
                    yield every, anchor, max(0, at - 1)


def ask(lines):
    done = subprocess.run([PROGRAM], input="\n".join(lines) + "\n", capture_output=True, text=True,
                          timeout=300, check=True)
    return done.stdout.splitlines()


class WindowsTest(unittest.TestCase):
    def check(self, name, asked):
        zone = Zone(name)
        asked = list(asked(zone))
        lines = [f"algorithm=calendar,limit=1,every={every},zone={name},anchor={anchor} {micros}"
                 for every, anchor, micros in asked]
        answers = ask(lines)
        self.assertEqual(len(answers), len(asked))
        for (every, anchor, micros), line, answer in zip(asked, lines, answers):
            self.assertEqual(answer, "%d %d" % zone.window(every, anchor, micros), line)
        return len(asked)

    def test_around_every_change_of_the_clock(self):
        for name in ZONES:
            with self.subTest(zone=name):
                self.assertGreater(self.check(name, questions), 0)

    def test_without_changes(self):
        self.check("UTC", lambda _: plain_questions())
        self.check("Asia/Kathmandu", lambda _: plain_questions())

    def test_the_day_that_samoa_skipped_is_no_window(self):
        zone = Zone("Pacific/Apia")
        skipped = zone.moment(datetime.datetime(2011, 12, 30))
        self.assertEqual(skipped, zone.moment(datetime.datetime(2011, 12, 31)))
        limit = "algorithm=calendar,limit=1,every=day,zone=Pacific/Apia"
        before, after = ask([f"{limit} {skipped * MICROS - 1}", f"{limit} {skipped * MICROS}"])
        self.assertEqual(before, f"{(skipped - DAY) * MICROS} {skipped * MICROS}")
        self.assertEqual(after, f"{skipped * MICROS} {(skipped + DAY) * MICROS}")

    def test_half_an_hour_at_lord_howe(self):
        zone = Zone("Australia/Lord_Howe")
        midnight = zone.moment(datetime.datetime(2024, 4, 7))
        limit = "algorithm=calendar,limit=1,every=day,zone=Australia/Lord_Howe"
        self.assertEqual(ask([f"{limit} {midnight * MICROS}"]),
                         [f"{midnight * MICROS} {(midnight + DAY + 1800) * MICROS}"])

    def test_every_zone_of_the_system_can_be_used(self):
        names = sorted(name for name in zoneinfo.available_timezones() if name != "localtime")
        self.assertGreater(len(names), 300)
        lines = [f"algorithm=calendar,limit=1,every=day,zone={name}" for name in names]
        self.assertEqual(list(zip(names, ask(lines))), [(name, "") for name in names])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
