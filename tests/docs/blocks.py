# SPDX-License-Identifier: Apache-2.0
"""Reads a markdown file: its fenced blocks with the comments that tell how to run them, and its
inline code."""

import dataclasses
import re
import textwrap

# What a comment before a block may contain; README.md explains each.
DIRECTIVES = ("not run", "first", "stdin of", "output of", "part of")

FENCE = re.compile(r"^ *(?P<fence>`{3,}|~{3,}) *(?P<language>[^\s`]*)[^`]*$")
DIRECTIVE = re.compile(rf"<!--\s*(?P<name>{'|'.join(DIRECTIVES)}):\s*(?P<text>.*?)\s*-->", re.S)
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")


class BadDocument(Exception):
    """A document that cannot be parsed as intended."""


@dataclasses.dataclass
class Block:
    path: str
    line: int
    language: str
    text: str
    directives: dict

    @property
    def place(self):
        return f"{self.path}:{self.line}"


def read_blocks(path, markdown):
    """The fenced blocks of a document, in order."""
    return _read(path, markdown)[0]


def read_spans(path, markdown):
    """The inline code of a document, as it is shown."""
    prose = _read(path, markdown)[1]
    return [" ".join(span.split()).replace("\\|", "|") for span in SPAN.findall(prose)]


def _read(path, markdown):
    lines = markdown.splitlines()
    blocks, prose, directives = [], [], {}
    at = 0
    while at < len(lines):
        line = lines[at]
        fence = FENCE.match(line)
        if fence:
            end = _end_of_block(path, lines, at, fence["fence"])
            text = textwrap.dedent("\n".join(lines[at + 1:end]) + "\n")
            blocks.append(Block(path, at + 1, fence["language"], text, directives))
            directives = {}
            at = end + 1
        elif line.lstrip().startswith("<!--"):
            end = next((number for number in range(at, len(lines)) if "-->" in lines[number]), None)
            if end is None:
                raise BadDocument(f"{path}:{at + 1}: this comment does not end")
            match = DIRECTIVE.search("\n".join(lines[at:end + 1]))
            if match:
                if match["name"] in directives:
                    raise BadDocument(f"{path}:{at + 1}: `{match['name']}:` twice for one block")
                directives[match["name"]] = match["text"]
            at = end + 1
        else:
            if directives and line.strip():
                raise BadDocument(f"{path}:{at + 1}: the comment before this line says how to run "
                                  "a block, and no block follows it")
            prose.append(line)
            at += 1
    if directives:
        raise BadDocument(f"{path}: the last comment says how to run a block, and none follows it")
    return blocks, "\n".join(prose)


def _end_of_block(path, lines, begin, fence):
    for at in range(begin + 1, len(lines)):
        line = lines[at].strip()
        if line.startswith(fence) and not line.strip(fence[0]):
            return at
    raise BadDocument(f"{path}:{begin + 1}: this block does not end")
