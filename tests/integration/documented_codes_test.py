# SPDX-License-Identifier: Apache-2.0
"""Every error code that the HTTP doors can return is documented, and no other is.

Usage: documented_codes_test.py
"""

import pathlib
import re
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

# How codes are written in the source: beside the status or as the first argument of a refusal, and
# as the names of the library's own errors.
IN_CALLS = re.compile(r'(?:\b[1-5]\d\d\s*,|\brefuse\(|\bErrorBody\()\s*"([A-Z]+(?:_[A-Z]+)*)"')
OWN = re.compile(r'return "([A-Z]+(?:_[A-Z]+)*)";')

# Errors that no request can cause.
NOT_ANSWERED = {"INVALID_TIME", "SNAPSHOT_DAMAGED", "TOO_LARGE"}


def codes(pattern, *globs):
    sources = (path for glob in globs for path in sorted((REPOSITORY / "src").glob(glob))
               if not path.name.endswith("_test.cc"))
    return {code for path in sources for code in pattern.findall(path.read_text(encoding="utf-8"))}


def documented(name):
    """The codes of the tables of errors: rows that begin with a status."""
    text = (REPOSITORY / "docs" / "reference" / name).read_text(encoding="utf-8")
    rows = re.findall(r"^\| [45]\d\d \| ([^|]*) \|", text, re.MULTILINE)
    return {code for row in rows for code in re.findall(r"`([A-Z_]+)`", row)}


class DocumentedCodes(unittest.TestCase):
    maxDiff = None

    def test_are_those_of_the_source(self):
        public = codes(IN_CALLS, "http/*", "api/*") | codes(OWN, "base/error.cc")
        admin = codes(IN_CALLS, "api/admin_api.cc")
        self.assertIn("PRECONDITION_FAILED", admin, "the source is not read as expected")
        self.assertIn("HEADERS_TOO_LARGE", public, "the source is not read as expected")

        self.assertLessEqual(admin, documented("admin-api.md"))
        self.assertEqual(public - NOT_ANSWERED,
                         documented("http-api.md") | documented("admin-api.md"))


if __name__ == "__main__":
    unittest.main()
