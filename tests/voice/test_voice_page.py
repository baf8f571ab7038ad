"""The page in a real browser whose microphone is a recording."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import recordings
import sounds
from voice_app import VoiceApp

pytestmark = pytest.mark.models
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
WAIT_MS = 40_000


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VoiceApp]:
    if CHROMIUM is None:
        pytest.skip("no chromium is installed")
    with VoiceApp(tmp_path_factory.mktemp("page") / "state") as running:
        yield running


@pytest.fixture(scope="module")
def microphone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Chromium plays the file again and again: one question, then a long silence."""
    found = [r for r in recordings.find() if r.text.startswith("Hello")]
    if not found:
        pytest.skip("no recordings; fetch them: make voice")
    question = np.concatenate([sounds.silence(0.5), found[0].samples(), sounds.silence(20.0)])
    path = tmp_path_factory.mktemp("microphone") / "question.wav"
    path.write_bytes(sounds.wav(sounds.s16(question), 16_000))
    return path


@pytest.fixture
def page(app: VoiceApp, microphone: Path) -> Iterator[sync_api.Page]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                "--no-sandbox",
                "--use-fake-device-for-media-stream",
                "--use-fake-ui-for-media-stream",
                f"--use-file-for-fake-audio-capture={microphone}",
                "--autoplay-policy=no-user-gesture-required",
            ],
        )
        try:
            made = browser.new_page(viewport={"width": 900, "height": 1200})
            made.problems = []  # type: ignore[attr-defined]  # read by the tests
            made.on("pageerror", lambda error: made.problems.append(str(error)))  # type: ignore[attr-defined]
            made.on(
                "console",
                lambda m: made.problems.append(m.text) if m.type == "error" else None,  # type: ignore[attr-defined]
            )
            made.goto(f"{app.url}/voice/index")
            yield made
        finally:
            browser.close()


def test_a_person_presses_a_button_talks_and_listens(page: sync_api.Page, tmp_path: Path) -> None:
    button = page.get_by_role("button", name="Start talking")
    # By the keyboard alone: it is the first thing that Tab reaches.
    page.keyboard.press("Tab")
    sync_api.expect(button).to_be_focused()
    page.keyboard.press("Enter")
    sync_api.expect(page.get_by_role("status")).not_to_have_text("Not connected", timeout=WAIT_MS)
    sync_api.expect(page.locator("li.user")).to_contain_text("Hello", timeout=WAIT_MS)
    sync_api.expect(page.locator("li.answer span")).not_to_be_empty(timeout=WAIT_MS)
    sync_api.expect(page.locator("#turn-summary")).to_contain_text("first audible", timeout=WAIT_MS)
    assert page.locator("#turn tbody tr").count() == 7
    assert page.locator("#waterfall rect").count() == 7
    for cell in page.locator("#lanes tbody td:nth-child(3)").all_text_contents():
        assert cell.endswith(" ms")
    page.screenshot(path=str(tmp_path / "talk.png"), full_page=True)
    page.get_by_role("button", name="Stop talking").press("Enter")
    sync_api.expect(page.get_by_role("status")).to_have_text("Not connected")
    assert page.problems == []  # type: ignore[attr-defined]


def test_every_control_has_a_name_and_what_changes_is_announced(page: sync_api.Page) -> None:
    for button in page.get_by_role("button").all():
        assert button.inner_text().strip()
    assert page.get_by_role("status").count() == 1
    assert page.get_by_role("alert").count() == 1
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("table caption").count() == page.locator("table").count()
    headings = page.get_by_role("heading")
    assert [h.evaluate("e => e.tagName") for h in headings.all()] == ["H1", "H2", "H2", "H2"]
    assert page.problems == []  # type: ignore[attr-defined]
