# SPDX-License-Identifier: Apache-2.0
"""A wall clock that can be set while a program runs."""

import os
import pathlib
import struct

import support


class Clock:
    """The clock of a program that is started with this environment. See tests/support."""

    def __init__(self):
        self.folder = support.Folder()
        self.path = self.folder / "shift"
        with open(self.path, "wb") as file:
            file.write(struct.pack("q", 0))

    @property
    def environment(self):
        library = pathlib.Path(support.PROGRAM).parent / "tests" / "libsluice_clock_shift.so"
        return {"LD_PRELOAD": str(library), "CLOCK_SHIFT_FILE": self.path}

    def shift(self, seconds):
        """Sets it this far ahead of the real clock."""
        file = os.open(self.path, os.O_WRONLY)
        try:
            os.pwrite(file, struct.pack("q", seconds), 0)  # In one piece: the reader maps it.
        finally:
            os.close(file)

    def remove(self):
        self.folder.remove()
