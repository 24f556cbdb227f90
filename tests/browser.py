"""A headless browser for tests of pages, where there is one."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

Json: TypeAlias = Any

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_DRIVER = "chromedriver"
_DEADLINE_S = 30
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # as root there is none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--force-device-scale-factor=1",
)

_CONTRAST = """
const rgb = (text) => (text.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
const light = (color) => {
  const [r, g, b] = color.slice(0, 3).map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  for (let one = element; one; one = one.parentElement) {
    const color = rgb(getComputedStyle(one).backgroundColor);
    if (color.length < 4 || color[3] === 1) return color;
    if (color[3] > 0) throw new Error("a background is half transparent");
  }
  return [255, 255, 255];
};
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let count = 0;
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const element = node.parentElement;
  if (!node.data.trim() || ["SCRIPT", "STYLE"].includes(element.tagName)) continue;
  if (!element.checkVisibility()) continue;
  const [x, y] = [light(rgb(getComputedStyle(element).color)), light(behind(element))];
  const ratio = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
  count += 1;
  if (ratio < 4.5) found.push(`${node.data.trim().slice(0, 40)}: ${ratio.toFixed(2)}`);
}
return [count, [...new Set(found)]];
"""


class Browser:
    """One tab.

    Args:
        driver: Of Selenium.
        folder: Where pages lie that it opens.

    """

    def __init__(self, driver: Any, folder: Path) -> None:
        """Begin with an empty tab."""
        self._driver, self._folder = driver, folder
        self._pages = 0

    def open(self, text: str, width: int = 1280, scheme: str = "light") -> None:
        """Show a page, in a window so wide, in the light or the dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", features=features)
        self.resize(width)
        self._pages += 1
        page = self._folder / f"page{self._pages}.html"
        page.write_text(text, encoding="utf-8")
        self._driver.get(page.as_uri())

    def resize(self, width: int, height: int = 900) -> None:
        """Make the window so wide."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def paint(self, scheme: str) -> None:
        """Switch to the light or the dark while the page is shown."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", features=features)

    def _call(self, command: str, **arguments: object) -> None:
        self._driver.execute_cdp_cmd(command, arguments)

    def run(self, script: str, *arguments: object) -> Json:
        """Return what a script returns."""
        return self._driver.execute_script(script, *arguments)

    def drawn(self) -> None:
        """Wait until every chart that can be seen is drawn, and a frame more."""
        script = """
        const done = arguments[arguments.length - 1];
        const look = () => [...document.querySelectorAll("figure .plot")].every(
          (plot) => !plot.checkVisibility() || plot.querySelector("canvas"));
        const wait = () => look() ? requestAnimationFrame(() => setTimeout(done, 0))
          : requestAnimationFrame(wait);
        wait();
        """
        self._driver.execute_async_script(script)

    def press(self, *keys: str) -> None:
        """Type keys, one after the other, where the focus is."""
        from selenium.webdriver import ActionChains

        ActionChains(self._driver).send_keys(*keys).perform()

    def click(self, selector: str) -> None:
        """Click on the first element that a selector finds."""
        self.run("document.querySelector(arguments[0]).click()", selector)

    def type(self, selector: str, text: str) -> None:
        """Type into a field, as people do."""
        from selenium.webdriver.common.by import By

        self._driver.find_element(By.CSS_SELECTOR, selector).send_keys(text)

    def wheel(self, selector: str, by: int) -> None:
        """Turn the wheel above an element."""
        from selenium.webdriver import ActionChains
        from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
        from selenium.webdriver.common.by import By

        element = self._driver.find_element(By.CSS_SELECTOR, selector)
        origin = ScrollOrigin.from_element(element)
        ActionChains(self._driver).scroll_from_origin(origin, 0, by).perform()

    def errors(self) -> list[str]:
        """Return what the browser complained of since it was asked last."""
        return [entry["message"] for entry in self._driver.get_log("browser")]

    def loaded(self) -> list[str]:
        """Return the addresses that the page has loaded anything from."""
        script = "return performance.getEntriesByType('resource').map((e) => e.name)"
        found: list[str] = self.run(script)
        return found

    def too_wide(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        script = "return document.scrollingElement.scrollWidth - innerWidth"
        return int(self.run(script))

    def cut_off(self) -> tuple[int, list[str]]:
        """Return how many boxes are cut off, and which of all say it wrongly."""
        script = """
        const boxes = [...document.querySelectorAll(".scroll")]
          .filter((e) => e.checkVisibility());
        const isCut = (e) => e.scrollWidth > e.clientWidth;
        const said = (e) => getComputedStyle(e, "::before").content;
        const wrong = boxes.filter((e) => isCut(e) !== said(e).startsWith('"scroll'));
        return [boxes.filter(isCut).length, wrong.map((e) => e.outerHTML.slice(0, 80))];
        """
        count, wrong = self.run(script)
        return count, wrong

    def contrasts(self) -> tuple[int, list[str]]:
        """Return how many texts are seen, and those with a contrast below 4.5 to 1."""
        count, low = self.run(_CONTRAST)
        return count, low


@contextmanager
def browser(folder: Path) -> Generator[Browser]:
    """Start a browser, and end it; a test skips where there is none.

    Args:
        folder: Where pages may be written.

    """
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    binary = next(filter(None, map(shutil.which, _BROWSERS)), None)
    driver = shutil.which(_DRIVER)
    if binary is None or driver is None:
        pytest.skip("needs chromium and chromedriver: apt install chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for option in (*_OPTIONS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # The path of the driver is given, so that nobody looks for one in the network.
    found = webdriver.Chrome(options=options, service=Service(driver))
    try:
        found.set_page_load_timeout(_DEADLINE_S)
        found.set_script_timeout(_DEADLINE_S)
        yield Browser(found, folder)
    finally:
        found.quit()
