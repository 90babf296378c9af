"""The demonstration on a terminal, which goes on with a link to the dashboard."""

import os
import pty
import re
import select
import signal
import subprocess
import time


class Demo:
    def __init__(self, binary):
        ours, theirs = pty.openpty()
        line = [binary, "demo", "--seconds", "1"]
        self.process = subprocess.Popen(line, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)
        self.terminal = ours

    def link(self):
        """The link, when all was measured."""
        said, end = "", time.monotonic() + 120
        while time.monotonic() < end:
            found = re.search(r"(http://127.0.0.1:\d+/#token=\w+)\r", said)
            if found:
                return found[1]
            if select.select([self.terminal], [], [], 1)[0]:
                try:
                    said += os.read(self.terminal, 4096).decode()
                except OSError:
                    break
        raise AssertionError("the demonstration gives no link: " + said[-600:])

    def stop(self):
        """Ctrl-C, and how it ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(timeout=60)
        finally:
            self.process.kill()
            os.close(self.terminal)
