"""A target with two tenants on one slow drive, one of them a noisy neighbour, and what its API says."""

import json
import pathlib
import re
import subprocess
import time
import urllib.request

ADMIN = "0123456789abcdef0123456789abcdef"
READ = "fedcba9876543210fedcba9876543210"

# The drive is so slow that neither the build nor the machine counts: `db` waits for `backup` at it.
CONFIG = """
[[device]]
name = "ssd0"
kind = "flash"
profile = "dct983"
condition = "clean"
size = "1GiB"
dilation = 50
policy = "fifo"

[[device]]
name = "ram0"
kind = "memory"
size = "256MiB"

[[device]]
name = "ram1"
kind = "memory"
size = "256MiB"

[[device]]
name = "both"
kind = "array"
devices = ["ram0", "ram1"]
redundancy = "mirror"

[[pool]]
name = "fast"
devices = ["ssd0"]

[[pool]]
name = "safe"
devices = ["both"]
kind = "mapped"

[[tenant]]
name = "db"
hosts = ["*"]
class = "latency"
weight = 7
latency_target = "1ms"

[[tenant]]
name = "backup"
hosts = ["*"]

[[volume]]
name = "orders"
pool = "fast"
size = "128MiB"
tenant = "db"

[[volume]]
name = "archive"
pool = "fast"
size = "512MiB"
tenant = "backup"

[[volume]]
name = "ledger"
pool = "safe"
size = "32MiB"
tenant = "db"
"""

LOADS = {
    "db": ["--rw", "randread", "--bs", "4KiB", "--qd", "1", "--class", "latency"],
    "backup": ["--rw", "randread", "--bs", "128KiB", "--qd", "16"],
}


class Target:
    def __init__(self, binary, folder, config=CONFIG, loads=LOADS):
        self.binary, self.folder, self.with_load = binary, pathlib.Path(folder), loads
        (self.folder / "flashyard.toml").write_text(config)
        tokens = self.folder / "tokens"
        tokens.touch(mode=0o600)
        tokens.write_text(f"admin {ADMIN}\nread {READ}\n")
        self.loads, self.process, self.port = [], None, 0

    def start(self):
        log = self.folder / "target.log"
        listens = ["--listen", "127.0.0.1:0", "--api", f"127.0.0.1:{self.port}", "--api-tokens", "tokens"]
        line = [self.binary, "serve", "--state", "state", "--config", "flashyard.toml", *listens]
        with open(log, "w") as out:
            self.process = subprocess.Popen(line, cwd=self.folder, stdout=out, stderr=out)
        for _ in range(600):
            said = log.read_text()
            page = re.search(r"^dashboard: (http://127.0.0.1:(\d+)/)$", said, re.MULTILINE)
            if page:
                self.page, self.port = page[1], int(page[2])
                self.nvme = re.search(r"^listening on (\S+) \(nvme-tcp\)", said, re.MULTILINE)[1]
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError("the target does not start: " + log.read_text()[-500:])

    def load(self):
        for tenant, options in self.with_load.items():
            subnqn = f"nqn.2026-11.dev.flashyard:{tenant}"
            line = [self.binary, "perf", "--connect", self.nvme, "--subnqn", subnqn, "--seconds", "600", *options]
            with open(self.folder / f"{tenant}.log", "w") as out:
                self.loads.append(subprocess.Popen(line, stdout=out, stderr=out))

    def ask(self, path):
        request = urllib.request.Request(f"{self.page}api/v1{path}", headers={"Authorization": f"Bearer {ADMIN}"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def until(self, path, holds):
        """Waits for an answer that holds."""
        for _ in range(150):
            answer = self.ask(path)
            if holds(answer):
                return answer
            time.sleep(0.2)
        raise AssertionError(f"{path} says {answer}")

    def stop(self):
        for load in self.loads:
            load.kill()
            load.wait()
        self.loads = []
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=60)
