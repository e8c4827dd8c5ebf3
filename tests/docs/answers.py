# SPDX-License-Identifier: Apache-2.0
"""Compares what a document shows as an answer with the real one.

Everything must be as it is shown, down to the numbers, but for what differs from run to run: times
and durations, of which only those that are 0 are compared. `…` in what is shown stands for
anything.
"""

import json
import re

# Members of JSON whose value is a time, or counts what happened elsewhere.
VOLATILE = re.compile(r"(Seconds|Micros|_us|At|generation|version|count\w*|requestId)$")

# Times in text. Each matches any other.
TIMES = ((re.compile(r"\b\d{10}\b"), "TIME"),                           # Unix seconds
         (re.compile(r";t=\d+"), ";t=TIME"),                            # of the field RateLimit
         (re.compile(r'(_us" => \(integer\)) [1-9]\d*'), r"\1 TIME"),    # of a map of RESP
         (re.compile(r"\b[1-9][\d.]* ?(us|ms|s|m|h|d)\b"), "TIME"))

COMMENT = re.compile(r"\s+# .*$")
ANYTHING = "…"


def differences(shown, real):
    """The differences from what is shown, as text; empty if there are none."""
    shown = "\n".join(COMMENT.sub("", line).rstrip() for line in shown.strip().splitlines())
    real = "\n".join(line.rstrip() for line in real.strip().splitlines())
    if shown.startswith("HTTP/"):
        return _http(shown, real)
    document = parse_json(shown)
    if document is not None:
        answer = parse_json(real)
        if answer is None:
            return f"expected JSON, and got: {real!r}"
        return _json(document, answer, "")
    return _text(shown, real)


def parse_json(text):
    """The document, in which a bare … stands for a value, for further members, or, alone in a list,
    for its elements. None: it is not JSON."""
    for place, meaning in ((r":\s*…", ': "…"'), (r"\[\s*…\s*\]", '["…"]'), ("…", '"…": "…"')):
        # Skip texts.
        text = re.sub(rf'"(?:[^"\\]|\\.)*"|{place}',
                      lambda match, put=meaning: match[0] if match[0][0] == '"' else put, text)
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document if isinstance(document, (dict, list)) else None


def _http(shown, real):
    """The header fields that are shown must be present."""
    head, _, body = shown.partition("\n\n")
    real_head, _, real_body = real.partition("\n\n")
    status, *fields = head.splitlines()
    real_status, *real_fields = real_head.splitlines() or [""]
    if status != real_status:
        return f"expected {status!r}, and got {real_status!r}: {real_body}"
    answered = dict(_field(field) for field in real_fields)
    for field in fields:
        name, value = _field(field)
        if name not in answered:
            return f"expected the header {field!r}, and there is none"
        if problem := _text(value, answered[name]):
            return f"{name}: {problem}"
    return differences(body, real_body) if body else ""


def _field(line):
    name, _, value = line.partition(":")
    return name.strip().lower(), value.strip()


def _json(shown, real, place):
    where = place or "the answer"
    if shown == ANYTHING or shown == [ANYTHING]:
        return ""
    if VOLATILE.search(place) and not isinstance(shown, (dict, list)):
        alike = type(shown) is type(real) and bool(shown) == bool(real)
        return "" if alike else f"{where}: expected {shown!r}, and got {real!r}"
    if isinstance(shown, dict) and isinstance(real, dict):
        return _members(shown, real, place)
    if isinstance(shown, list) and isinstance(real, list):
        if len(shown) != len(real):
            return f"{where}: expected {len(shown)} elements, and got {len(real)}: {real!r}"
        found = (_json(*pair, f"{place}[{number}]")
                 for number, pair in enumerate(zip(shown, real)))
        return next(filter(None, found), "")
    if isinstance(shown, str) and isinstance(real, str):
        problem = _text(shown, real)
        return f"{where}: {problem}" if problem else ""
    if type(shown) is not type(real) or shown != real:
        return f"{where}: expected {shown!r}, and got {real!r}"
    return ""


def _members(shown, real, place):
    further = shown.pop(ANYTHING, None)
    where = place or "the answer"
    missing = [name for name in shown if name not in real]
    if missing:
        return f"{where}: there is no {', '.join(missing)} in {json.dumps(real)}"
    surplus = [name for name in real if name not in shown]
    if surplus and not further:
        return f"{where}: {', '.join(surplus)} is not shown"
    found = (_json(shown[name], real[name], f"{place}.{name}".lstrip(".")) for name in shown)
    return next(filter(None, found), "")


def _text(shown, real):
    pattern = "".join(r"[\s\S]*" if part == ANYTHING else re.escape(_without_times(part))
                      for part in re.split(f"({ANYTHING})", shown))
    if re.fullmatch(pattern, _without_times(real)):
        return ""
    return f"expected\n{shown}\nand got\n{real}"


def _without_times(text):
    for pattern, replacement in TIMES:
        text = pattern.sub(replacement, text)
    return text
