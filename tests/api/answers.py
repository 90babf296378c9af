"""Asks a running target for one of everything, and holds each body and answer against its OpenAPI document.

    answers.py URL TOKEN        URL ends in /api/v1

Prints what differs, and exits with 1 if anything does.
"""

import json
import sys
import urllib.error
import urllib.request

from jsonschema_rs import Draft202012Validator

# Method, template of the path, names in it, body; what is made by one is used by the next.
MAKE = [
    ("POST", "/devices", "", {"name": "m0", "kind": "memory", "size": "256MiB"}),
    ("POST", "/devices", "", {"name": "m1", "kind": "memory", "size": "256MiB"}),
    ("POST", "/devices", "", {"name": "m2", "kind": "memory", "size": "256MiB"}),
    ("POST", "/devices", "", {"name": "null", "kind": "null", "size": "64MiB"}),
    ("POST", "/devices", "", {"name": "drive", "kind": "flash", "size": "1GiB", "profile": "dct983"}),
    ("POST", "/devices", "", {"name": "units", "kind": "open-channel", "size": "4GiB"}),
    ("POST", "/devices", "", {"name": "part", "kind": "partition", "partition": {"device": "units", "count": 2}}),
    ("POST", "/devices", "", {"name": "bad", "kind": "fault", "device": "null",
                              "faults": [{"kind": "error", "rate": "1%"}]}),
    ("PUT", "/devices/{}/faults", "bad", {"faults": [{"kind": "latency", "latency": "1ms"}]}),
    ("PUT", "/devices/{}/policy", "null", {"policy": "fifo"}),
    ("POST", "/pools", "", {"name": "mapped", "devices": ["m0"], "kind": "mapped"}),
    ("POST", "/pools", "", {"name": "raw", "devices": ["drive"]}),
    ("POST", "/arrays", "", {
        "of": {"device": {"name": "both", "kind": "array", "devices": ["m1", "m2"], "redundancy": "mirror"},
               "pool": {"name": "safe", "devices": ["both"], "kind": "mapped"}},
        "how": {"force": False, "import": False, "degraded": False}}),
    ("POST", "/arrays/{}", "safe", {"scrub": {"stop": False}}),
    ("POST", "/tenants", "", {"name": "db", "hosts": ["*"], "class": "latency", "latency_target": "1ms",
                              "guarantee": {"read_iops": "1k"}, "quota": {"mapped": "100MiB"}}),
    ("PATCH", "/tenants/{}", "db", {"weight": 3}),
    ("POST", "/volumes", "", {"name": "v", "pool": "mapped", "size": "32MiB", "tenant": "db",
                              "compression": "lz4", "reserve": "8MiB"}),
    ("POST", "/volumes", "", {"name": "w", "pool": "raw", "size": 1 << 24, "tenant": "db",
                              "nguid": "00112233445566778899aabbccddeeff"}),
    ("PATCH", "/volumes/{}", "v", {"size": "48MiB"}),
    ("POST", "/volumes/{}/migration", "v", {"to": "safe", "background": False}),
    ("PUT", "/volumes/{}/name", "w", {"new": "x"}),
    ("POST", "/snapshots", "", [{"volume": "v", "name": "s"}]),
    ("POST", "/volumes/{}/snapshots/{}/clone", "v s", {"name": "c"}),
    ("POST", "/volumes/{}/snapshots/{}/share", "v s", {"name": "shown", "tenant": "db"}),
    ("POST", "/volumes/{}/snapshots/{}/restore", "v s", None),
    ("POST", "/functions", "", [{"name": "one", "tenant": "db"}]),
    ("POST", "/functions", "", [{"name": "two", "tenant": "db"}, {"name": "three", "tenant": "db"}]),
    ("PATCH", "/functions/{}", "one", {"mode": "0660"}),
    ("PUT", "/health/{}/mute", "POOL_FULL", {"seconds": 60}),
    ("DELETE", "/health/{}/mute", "POOL_FULL", None),
    ("PATCH", "/target", "", {"io_queues": 8}),
    ("POST", "/partitions/import", "", {"device": "units", "name": None, "policy": None, "list": True}),
]

LOOK = [
    ("/status", ""), ("/health", ""), ("/target", ""), ("/tenants/{}/why", "db"), ("/volumes/{}/changes", "v"),
    ("/traffic", ""), ("/activity", ""), ("/events", ""), ("/audit", ""), ("/snapshots", ""), ("/configuration", ""),
]

KINDS = ["devices", "partitions", "pools", "tenants", "volumes", "functions"]


class Target:
    def __init__(self, url, token):
        self.url, self.token = url, token
        self.wrong = self.asked = 0
        with urllib.request.urlopen(url + "/openapi.json") as answer:
            self.document = json.load(answer)

    def ask(self, method, template, names="", body=None):
        """The answer, which has to be what the document says; nothing if it was refused."""
        self.asked += 1
        operation = self.operation(method, template)
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            content = operation["requestBody"]["content"]["application/json"]
            self.check(f"body of {method} {template}", content["schema"], body)
        request = urllib.request.Request(self.url + template.format(*names.split()), data, method=method)
        request.add_header("Authorization", "Bearer " + self.token)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            self.complain(f"{method} {template} {names}: {error.code} {error.read().decode()}")
            return None
        content = operation["responses"]["200"]["content"]["application/json"]
        answer = json.loads(text)
        self.check(f"answer to {method} {template} {names}", content["schema"], answer)
        return answer

    def operation(self, method, template):
        """As the document has it, whose names are `name` and `child`."""
        return self.document["paths"][template.replace("{}", "{name}", 1).replace("{}", "{child}")][method.lower()]

    def check(self, what, schema, value):
        whole = dict(schema, components=self.document["components"])
        for error in Draft202012Validator(whole).iter_errors(value):
            self.complain(f"{what}: {list(error.instance_path)}: {error.message}")

    def complain(self, line):
        self.wrong += 1
        print(line)


def main(url, token):
    target = Target(url, token)
    for method, template, names, body in MAKE:
        target.ask(method, template, names, body)
    for template, names in LOOK:
        file = target.ask("GET", template, names)
    how = {"plan": True, "prune": False, "yes": False, "import": False, "force": False}
    target.ask("POST", "/configuration", body={"file": file, "how": how})
    for kind in KINDS:
        for one in target.ask("GET", f"/{kind}"):
            target.ask("GET", f"/{kind}/{{}}", one["name"])
    print(f"{target.asked} answers, {target.wrong} faults")
    return target.wrong > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
