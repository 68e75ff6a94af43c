"""Figures, claims and the page, from made-up results."""

import dataclasses
import html
import json
import re

import numpy as np
import pytest
from matplotlib.image import imread

from dlrd.paper import claims, guarded, why
from dlrd.paper.experiments.batch import Results
from dlrd.paper.experiments.spec import FIGURES, Batch
from dlrd.paper.figures import draw
from dlrd.paper.page import Facts, reproduction_page
from dlrd.paper.reproduce import _explained


def made_up(batch: Batch) -> Results:
    """Static runs fall to their rate, runs with DLRD go on to a hundredth of it; small rates take longer."""
    step = np.unique(np.rint(np.geomspace(1, batch.steps, 60)).astype(int))
    rng = np.random.default_rng(0)
    error, rate, decays = [], [], []
    for setting in batch.settings:
        floor = setting.rate * (0.01 if setting.rule == "dlrd" else 1.0)
        falling = 100 * np.exp(-step * np.sqrt(setting.rate) / 300)
        error.append(falling + floor * np.exp(0.1 * rng.normal(size=(batch.num_seeds, len(step)))))
        rate.append(np.broadcast_to(setting.rate, (batch.num_seeds, len(step))))
        fires = setting.rule == "dlrd"
        decays.append([[batch.steps // 100] if fires else [] for _ in range(batch.num_seeds)])
    shape = np.array(error).shape
    shown = None
    if batch.problem == "synthetic":
        shown = rng.normal(size=(*shape, 2, 3))
    if batch.problem == "synthetic-1d":
        shown = 0.1 * rng.normal(size=(*shape, 2))
    snr = np.broadcast_to(1e3 / step, shape)
    resets = [[[] for _ in range(batch.num_seeds)] for _ in batch.settings]
    return Results(batch, step, np.array(error), np.array(rate), snr, shown, decays, resets, seconds=1.0)


def all_made_up() -> dict[str, Results]:
    batches = {batch.name: batch for figure in FIGURES for batch in figure.batches}
    return {name: made_up(batch) for name, batch in batches.items()}


FOUND = all_made_up()
WIDTHS = (1280, 390)
FACTS = Facts("paper", "2026-01-01", {"jax": "1.0"}, "2 cores, x86_64", 1234.0)


PAPER = {
    "1d_convergence",
    "snr",
    "quadnormal",
    "quadnormal_loglin",
    "quadnormal_sasa",
    "quadnormal_sample_size",
    "logistic",
    "diffusion",
}
LIKE_ANOTHER = {"quadnormal", "quadnormal_sasa", "quadnormal_sample_size", "diffusion"}
SHOWN = [figure for figure in FIGURES if figure.name not in LIKE_ANOTHER]
"""One of each kind."""


def drawn(figures, folder, max_batches=None):
    """The names of the pictures, and of those with vectors."""
    for figure in figures:
        draw(figure.name, {batch.name: FOUND[batch.name] for batch in figure.batches[:max_batches]}, folder)
    return [{path.stem for path in folder.glob(f"*.{suffix}")} for suffix in ("png", "pdf")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with figures and the page. Of the divergences, the first panels will do."""
    folder = tmp_path_factory.mktemp("reproduction")
    names = {figure.name for figure in SHOWN}
    assert drawn(SHOWN, folder / "figures", max_batches=4) == [names, names]
    page = reproduction_page(SHOWN, FOUND, claims.evaluate(FOUND), FACTS, folder)
    (folder / "index.html").write_text(page, encoding="utf-8")
    return folder


def test_the_figures_of_the_paper_are_among_all():
    assert {figure.name for figure in FIGURES} > PAPER


@pytest.mark.slow
def test_all_figures_are_drawn_as_picture_and_vector(tmp_path):
    pictures, vectors = drawn(FIGURES, tmp_path)
    assert pictures == vectors == {figure.name for figure in FIGURES}


def verdicts(found):
    return {claim.name: claim.holds for claim in claims.evaluate(found)}


def test_claims_hold_where_the_results_say_so():
    found = verdicts(FOUND)
    assert found["dlrd-at-least-as-accurate: synthetic-adam-S2"]
    assert found["static-1e-2-stalls: logistic-adam-S8"]
    assert found["static-1e-4-is-slow: field-adam-S8"]
    assert found["dlrd-beats-power-schedules: 0.01"]
    assert found["sasa-never-fires"]
    assert not found["sasa-plus-fires-early-at-1e-4"]  # the made-up SASA+ never does


def changed(name, **fields):
    return {**FOUND, name: dataclasses.replace(FOUND[name], **fields)}


def test_a_worse_result_with_dlrd_fails_its_claim():
    results = FOUND["synthetic-adam-S2"]
    error = results.error.copy()
    error[results.of(rule="dlrd", rate=1e-3)] *= 1e6
    found = verdicts(changed("synthetic-adam-S2", error=error))
    assert not found["dlrd-at-least-as-accurate: synthetic-adam-S2"]
    assert not found["spread-over-rates-shrinks: synthetic-adam-S2"]
    assert found["dlrd-at-least-as-accurate: synthetic-sgd-S2"]


def test_a_sasa_that_fires_fails_its_claim():
    results = FOUND["synthetic-sgd-S2-sasa"]
    decays = [[[5_000]] * results.batch.num_seeds for _ in results.batch.settings]
    assert not verdicts(changed("synthetic-sgd-S2-sasa", decays=decays))["sasa-never-fires"]


def test_a_snr_that_stays_high_fails_its_claim():
    results = FOUND["synthetic-adam-S2"]
    found = verdicts(changed("synthetic-adam-S2", snr=np.full(results.error.shape, 10.0)))
    assert not found["snr-below-1-when-oscillating"]


def test_a_crossing_at_another_time_fails_its_claim():
    results = FOUND["logistic-adam-S8"]
    error = results.error.copy()
    slow, fast = (results.of(rule="dlrd", rate=rate) for rate in (1e-3, 1e-2))
    error[slow] = np.where(results.step > 3e5, 1e-5, 1.0)
    error[fast] = 1e-3
    assert verdicts(changed("logistic-adam-S8", error=error))["1e-3-overtakes-1e-2: logistic-adam-S8"]
    error[slow] = np.where(results.step > 1e3, 1e-5, 1.0)
    assert not verdicts(changed("logistic-adam-S8", error=error))["1e-3-overtakes-1e-2: logistic-adam-S8"]


def test_sasa_plus_is_judged_where_it_has_fired():
    """What follows the first reduction is claimed, not that there is one."""
    results = FOUND["synthetic-sgd-S2-sasa-plus"]
    decays = [
        [[9_000]] * results.batch.num_seeds if setting.rate > 1e-4 else [[]] * results.batch.num_seeds
        for setting in results.batch.settings
    ]
    assert verdicts(changed("synthetic-sgd-S2-sasa-plus", decays=decays))["sasa-plus-stalls"]
    assert not verdicts(FOUND)["sasa-plus-stalls"]  # the made-up one never fires


def test_rates_that_are_on_their_way_are_left_out_of_the_spread():
    results = FOUND["synthetic-sgd-S2"]
    error = results.error.copy()
    for rule in ("static", "dlrd"):
        error[results.of(rule=rule, rate=1e-4)] = 1e6
    name = "spread-over-rates-shrinks: synthetic-sgd-S2"
    assert not verdicts(changed("synthetic-sgd-S2", error=error))[name]
    decays = list(results.decays)
    decays[results.of(rule="dlrd", rate=1e-4)] = [[]] * results.batch.num_seeds
    (claim,) = [
        claim
        for claim in claims.evaluate(changed("synthetic-sgd-S2", error=error, decays=decays))
        if claim.name == name
    ]
    assert claim.measured.endswith("still on its way, without a decay: 0.0001")


def test_the_spread_over_rates_at_which_runs_diverge_is_that_with_the_guard():
    name = "synthetic-adam-S2-rates"
    results, ruled = FOUND[name], FOUND[f"{name}-guarded"]
    error, flat = results.error.copy(), np.ones_like(ruled.error)
    error[[setting.rate > 2 for setting in results.batch.settings]] = np.nan
    found = changed(name, error=error) | {f"{name}-guarded": dataclasses.replace(ruled, error=flat)}
    (claim,) = [
        claim for claim in claims.evaluate(found) if claim.name == f"spread-over-rates-shrinks: {name}"
    ]
    assert claim.holds
    assert claim.measured.startswith("worst over best rate: 1 with DLRD and the guard, inf static")


def test_false_alarms_and_saved_runs_are_counted():
    assert guarded.false_alarms(FOUND)[1] == {}
    assert guarded.in_words({}) == "never"
    resets = [[[7]] * FOUND["logistic-adam-S8"].batch.num_seeds] * 6
    went_back = guarded.false_alarms(changed("logistic-adam-S8", resets=resets))[1]
    num_seeds = FOUND["logistic-adam-S8"].batch.num_seeds
    assert list(went_back.values()) == 6 * [num_seeds]
    assert f"{num_seeds} × in logistic-adam-S8, static, rate 0.01; " in guarded.in_words(went_back)
    even = np.ones_like(FOUND["field-adam-alone"].error)
    lost = even.copy()
    lost[3:, :, -1] = np.nan
    found = changed("field-adam-alone", error=lost) | {
        "field-adam-guarded": dataclasses.replace(FOUND["field-adam-guarded"], error=even)
    }
    (row,) = [row for row in guarded.shares(found) if (row.problem, row.optimizer) == ("field", "adam")]
    assert (row.num_runs, row.alone, row.guarded) == (7, 3, 7)
    assert (row.num_lost_alone, row.num_lost_guarded) == (4, 0)


@pytest.mark.parametrize("variance", ["independent", "batch", "overlapping"])
def test_a_stationary_mean_is_found_and_a_drifting_one_is_not(variance):
    noise = np.random.default_rng(0).normal(size=20_000)
    assert why.first_firing(noise + 10.0, 8, 1000, variance) == 0
    # The newest eighth must be more than 1000 samples.
    assert 8_000 < why.first_firing(noise, 8, 1000, variance) < 9_000


def test_findings_stand_beside_the_claims_that_fail(tmp_path):
    path = tmp_path / "why.json"
    finding = why.Finding(["sasa-plus-stalls"], "Why?", "Because.", {})
    path.write_text(json.dumps([finding._asdict()]), encoding="utf-8")
    fails, holds = (claims.Claim("sasa-plus-stalls", "", "", is_true) for is_true in (False, True))
    assert _explained(fails, path).why == "Why? Because."
    assert _explained(holds, path).why == ""


def test_claims_without_results_are_left_out():
    assert verdicts({}) == {}
    assert set(verdicts({"logistic-adam-S8": FOUND["logistic-adam-S8"]})) < set(verdicts(FOUND))


def test_the_page_is_whole_in_itself(folder):
    page = (folder / "index.html").read_text(encoding="utf-8")
    loaded = re.findall(r'(?:src|href)="([^"]{0,40})', page)
    assert loaded
    assert all(address.startswith(("data:image/png;base64,", "figures/")) for address in loaded)
    assert "@import" not in page
    assert "url(" not in page
    for claim in claims.evaluate(FOUND):
        assert html.escape(claim.measured) in page


def test_the_page_fits_laptop_and_phone_in_a_real_browser(folder, tmp_path, chromium):
    page = html.escape((folder / "index.html").read_text(encoding="utf-8"), quote=True)
    # Frames stand for the screens: browsers do not open windows as narrow as a phone.
    frames = "".join(f'<iframe width="{width}" height="4000" srcdoc="{page}"></iframe>' for width in WIDTHS)
    outer = tmp_path / "frames.html"
    outer.write_text(
        f"""<style>iframe {{ border: 0 }} body {{ margin: 0; display: flex; width: {sum(WIDTHS)}px }}</style>
        <body>{frames}<script>
        addEventListener("load", () => {{
            const found = [...document.querySelectorAll("iframe")].map(frame => {{
                const inner = frame.contentDocument;
                const broken = [...inner.images].filter(image => !image.naturalWidth).length;
                return {{width: inner.documentElement.scrollWidth, images: inner.images.length, broken}};
            }});
            document.body.dataset.found = JSON.stringify(found);
        }});</script></body>""",
        encoding="utf-8",
    )
    picture = tmp_path / "page.png"
    dom = chromium(outer.as_uri(), sum(WIDTHS), "--virtual-time-budget=10000", f"--screenshot={picture}")
    found = json.loads(html.unescape(re.search(r'data-found="([^"]+)"', dom)[1]))
    for frame, width in zip(found, WIDTHS, strict=True):
        assert frame.pop("width") <= width  # nothing to scroll sideways
        assert frame == {"images": len(SHOWN), "broken": 0}
    laptop, phone = np.split(imread(picture)[:, : sum(WIDTHS)], [WIDTHS[0]], axis=1)
    assert num_colors(laptop) > 100
    assert num_colors(phone) > 100


def num_colors(pixels: np.ndarray) -> int:
    """Of a ninth of the pixels."""
    levels = np.rint(255 * pixels[::3, ::3, :3]).astype(int)
    return len(np.unique(levels @ [2**16, 2**8, 1]))
