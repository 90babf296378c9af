"""Looks at every screen of the dashboard as somebody with a browser would, and holds it against the API.

    screens.py BINARY CHROMIUM FOLDER [PICTURES]

Prints "ok NAME" or "FAILED NAME: why" for each of its parts.
"""

import sys
import time
from urllib.parse import parse_qs, urlparse

from browser import Browser
from demo import Demo
from target import ADMIN, READ, Target

SCREENS = ["view=overview", "view=tenant", "view=tenant&name=db", "view=device", "view=device&name=ssd0", "view=device&name=both",
           "view=pool", "view=pool&name=safe", "view=events"]

# Everything that can have the focus and is seen.
FOCUSABLE = """[...document.querySelectorAll("a[href], button, select, input, summary, [tabindex='0']")]
    .filter((one) => !one.disabled && one.checkVisibility() && !one.classList.contains("skip"))"""


class Look:
    def __init__(self, target, browser, pictures):
        self.target, self.browser, self.pictures = target, browser, pictures

    def go(self, search):
        """Another screen of the same page, as a link leads there."""
        self.browser.js(f"(() => {{ history.pushState(null, '', '?{search}'); dispatchEvent(new PopStateEvent('popstate')); }})()")
        self.browser.until(f"document.querySelector('#content h2, #content h1') && location.search === '?{search}'")

    def enter(self, token):
        self.browser.js(f"document.querySelector('.token input').value = '{token}'")
        self.browser.js("document.querySelector('.token button').click()")

    def cells(self, table):
        """The rows of a table: a list of texts each, without what orders them."""
        return self.browser.js(f"[...document.querySelectorAll('#table-{table} tbody tr')].map((row) => [...row.cells].map((cell) => cell.innerText.trim()))")

    def names(self, table, wanted):
        """Waits until these are the first cells of a table, in this order."""
        first = f"[...document.querySelectorAll('#table-{table} tbody tr')].map((row) => row.cells[0].innerText)"
        self.browser.until(f"JSON.stringify({first}) === JSON.stringify({wanted})")

    def act(self, identity, then):
        """Does what an action offers, and gives its command line when it is done."""
        self.browser.js(f"document.querySelector('#action-{identity} summary').click()")
        line = self.browser.until(f"document.querySelector('#action-{identity} code').innerText")
        self.browser.js(f"document.querySelector('#action-{identity} .run').click()")
        # What is done may be no longer offered; whether it was is seen at the API.
        said = f"document.querySelector('#action-{identity} [role=status]').innerText.includes('{then}')"
        self.browser.until(f"!document.querySelector('#action-{identity}') || {said}")
        return line

    def picture(self, name):
        if self.pictures:
            self.browser.picture(f"{self.pictures}/{name}.png")

    # The parts, in order.

    def token(self):
        self.browser.open(self.target.page)
        self.browser.until("document.querySelector('.token')")
        self.enter("a-token-of-nobody")
        self.browser.until("document.querySelector('.token .fault')?.innerText.includes('refused')")
        self.enter(ADMIN)
        self.browser.until("document.querySelector('#table-tenants')")
        # The browser tells of each answer that is an error; these were wanted.
        refused = [one for one in self.browser.complaints if "403" not in one]
        assert not refused, refused
        self.browser.complaints.clear()

    def overview(self):
        self.target.load()
        self.target.until("/tenants/db/why", lambda why: any(one.get("ios", 0) > 20 for one in why["devices"]))
        said = self.browser.until("document.querySelector('#neighbour.bad .headline')?.innerText", 60)
        assert "Noisy neighbour: backup" in said, said
        tenants = {row[0]: row for row in self.cells("tenants")}
        assert set(tenants) == {one["name"] for one in self.target.ask("/tenants")}, tenants
        assert tenants["db"][2] == "7" and "missed" in tenants["db"][8] and "backup" in tenants["db"][10], tenants["db"]
        assert tenants["backup"][4] not in ("–", "0/s") and "MiB/s" in tenants["backup"][5], tenants["backup"]
        for kind in ("devices", "pools"):
            names = {row[0] for row in self.cells(kind)}
            assert names == {one["name"] for one in self.target.ask(f"/{kind}")}, names
        page = self.browser.text()
        for problem in self.target.ask("/health")["problems"]:
            if problem["code"] != "EMULATION_LATE":
                assert problem["code"] in page, problem
        status = self.target.ask("/status")
        tiles = self.browser.js("document.querySelector('.tiles').innerText").split("\n")
        assert tiles[tiles.index("Volumes") + 1] == str(status["target"]["volumes"]), tiles
        assert tiles[tiles.index("Connected hosts") + 1] == str(status["target"]["hosts"]), tiles
        self.picture("overview")

    def tenant(self):
        self.go("view=tenant&name=db")
        self.browser.until("document.querySelector('#chart-latency path.line.s0')?.getAttribute('d').includes('L')")
        self.browser.until("document.querySelector('#chart-stages path.area')?.getAttribute('d').includes('L')")
        assert "target p99 1 ms" in self.browser.js("document.querySelector('#chart-latency .legend').innerText.replaceAll('\\n', ' ')")
        rows = self.cells("promises")
        assert any(row[1] == "ssd0" and row[2] == "1 ms" and "missed" in row[4] for row in rows), rows
        assert "reads of tenant backup" in self.browser.js("document.querySelector('.causes').innerText")
        self.names("volumes", ["ledger", "orders"])
        self.picture("tenant")

    def device(self):
        self.go("view=device&name=ssd0")
        self.browser.until("document.querySelector('#chart-shares path.area')?.getAttribute('d').includes('L')")
        assert {row[0] for row in self.cells("users")} >= {"db", "backup"}
        assert "fifo" in self.browser.js("document.querySelector('.facts').innerText")
        self.picture("device")
        line = self.act("policy-ssd0", "Done")
        assert line == "flashyard device set ssd0 --policy fifo", line
        self.go("view=overview")
        line = self.act("fair-ssd0", "Done")
        assert line == "flashyard device set ssd0 --policy fair", line
        self.target.until("/devices/ssd0", lambda device: device["policy"] == "fair")

    def pool(self):
        self.go("view=pool&name=safe")
        assert {row[0] for row in self.cells("members")} == {"ram0", "ram1"}
        self.names("volumes", ["ledger"])
        line = self.act("snapshot-safe", "Done")
        assert line == "flashyard snapshot create ledger@now", line
        self.target.until("/snapshots", lambda all: [one["name"] for one in all] == ["ledger@now"])
        self.browser.until("document.querySelector('#table-snapshots').innerText.includes('ledger@now')")
        self.picture("pool")

    def events(self):
        self.go("view=events")
        events = self.target.ask("/events")["events"]
        self.browser.until(f"document.querySelectorAll('#table-events tbody tr').length >= {len(events)}")
        first = self.cells("events")[-1]
        assert first[1] == events[0]["kind"] and first[2] == events[0]["what"], (first, events[0])
        self.browser.js("(() => { const kind = document.querySelector('#kind'); kind.value = 'changed'; kind.onchange({ target: kind }); })()")
        self.browser.until("new URLSearchParams(location.search).get('kind') === 'changed'")
        kinds = {row[1] for row in self.cells("events")}
        assert kinds == {"changed"}, kinds
        self.picture("events")

    def address(self):
        """What is looked at survives a reload."""
        self.go("view=tenant&name=db&minutes=15&theme=dark&sort.volumes=-size&open=latency")
        self.browser.reload()
        self.browser.until("document.querySelector('#table-volumes') && document.querySelector('#chart-latency .data tbody tr')", 60)
        search = parse_qs(urlparse(self.browser.js("location.href")).query)
        assert search["open"] == ["latency"] and search["sort.volumes"] == ["-size"], search
        assert self.browser.js("document.querySelector('#minutes').value") == "15"
        assert self.browser.js("document.documentElement.dataset.theme") == "dark"
        self.names("volumes", ["orders", "ledger"])
        assert self.browser.js("document.querySelector('#table-volumes th[aria-sort]').innerText").startswith("Size")
        self.go("view=overview&filter.blame=")

    def keyboard(self):
        self.go("view=tenant&name=db")
        self.browser.until("document.querySelector('#chart-latency svg[tabindex]')")
        self.browser.js("document.activeElement.blur()")
        self.browser.js("window.reached = new Set()")
        count = self.browser.js(f"{FOCUSABLE}.length")
        for _ in range(count + 12):
            self.browser.press("Tab")
            self.browser.js("window.reached.add(document.activeElement)")
        missed = self.browser.js(f"{FOCUSABLE}.filter((one) => !window.reached.has(one)).map((one) => one.outerHTML.slice(0, 80))")
        assert not missed and count > 15, (count, missed)
        self.browser.js("document.querySelector('#chart-latency svg[tabindex]').focus()")
        self.browser.press("ArrowLeft")
        self.browser.until("document.querySelector('#chart-latency .legend').getAttribute('aria-live') === 'polite'")
        self.browser.until("/^\\d/.test(document.querySelector('#chart-latency .when').innerText)")
        self.browser.press("Escape")
        self.browser.until("document.querySelector('#chart-latency .when').innerText === 'now'")

    def narrow(self):
        """No screen is wider than a telephone, light or dark."""
        grounds = set()
        for scheme in ("light", "dark"):
            self.browser.scheme(scheme)
            self.browser.size(360, 740)
            for screen in SCREENS:
                self.go(screen)
                self.browser.until("document.querySelector('#content > div > *')")
                wide = self.browser.js("document.documentElement.scrollWidth")
                assert wide <= 360, f"{screen} is {wide} wide"
            grounds.add(self.browser.js("getComputedStyle(document.body).backgroundColor"))
            self.go("view=overview")
            self.picture(f"narrow-{scheme}")
        assert len(grounds) == 2, grounds
        self.browser.scheme("light")
        self.browser.size(1280, 900)

    def hidden(self):
        """Nothing is asked while nobody looks."""
        hide = "Object.defineProperty(document, 'hidden', {{ value: {}, configurable: true }}); document.dispatchEvent(new Event('visibilitychange'))"
        self.browser.js(hide.format("true"))
        time.sleep(2)
        self.browser.js("1")
        before = len(self.browser.asked)
        time.sleep(3)
        self.browser.js("1")
        assert len(self.browser.asked) == before, self.browser.asked[before:]
        self.browser.js(hide.format("false"))
        self.browser.until("performance.getEntriesByType('resource').length > 0")
        for _ in range(100):
            self.browser.js("1")
            if len(self.browser.asked) > before:
                return
            time.sleep(0.1)
        raise AssertionError("it does not go on")

    def role(self):
        """Who may only look is told so."""
        self.go("view=tenant&name=db")
        self.browser.js("document.querySelector('#forget').click()")
        self.browser.until("document.querySelector('.token')")
        self.enter(READ)
        self.browser.until("document.querySelector('#action-weight-db')")
        self.act("weight-db", "needs a token or certificate with the role `admin`")
        self.browser.until("document.querySelector('#action-weight-db').innerText.includes('needs the role admin')")
        assert self.target.ask("/tenants/db")["weight"] == 7
        self.browser.complaints = [one for one in self.browser.complaints if "403" not in one]

    def away(self):
        """A target that goes is told, and shown again when it comes back."""
        self.quiet()
        self.target.stop()
        self.browser.until("document.querySelector('.banner.away')?.innerText.includes('away')")
        self.picture("away")
        self.target.start()
        self.browser.until("!document.querySelector('.banner.away')", 60)
        # The browser tells of each request that found nobody.
        self.browser.complaints = [one for one in self.browser.complaints if "ERR_CONNECTION" not in one and "ERR_EMPTY" not in one]

    def demo(self):
        """The demonstration's link needs no token, and its button ends what it shows."""
        self.quiet()
        demo = Demo(self.target.binary)
        try:
            link = demo.link()
            page = link.split("#")[0]
            self.browser.open(link)
            self.browser.until("document.querySelector('#neighbour.bad')?.innerText.includes('makes db wait')", 60)
            assert "token" not in self.browser.js("location.href")
            assert self.act("fair-ssd0", "Done") == "flashyard device set ssd0 --policy fair"
            self.browser.until("[...document.querySelectorAll('#table-devices td')].some((cell) => cell.innerText === 'fair')")
            self.browser.open("about:blank")
        finally:
            status = demo.stop()
        assert status == 0, f"the demonstration ended with {status}"
        self.browser.asked = [url for url in self.browser.asked if not url.startswith(page)]

    def quiet(self):
        """Nothing was complained of, and nobody else asked."""
        assert not self.browser.complaints, self.browser.complaints
        elsewhere = [url for url in self.browser.asked if not url.startswith((self.target.page, "about:"))]
        assert not elsewhere, elsewhere


PARTS = ["token", "overview", "tenant", "device", "pool", "events", "address", "keyboard", "narrow", "hidden", "role", "away", "demo", "quiet"]


def main(binary, chromium, folder, pictures=""):
    target = Target(binary, folder)
    browser = None
    try:
        target.start()
        browser = Browser(chromium, folder)
        browser.size(1280, 900)
        look = Look(target, browser, pictures)
        for name in PARTS:
            try:
                getattr(look, name)()
                print(f"ok dashboard_{name}", flush=True)
            except Exception as why:
                print(f"FAILED dashboard_{name}: {' '.join(str(why).split())[:1500] or type(why).__name__}", flush=True)
    finally:
        if browser:
            browser.close()
        target.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
