"""Pictures for the guide: the run that docs/guide/noisy-neighbour.md has, longer, as the dashboard shows it.

    pictures.py BINARY CHROMIUM FOLDER PICTURES

`pngquant --ext .png --force PICTURES/*.png` makes them a third as large.
"""

import subprocess
import sys
import time

from browser import Browser
from target import ADMIN, Target

CONFIG = """
[[device]]
name = "ssd0"
kind = "flash"
profile = "dct983-a0"
condition = "clean"
size = "1GiB"
dilation = 100
policy = "fifo"

[[pool]]
name = "fast"
devices = ["ssd0"]

[[tenant]]
name = "db"
hosts = ["*"]
class = "latency"
latency_target = "30ms"

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
"""

LOADS = {
    "db": ["--rw", "randread", "--bs", "4KiB", "--qd", "1"],
    "backup": ["--rw", "randwrite", "--bs", "128KiB", "--qd", "16"],
}

# Seconds in which the charts fill.
FILL = 45


def go(browser, search):
    browser.js(f"(() => {{ history.pushState(null, '', '?{search}'); dispatchEvent(new PopStateEvent('popstate')); }})()")
    browser.until(f"document.querySelector('#content h2, #content h1') && location.search === '?{search}'")
    # What a screen shows is asked for each second.
    time.sleep(3)


def take(target, browser, folder):
    browser.open(target.page)
    browser.until("document.querySelector('.token')")
    browser.js(f"document.querySelector('.token input').value = '{ADMIN}'")
    browser.js("document.querySelector('.token button').click()")
    browser.until("document.querySelector('#table-tenants')")
    target.load()
    browser.until("document.querySelector('#neighbour.bad .headline')?.innerText.includes('backup')", 60)
    time.sleep(FILL)
    for name, search in [("overview", "view=overview"), ("tenant", "view=tenant&name=db")]:
        go(browser, search)
        browser.picture(f"{folder}/{name}.png")
    go(browser, "view=overview")
    browser.js("document.querySelector('#action-fair-ssd0 summary').click()")
    browser.js("document.querySelector('#action-fair-ssd0 .run').click()")
    target.until("/devices/ssd0", lambda device: device["policy"] == "fair")
    limit = ["tenant", "set", "backup", "--limit", "write_bandwidth=1MB/s", "--state", "state"]
    subprocess.run([target.binary, *limit], cwd=target.folder, check=True, stdout=subprocess.DEVNULL)
    time.sleep(FILL)
    go(browser, "view=device&name=ssd0")
    browser.picture(f"{folder}/device.png")


def main(binary, chromium, folder, pictures):
    target, browser = Target(binary, folder, CONFIG, LOADS), None
    try:
        target.start()
        browser = Browser(chromium, folder)
        browser.size(1180, 920)
        browser.scheme("light")
        take(target, browser, pictures)
    finally:
        if browser:
            browser.close()
        target.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
