"""What does the dashboard cost its reader: bytes, waits, and frames with a day of history?

Three parts, each in Chromium from the system's packages, on the machine of the service:

* *bytes*: what one visit transfers, compressed, and how soon the page is painted and drawn. The
  aim is 200 kB for page, styles, script and libraries together;
* *a day*: 86,400 batches lie in the history, one a second, and all are drawn, while 400 samples a
  second are learned. The time between two frames is read for some seconds, the page left alone and
  then scrolled up and down. The aim is 60 frames a second. Beside it the share of a core that the
  page's own thread takes;
* *the demo*: `gmr demo` begins, and a browser asks for its page until there is one. Seconds
  until the page answers, until samples of a class are on it, and until the first boundary is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks import _history
from clients.commands.bench import Floor, Measurement, Say, Table
from clients.data.datasets import load_dataset
from clients.evaluation.local import LocalService, free_port
from clients.http.client import GMRClient
from clients.http.errors import InputError
from service.supervisor.embedded import address_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
AIM_KB: Final = 200
AIM_FRAMES: Final = 60
DAY_S: Final = 24 * 60 * 60
PATIENCE_MS: Final = 120_000
MODEL: Final = "default"
OF_SCRIPT: Final = {"document": "page", "stylesheet": "styles", "script": "script"}
"""What belongs to the page itself, by the browser's word for it."""

FRAMES: Final = """seconds => new Promise((done) => {
    const taken = [];
    let last = performance.now();
    const end = last + 1000 * seconds;
    const next = (now) => {
        taken.push(now - last);
        last = now;
        now < end ? requestAnimationFrame(next) : done(taken.slice(1));
    };
    requestAnimationFrame(next);
})"""

SCROLLED: Final = """seconds => {
    let at = 0, step = 24;
    const end = performance.now() + 1000 * seconds;
    const move = (now) => {
        const most = document.documentElement.scrollHeight - innerHeight;
        if (at + step < 0 || at + step > most) step = -step;
        scrollTo(0, (at += step));
        if (now < end) requestAnimationFrame(move);
    };
    requestAnimationFrame(move);
}"""

PAINTED: Final = (
    "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
)


