"""The pages, in a browser: Debian's `chromium` without a window, spoken to over a pipe in its own protocol."""

import itertools
import json
import os
import re
import select
import shutil
import subprocess
import time

import numpy as np
import pytest

from priorax import train
from priorax.analysis.exploration import EpisodeFrame, Exploration, moments_to_keep, record_deep_sea
from priorax.report.viewer import write_playground, write_viewer

SIZE, SEED, EPISODES = 5, 3, 60
CHANGES = {"num_members": 4, "capacity": 1000, "batch_size": 64}
KEYS = {" ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "Delete": 46, "PageDown": 34}


class Browser:
    """A page in a browser, and what it complained about."""

    def __init__(self, program, profile):
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += ["--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        pipes = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'  # it reads commands from 3 and answers on 4
        command = ["sh", "-c", pipes, "sh", program, *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.numbers, self.rest, self.events, self.session = itertools.count(1), b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _hear(self, deadline):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.process.stdout], [], [], max(deadline - time.monotonic(), 0))
            part = os.read(self.process.stdout.fileno(), 1 << 20) if ready else b""
            assert part, "the browser does not answer"
            self.rest += part
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        number, deadline = next(self.numbers), time.monotonic() + 60
        session = {"sessionId": self.session} if self.session else {}
        self.process.stdin.write(json.dumps({"id": number, "method": method, "params": params, **session}).encode())
        self.process.stdin.write(b"\0")
        self.process.stdin.flush()
        while (heard := self._hear(deadline)).get("id") != number:
            self.events.append(heard)
        assert "error" not in heard, heard
        return heard["result"]

    def value(self, expression):
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def open(self, path, width=1200, height=900, scheme="light"):
        self.events = []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=path.as_uri())
        deadline = time.monotonic() + 60
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._hear(deadline))
        self.settle()

    def settle(self):
        """Until it has been drawn."""
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))).then(() => 1)")

    def complaints(self):
        bad = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event for event in self.events if event["method"] in bad]

    def asked_for(self):
        sent = [event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [params["request"]["url"] for params in sent]

    def key(self, name):
        text = {"text": " "} if name == " " else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode=KEYS[name], **text)

    def mouse(self, kind, x, y, clicks=1):
        held = {"button": "left", "buttons": 1} if kind != "mouseReleased" else {"button": "left"}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, clickCount=clicks, **held)

    def click(self, x, y, clicks=1):
        for count in range(1, clicks + 1):
            self.mouse("mousePressed", x, y, count)
            self.mouse("mouseReleased", x, y, count)

    def until(self, expression, seconds=10):
        """Wait for something to become true."""
        deadline = time.monotonic() + seconds
        while not self.value(expression):
            assert time.monotonic() < deadline, f"{expression} stays false"
            time.sleep(0.05)

    def close(self):
        self.process.stdin.close()  # at the end of its commands it leaves
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
    program = next(filter(None, found), None)
    if program is None:
        missing = "no browser to test pages in; install one: apt-get install -y --no-install-recommends chromium"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    opened = Browser(program, tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def recordings():
    few = {"size": SIZE, "seed": SEED, "episodes": EPISODES, "frames": 20}
    return [
        record_deep_sea("bsp", **few, members=3, changes=CHANGES),
        record_deep_sea("eps_greedy", **few, changes={"capacity": 1000, "batch_size": 64}),
    ]


@pytest.fixture(scope="module")
def viewer(recordings, tmp_path_factory):
    return write_viewer(recordings, tmp_path_factory.mktemp("pages") / "viewer.html")


@pytest.fixture(scope="module")
def playground(tmp_path_factory):
    return write_playground(tmp_path_factory.mktemp("pages") / "playground.html")


def invented(size, members, frames):
    """A recording of that shape, of nothing that happened."""
    random, cells = np.random.default_rng(0), size * (size + 1) // 2
    moments = []
    for i in range(frames):
        values = random.standard_normal((members, cells))
        path, visits = np.arange(size), random.integers(0, 900, cells)
        moments.append(EpisodeFrame(i + 1, 0, path, False, visits, values[0], values, values.mean(0), values.std(0)))
    none = np.zeros(2000, bool)
    return Exploration("bsp", "tuned", size, 0, members, None, values, none, np.full(2000, cells), moments)


@pytest.mark.slow
def test_a_recording_is_the_run_that_train_does(recordings):
    run = train("bsp", "deep_sea", size=SIZE, seed=SEED, episodes=EPISODES, changes=CHANGES)
    np.testing.assert_array_equal(recordings[0].found, [row.total_return > 0.5 for row in run.history])
    assert recordings[0].found.any()


def test_a_moment_has_what_was_before_and_where_it_went(recordings):
    for recording in recordings:
        episodes = [moment.episode for moment in recording.moments]
        assert episodes == sorted(set(episodes))
        assert (episodes[0], episodes[-1], len(episodes) <= 20) == (1, EPISODES, True)
        for moment in recording.moments:
            assert moment.visits.sum() == (moment.episode - 1) * SIZE
            assert moment.path[0] == 0
            assert np.all(np.isin(np.diff(moment.path), (-1, 0, 1)))
            assert 0 <= moment.member < recording.num_members
            assert moment.found == recording.found[moment.episode - 1]
            if moment.member < len(moment.values):
                np.testing.assert_array_equal(moment.followed, moment.values[moment.member])
        assert np.all(np.diff(recording.seen) >= 0)
    bsp, greedy = recordings
    assert bsp.moments[0].values.shape == (3, 15)
    assert bsp.prior.shape == (4, 15)
    assert int(np.flatnonzero(bsp.found)[0]) + 1 in [moment.episode for moment in bsp.moments]
    assert greedy.prior is None
    assert not np.any([moment.spread for moment in greedy.moments])


def test_moments_are_denser_early():
    kept = sorted(moments_to_keep(1000, 60))
    assert (kept[0], kept[-1], len(kept) < 60) == (1, 1000, True)
    assert np.mean(np.diff(kept)[:10]) < 0.3 * np.mean(np.diff(kept)[-10:])
    assert moments_to_keep(2, 60) == {1, 2}
    assert moments_to_keep(9, 3) == {1, 9}


def test_what_cannot_be_shown_is_refused(recordings, tmp_path):
    with pytest.raises(ValueError, match=r"agent='psrl' does not follow a member.*record one of bsp"):
        record_deep_sea("psrl", size=3, episodes=2)
    with pytest.raises(ValueError, match="frames=1 must be at least 3"):
        record_deep_sea(frames=1)
    with pytest.raises(ValueError, match="recordings has 3 runs"):
        write_viewer([*recordings, recordings[0]], tmp_path / "page.html")
    with pytest.raises(ValueError, match=r"recordings have sizes \[3, 5\]"):
        write_viewer([recordings[0], invented(3, 2, 2)], tmp_path / "page.html")


def test_pages_are_small_and_stand_alone(viewer, playground, tmp_path):
    large = write_viewer([invented(20, 20, 60)] * 2, tmp_path / "large.html")
    assert large.stat().st_size < 5_000_000
    assert playground.stat().st_size < 100_000
    for page in (large, viewer, playground):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"https?://|\bsrc=|\bhref=|@import|url\(", text)
        assert "{{" not in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_pages_load_in_silence_and_fit(browser, viewer, playground, recordings, tmp_path, scheme, width):
    alone = write_viewer(recordings[1:], tmp_path / "alone.html")
    for page in (viewer, alone, playground):
        browser.open(page, width=width, scheme=scheme)
        assert browser.complaints() == []
        assert all(url.startswith(("file:", "data:")) for url in browser.asked_for())
        assert browser.value("document.documentElement.scrollWidth") <= width
        named = browser.value("[...document.querySelectorAll('canvas')].every(c => c.ariaLabel || c.ariaHidden)")
        assert named


