"""A headless Chromium, driven over the DevTools protocol: one page, what it asks for, and what it complains of."""

import base64
import json
import pathlib
import subprocess
import time

import websocket

# As root it has no sandbox of its own to make; nothing here may ask anything of anybody else.
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
         "--disable-default-apps", "--remote-allow-origins=*", "--remote-debugging-port=0", "--hide-scrollbars"]


class Browser:
    def __init__(self, program, folder):
        self.folder = pathlib.Path(folder)
        log = open(self.folder / "chromium.log", "w")
        line = [program, *FLAGS, f"--user-data-dir={self.folder}/profile", "about:blank"]
        self.process = subprocess.Popen(line, stdout=log, stderr=log)
        port, path = self._port()
        self.socket = websocket.create_connection(f"ws://127.0.0.1:{port}{path}", timeout=60)
        self.number = 0
        self.asked, self.complaints, self.received, self.loaded = [], [], 0, False
        target = self.call("Target.createTarget", {"url": "about:blank"}, session=None)["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True}, session=None)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def _port(self):
        file = self.folder / "profile" / "DevToolsActivePort"
        for _ in range(600):
            if file.exists() and file.read_text().count("\n") >= 1:
                return file.read_text().split("\n")[:2]
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError("chromium does not start: " + (self.folder / "chromium.log").read_text()[-500:])

    def call(self, method, parameters=None, session=""):
        """Asks the browser; what happens meanwhile is noted."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = self.session
        self.socket.send(json.dumps(message))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _note(self, event):
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.asked.append(parameters["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Network.loadingFinished":
            self.received += parameters["encodedDataLength"]
        elif method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([one.get("value") for one in parameters["args"]]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            entry = parameters["entry"]
            self.complaints.append(f"{entry['text']} {entry.get('url', '')}")

    def js(self, expression):
        """The value of an expression in the page, promises awaited."""
        parameters = {"expression": expression, "awaitPromise": True, "returnByValue": True, "userGesture": True}
        result = self.call("Runtime.evaluate", parameters)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def open(self, url):
        self.call("Page.navigate", {"url": url})

    def reload(self):
        """Loads the page anew, to its end: what is evaluated before that may be of neither page."""
        self.loaded = False
        self.call("Page.reload")
        while not self.loaded:
            self._note(json.loads(self.socket.recv()))

    def until(self, expression, seconds=30):
        """Waits for something to be true in the page, and gives it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            # An element as such has no value here.
            asked = f"(() => {{ try {{ const is = {expression}; return is instanceof Node || is }} catch {{ return null }} }})()"
            value = self.js(asked)
            if value:
                return value
            time.sleep(0.2)
        raise AssertionError(f"not so after {seconds} s: {expression}; the page says: {self.text()[:600]}")

    def text(self):
        return self.js("document.body ? document.body.innerText : ''")

    def press(self, key, shift=False):
        for kind in ("rawKeyDown", "keyUp"):
            codes = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39, "Escape": 27}
            parameters = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": codes[key], "modifiers": 8 if shift else 0}
            if key == "Enter" and kind == "rawKeyDown":
                parameters.update(type="keyDown", text="\r")
            self.call("Input.dispatchKeyEvent", parameters)

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]})

    def picture(self, file, whole=False):
        shot = self.call("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})
        pathlib.Path(file).write_bytes(base64.b64decode(shot["data"]))

    def close(self):
        try:
            self.call("Browser.close", session=None)
        except (RuntimeError, OSError, websocket.WebSocketException):
            self.process.kill()
        self.process.wait(timeout=30)