def measure(quick: bool, say: Say) -> Measurement:
    """All three parts. Quick: few batches, a second of frames, no demo."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise InputError(
            "No Chromium is on the PATH, and the page is measured in one. On Debian: make system."
        )
    tables: list[Table] = []
    values: dict[str, Any] = {}
    with _chromium(program) as browser:
        batches, seconds = (2000, 1.0) if quick else (DAY_S, 10.0)
        with LocalService(settings={"preset": "flat", "history_length": DAY_S}) as service:
            say(f"{batches:,} batches of history")
            first_s = int(time.time()) - batches - 1
            _history.write(address_of(service.data_dir), MODEL, batches, first_s)
            with _learning(service):
                values["visit"] = _visit(browser, service.url)
                say(f"frames, {seconds:g} s left alone and {seconds:g} s scrolled")
                values["frames"] = _frames(browser, service.url, seconds)
        if not quick:
            say("the demo")
            values["demo"] = _demo(browser)
    visit, frames = values["visit"], values["frames"]
    tables.append(
        Table(
            "One visit, kB as transferred",
            (*visit["kb"], "page, styles and script", "first paint, s", "charts drawn, s"),
            (
                (
                    *(f"{size:.1f}" for size in visit["kb"].values()),
                    f"{visit['own_kb']:.1f}",
                    f"{visit['painted_s']:.2f}",
                    f"{visit['drawn_s']:.2f}",
                ),
            ),
        )
    )
    tables.append(
        Table(
            f"Frames with {batches:,} batches of history",
            ("the page is", "frames a second", "p50, ms", "p99, ms", "slowest, ms", "of a core"),
            tuple(
                (
                    name,
                    f"{one['per_second']:.1f}",
                    f"{one['p50_ms']:.1f}",
                    f"{one['p99_ms']:.1f}",
                    f"{one['slowest_ms']:.1f}",
                    f"{one['core']:.0%}",
                )
                for name, one in frames.items()
            ),
        )
    )
    if "demo" in values:
        tables.append(
            Table(
                "Seconds after `gmr demo` begins",
                tuple(values["demo"]),
                (tuple(f"{seconds:.1f}" for seconds in values["demo"].values()),),
            )
        )
    return Measurement(
        tuple(tables),
        {"batches": batches, "seconds": seconds, **values},
        (
            Floor("kB below the aim of page, styles, script", AIM_KB - visit["own_kb"], 0, "kB"),
            Floor(
                "frames a second",
                min(one["per_second"] for one in frames.values()),
                AIM_FRAMES - 0.5,  # a second has not always 60 beginnings
                "a second",
            ),
        ),
    )


@contextlib.contextmanager
def _chromium(program: str) -> Iterator[Browser]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise InputError("The page is measured by playwright: pip install -e '.[dev]'.") from error
    with sync_playwright() as playwright:
        # Containers run as root, and have no GPU.
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        yield browser
        browser.close()


@contextlib.contextmanager
def _learning(service: LocalService) -> Iterator[None]:
    """Digits come all the while: four batches of 100 a second."""
    digits, stop = load_dataset("digits"), threading.Event()
    generator = np.random.default_rng(0)

    def send(client: GMRClient) -> None:
        rows = generator.integers(0, len(digits.train_y), 100)
        client.ingest(digits.train_x[rows], digits.train_y[rows])

    def feed() -> None:
        with GMRClient(service.url) as client:
            while not stop.wait(0.25):
                send(client)

    with GMRClient(service.url) as client:
        for _ in range(12):
            send(client)
        client.wait_until_learned()
    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        yield
    finally:
        stop.set()
        feeder.join()


def _visit(browser: Browser, url: str) -> dict[str, Any]:
    """Bytes by kind, as they came over the wire, and how long a first visit waits."""
    with _page(browser) as page:
        wire = page.context.new_cdp_session(page)
        kinds: dict[str, str] = {}
        sizes: dict[str, float] = {}

        def answered(message: dict[str, Any]) -> None:
            kinds[message["requestId"]] = OF_SCRIPT.get(message["type"].lower(), "answers")

        def finished(message: dict[str, Any]) -> None:
            kind = kinds.get(message["requestId"], "answers")
            sizes[kind] = sizes.get(kind, 0.0) + message["encodedDataLength"] / 1000

        wire.on("Network.responseReceived", answered)
        wire.on("Network.loadingFinished", finished)
        wire.send("Network.enable")
        begun = time.perf_counter()
        page.goto(url)
        page.wait_for_selector("#chart-statistic canvas")
        drawn = time.perf_counter() - begun
        page.wait_for_timeout(1000)
        painted = page.evaluate(PAINTED)
    kb = {kind: sizes.get(kind, 0.0) for kind in (*OF_SCRIPT.values(), "answers")}
    own = sum(size for kind, size in kb.items() if kind != "answers")
    return {"kb": kb, "own_kb": own, "painted_s": painted / 1000, "drawn_s": drawn}


def _frames(browser: Browser, url: str, seconds: float) -> dict[str, dict[str, float]]:
    """Time between two frames, milliseconds, and the share of a core of the page's own thread."""
    found = {}
    with _page(browser) as page:
        page.goto(url)
        page.wait_for_selector("#chart-statistic canvas")
        page.wait_for_timeout(2000)
        wire = page.context.new_cdp_session(page)
        wire.send("Performance.enable")
        for name in ("left alone", "scrolled"):
            before = _busy(wire.send("Performance.getMetrics"))
            if name == "scrolled":
                page.evaluate(SCROLLED, seconds)
            taken = np.array(page.evaluate(FRAMES, seconds))
            busy = _busy(wire.send("Performance.getMetrics")) - before
            found[name] = {
                "per_second": 1000 * len(taken) / float(taken.sum()),
                "p50_ms": float(np.quantile(taken, 0.5)),
                "p99_ms": float(np.quantile(taken, 0.99)),
                "slowest_ms": float(taken.max()),
                "core": busy / seconds,
            }
    return found


def _busy(answer: dict[str, Any]) -> float:
    """Seconds that the page's thread has worked."""
    found = {one["name"]: one["value"] for one in answer["metrics"]}
    return float(found["TaskDuration"])


def _demo(browser: Browser) -> dict[str, float]:
    """Seconds from the command until the page answers, shows samples, and shows a boundary."""
    port, folder = free_port(), Path(tempfile.mkdtemp(prefix="gmr-page-"))
    command = (sys.executable, "-m", "clients.commands.cli", "demo")
    options = ("--port", str(port), "--data-dir", str(folder / "demo"), "--out", str(folder))
    begun = time.perf_counter()
    process = subprocess.Popen(
        (*command, *options), stdout=subprocess.DEVNULL, start_new_session=True
    )

    def since() -> float:
        return time.perf_counter() - begun

    try:
        with _page(browser) as page:
            _until(lambda: page.goto(f"http://127.0.0.1:{port}/"), process)
            found = {"page": since()}
            page.wait_for_selector("#sub-tasks canvas, #sub-tasks img")
            found["first pictures"] = since()
            page.wait_for_selector("#boundaries li")
            found["first boundary"] = since()
            return found
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _until(attempt: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    """Again and again, until it works."""
    from playwright.sync_api import Error

    while True:
        try:
            attempt()
            return
        except Error:
            if process.poll() is not None:
                raise
            time.sleep(0.05)


@contextlib.contextmanager
def _page(browser: Browser) -> Iterator[Page]:
    """A page without a past."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    try:
        yield context.new_page()
    finally:
        context.close()