def test_the_page_has_the_recordings_numbers(browser, viewer, recordings):
    browser.open(viewer)
    for i, recording in enumerate(recordings):
        for k in (0, len(recording.moments) // 2, -1):
            moment = recording.moments[k]
            shown = browser.value(f"viewer.agents[{i}].moments.at({k})")
            assert (shown["episode"], shown["member"]) == (moment.episode, moment.member)
            for name in ("values", "followed", "mean", "spread"):
                real = getattr(moment, name)
                np.testing.assert_allclose(shown[name], real, atol=np.ptp(real) / 500 + 1e-6)


def test_it_plays_and_obeys_keys_and_slider(browser, viewer):
    browser.open(viewer)
    now, last = "viewer.now()", browser.value("viewer.episodes.length") - 1
    caption = "document.querySelector('.caption').textContent"
    picture = "document.querySelector('#visits canvas').toDataURL()"
    first, drawn = browser.value(caption), browser.value(picture)
    assert first.startswith("Episode 1: member")
    browser.value("document.getElementById('speed').value = '250'")
    browser.key(" ")
    browser.until("viewer.now() >= 2")
    browser.key(" ")
    stopped = browser.value(now)
    assert not browser.value("viewer.playing()")
    assert browser.value(caption) != first
    assert browser.value(picture) != drawn
    for key, expected in (("ArrowLeft", stopped - 1), ("ArrowRight", stopped), ("End", last), ("Home", 0)):
        browser.key(key)
        assert browser.value(now) == expected
    browser.value("const s = document.getElementById('moment'); s.value = 5; s.dispatchEvent(new Event('input'))")
    assert browser.value(now) == 5
    assert "of 60" in browser.value("document.getElementById('moment').getAttribute('aria-valuetext')")
    browser.value("document.getElementById('moment').focus()")
    browser.key("ArrowRight")
    assert browser.value(now) == 6
    browser.value(f"viewer.show({last - 1}); document.getElementById('play').click()")
    browser.until(f"viewer.now() === {last} && !viewer.playing()")
    assert browser.complaints() == []


def test_every_moment_has_its_caption(browser, viewer, recordings):
    browser.open(viewer)
    each = "(_, i) => { viewer.show(i); return document.querySelector('.caption').textContent; }"
    words = browser.value(f"viewer.episodes.map({each})")
    assert len(set(words)) > len(recordings[0].moments) - 1
    assert any("finds the treasure, for the first time" in text for text in words)
    assert not any(re.search("undefined|NaN|null", text) for text in words)


def numbers(browser, expression):
    return np.asarray(browser.value(f"Array.from({expression})"))


def test_its_posterior_is_the_closed_form(browser, playground):
    browser.open(playground)
    browser.value("playground.state.scale = 1.7; playground.state.noise = 0.3; playground.state.members = 7")
    browser.value("playground.update()")
    shown = browser.value("playground.shown()")
    points = browser.value("playground.state.points")
    x, y = np.array([p["x"] for p in points]), np.array([p["y"] for p in points])
    phi = np.array([numbers(browser, f"playground.features({at})") for at in x])
    grid = np.asarray(browser.value("playground.XS.map(x => Array.from(playground.features(x)))"))
    precision = phi.T @ phi / 0.3**2 + np.eye(phi.shape[1]) / 1.7**2
    cov = np.linalg.inv(precision)
    np.testing.assert_allclose(shown["exactMean"], grid @ cov @ phi.T @ y / 0.3**2, atol=1e-8)
    np.testing.assert_allclose(shown["exactStd"], np.sqrt(np.sum(grid @ cov * grid, axis=1)), atol=1e-8)
    np.testing.assert_allclose(np.sum(grid**2, axis=1), 1.0)
    distance = np.subtract.outer(np.array([-0.5, 0.0, 0.7]), np.array([0.2, 1.0]))
    origin = numbers(browser, "playground.features(0)")
    kernel = [[numbers(browser, f"playground.features({d})") @ origin for d in row] for row in distance]
    np.testing.assert_allclose(kernel, np.exp(-((distance / 0.5) ** 2) / 2), atol=0.01)
    for k in range(7):
        prior = 1.7 * numbers(browser, f"playground.normals({phi.shape[1]}, playground.state.seed, {k}, 0)")
        z = [numbers(browser, f"playground.normals(1, playground.state.seed, {k}, {p['id']})")[0] for p in points]
        own = y + 0.3 * np.array(z) - phi @ prior
        np.testing.assert_allclose(shown["curves"][k], grid @ (prior + cov @ phi.T @ own / 0.3**2), atol=1e-8)
    np.testing.assert_allclose(shown["mean"], np.mean(shown["curves"], axis=0), atol=1e-12)
    np.testing.assert_allclose(shown["std"], np.std(shown["curves"], axis=0), atol=1e-12)


def test_many_members_sample_the_posterior(browser, playground):
    """Lemma 3; a mean of K members is within 5 standard errors everywhere, a standard deviation within 5 of its own."""
    browser.open(playground)
    many = 3000
    found = browser.value(f"(({{mean, std, exactMean, exactStd}}) => [mean, std, exactMean, exactStd])"
                          f"(playground.members({many}))")  # fmt: skip
    mean, std, exact_mean, exact_std = np.asarray(found)
    assert np.all(np.abs(mean - exact_mean) < 5 * exact_std / np.sqrt(many))
    assert np.all(np.abs(std / exact_std - 1) < 5 / np.sqrt(2 * many))


def test_data_can_be_dragged_added_and_removed(browser, playground):
    browser.open(playground)
    browser.value("playground.state.noise = 0.02; playground.update()")
    at = "(([x, y], box) => [x + box.left, y + box.top])(playground.spot({}, {}), plot.getBoundingClientRect())"
    count, first = "playground.state.points.length", browser.value("playground.shown().mean")
    many = browser.value(count)
    point = browser.value("playground.state.points[8]")
    start, end = (browser.value(at.format(*place)) for place in ((point["x"], point["y"]), (1, 1.5)))
    browser.mouse("mousePressed", *start)
    browser.mouse("mouseMoved", *end)
    browser.mouse("mouseReleased", *end)
    moved = browser.value("playground.state.points[8]")
    assert (moved["x"], moved["y"]) == pytest.approx((1, 1.5), abs=0.05)
    shown, xs = browser.value("playground.shown()"), browser.value("playground.XS")
    assert np.max(np.abs(np.subtract(shown["mean"], first))) > 1
    assert np.interp(moved["x"], xs, shown["mean"]) == pytest.approx(moved["y"], abs=0.05)
    assert browser.value(count) == many
    browser.click(*browser.value(at.format(2, -1)))
    assert browser.value(count) == many + 1
    assert browser.value("playground.state.points.at(-1).x") == pytest.approx(2, abs=0.05)
    browser.click(*browser.value(at.format(2, -1)), clicks=2)
    assert browser.value(count) == many
    browser.value("plot.focus(); playground.state.chosen = -1")
    browser.key("PageDown")
    before = browser.value("playground.state.points[0].y")
    browser.key("ArrowUp")
    assert browser.value("playground.state.points[0].y") == pytest.approx(before + 0.1)
    browser.key("Delete")
    assert browser.value(count) == many - 1
    assert browser.complaints() == []


def test_members_stay_until_new_ones_are_asked_for_and_priors_keep_doubt(browser, playground):
    browser.open(playground)
    far = "playground.shown().std[220]"
    curve = "playground.shown().curves[3]"
    first, doubt = browser.value(curve), browser.value(far)
    browser.value("playground.update()")
    assert browser.value(curve) == first
    browser.value("document.getElementById('redraw').click()")
    assert browser.value(curve) != first
    browser.value("document.getElementById('bare').click()")
    assert browser.value(far) < 0.1 * doubt
    assert "Without priors" in browser.value("document.getElementById('verdict').textContent")
    for name in ("one point", "nothing", "a wave"):
        browser.value(f"sets.value = '{name}'; sets.dispatchEvent(new Event('change'))")
        assert np.all(np.isfinite(browser.value("playground.shown().mean")))
    for slider, setting in (("scale", 2.5), ("members", 50), ("noise", 0.5)):
        browser.value(f"{slider}.value = {setting}; {slider}.dispatchEvent(new Event('input'))".replace(
            f"{slider}.", f"document.getElementById('{slider}')."))  # fmt: skip
        assert browser.value(f"playground.state.{slider}") == setting
    assert browser.complaints() == []
