"""The dashboard at a target with many volumes and tenants: what a screen asks for, and how much of it is drawn.

    many.py BINARY CHROMIUM FOLDER VOLUMES TENANTS

Prints "ok NAME" or "FAILED NAME: why" for each screen, and behind "|" how long it took, which nothing depends on.
"""

import sys

from browser import Browser
from target import ADMIN, Target

POOLS = 10
# What a table draws at most, and of how many volumes of a pool is asked one by one.
ROWS_MOST, ASKED_MOST = 200, 32

# Changes the page, and gives the milliseconds until something holds of it; without a change those since it was opened.
TIMED = """new Promise((done) => {{
    const began = `{change}` === "" ? 0 : performance.now();
    {change};
    const look = () => {{
        let holds = false;
        try {{ holds = {holds}; }} catch {{ /* It is not there yet. */ }}
        holds ? done(performance.now() - began) : performance.now() - began > 60_000 ? done(null) : requestAnimationFrame(look);
    }};
    look();
}})"""


def config(volumes, tenants):
    text = []
    for pool in range(POOLS):
        text.append(f'[[device]]\nname = "m{pool}"\nkind = "memory"\nsize = "{volumes // POOLS + 100}MiB"\n'
                    f'[[pool]]\nname = "p{pool}"\ndevices = ["m{pool}"]\n')
    for tenant in range(tenants):
        text.append(f'[[tenant]]\nname = "t{tenant}"\nhosts = ["nqn.2014-08.org.example:h{tenant}"]\n')
    for volume in range(volumes):
        text.append(f'[[volume]]\nname = "v{volume}"\npool = "p{volume % POOLS}"\nsize = "1MiB"\ntenant = "t{volume % tenants}"\n')
    return "".join(text)


class Look:
    def __init__(self, browser, page, volumes, tenants):
        self.page = page
        self.browser, self.volumes, self.tenants = browser, volumes, tenants

    def timed(self, change, holds):
        took = self.browser.js(TIMED.format(change=change, holds=holds))
        assert took is not None, f"not so after a minute: {holds}"
        return took

    def screen(self, search, table, rows):
        """A screen that is opened anew: how long until its first row, what it asked for, and how many rows there are."""
        asked, received = len(self.browser.asked), self.browser.received
        self.browser.open(f"{self.page}?{search}")
        shown = f"document.querySelectorAll('#table-{table} tbody tr')"
        took = self.timed("", f"{shown}.length > 0 && {shown}[0].cells.length > 1")
        self.browser.until(f"{shown}.length === {min(rows, ROWS_MOST)}")
        questions = [url for url in self.browser.asked[asked:] if "/api/v1/" in url]
        assert questions, "it asked for nothing"
        one_by_one = [url for url in questions if "/volumes/" in url]
        assert len(one_by_one) <= ASKED_MOST, one_by_one
        return f"{search}: {took:.0f} ms until its first row of {rows}, {len(questions)} requests, {(self.browser.received - received) / 1e6:.1f} MB"

    def filtered(self, table, text, rows):
        """A key in the filter: how long until the rows are those that fit."""
        field = f"document.querySelector('#table-{table} .filter input')"
        change = f"{field}.value = '{text}'; {field}.dispatchEvent(new Event('input', {{ bubbles: true }}))"
        note = f"document.querySelector('#table-{table} .filter .note').innerText.includes('{rows} of ')"
        drawn = f"document.querySelectorAll('#table-{table} tbody tr').length === {min(rows, ROWS_MOST)}"
        took = self.timed(change, f"{note} && {drawn}")
        return f"filter `{text}` in {table}: {took:.0f} ms until its rows, {rows} found"

    # The parts, in order.

    def tenant_list(self):
        yield self.screen("view=tenant", "tenants", self.tenants)
        yield self.filtered("tenants", "t11", sum("t11" in f"t{one}" for one in range(self.tenants)))
        yield self.filtered("tenants", "", self.tenants)

    def tenant(self):
        yield self.screen("view=tenant&name=t7", "volumes", len(range(7, self.volumes, self.tenants)))

    def pool_list(self):
        yield self.screen("view=pool", "pools", POOLS)

    def pool(self):
        here = [f"v{one}" for one in range(3, self.volumes, POOLS)]
        yield self.screen("view=pool&name=p3", "volumes", len(here))
        fit = sum("v11" in one for one in here)
        yield self.filtered("volumes", "v11", fit)

    def device_list(self):
        yield self.screen("view=device", "devices", POOLS)

    def overview(self):
        yield self.screen("view=overview", "tenants", self.tenants)

    def quiet(self):
        assert not self.browser.complaints, self.browser.complaints
        yield from ()


PARTS = ["tenant_list", "tenant", "pool_list", "pool", "device_list", "overview", "quiet"]


def main(binary, chromium, folder, volumes, tenants):
    volumes, tenants = int(volumes), int(tenants)
    target = Target(binary, folder, config(volumes, tenants))
    browser = None
    try:
        target.start()
        browser = Browser(chromium, folder)
        browser.size(1280, 900)
        browser.open(f"{target.page}#token={ADMIN}")
        browser.until("document.querySelectorAll('#table-tenants tbody tr').length > 0", seconds=60)
        look = Look(browser, target.page, volumes, tenants)
        for name in PARTS:
            try:
                said = list(getattr(look, name)())
                print(f"ok dashboard_many_{name}", *[f"    | {line}" for line in said], sep="\n", flush=True)
            except Exception as why:
                print(f"FAILED dashboard_many_{name}: {' '.join(str(why).split())[:1500] or type(why).__name__}", flush=True)
    finally:
        if browser:
            browser.close()
        target.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
