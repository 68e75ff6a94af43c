"""The web page about a fit."""

import dataclasses
import html.parser
import pathlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dlrd
from dlrd.models import FunctionModel, coordinate_names
from dlrd.plots.variables import MAX_VARIABLES
from dlrd.report import fit_page

VOID = {"meta", "path", "use", "rect", "br"}  # need no end tag, or have their end in the same tag


class Page(html.parser.HTMLParser):
    """Reads a page, and fails where its tags do not match."""

    def __init__(self, page: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and data.strip():
            self.texts.setdefault(self.open[-1], []).append(data.strip())


def facts_of(page: Page) -> dict[str, str]:
    return dict(zip(page.texts["dt"], page.texts["dd"], strict=True))


@pytest.fixture(scope="module")
def fit() -> dlrd.Fit:
    return dlrd.fit(
        lambda z: -0.5 * jnp.sum((z - 2.0) ** 2) - 0.01 * jnp.sum(z**4),
        dlrd.MeanFieldNormal.standard(3),
        key=0,
        optimizer=optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-1)),
        steps=1500,
        num_draws=8,
        progress=False,
    )


@pytest.fixture(scope="module")
def source(fit: dlrd.Fit) -> str:
    return fit_page(fit)


@pytest.fixture(scope="module")
def page(source: str) -> Page:
    return Page(source)


def test_verdict_and_facts(fit: dlrd.Fit, page: Page) -> None:
    assert page.texts["h1"] == [fit.outcome.sentence]
    facts = facts_of(page)
    steps = ", ".join(f"{step:,}" for step in fit.history.decays)
    assert len(fit.history.decays) > 1
    assert facts["Decays"] == f"{len(fit.history.decays)}, at steps {steps}"
    assert facts["Family"] == "MeanFieldNormal"
    assert (facts["Dimension"], facts["Steps"], facts["Draws a step"]) == ("3", "1,500", "8")
    assert facts["Time"] == f"{fit.seconds:.1f} s"
    assert float(facts["ELBO"].split(" ± ")[0].replace("−", "-")) == pytest.approx(fit.elbo, abs=0.01)


def test_versions_and_date(page: Page) -> None:
    (made,) = page.texts["footer"]
    versions = f"dlrd {dlrd.__version__}, jax {jax.__version__}, optax {optax.__version__}"
    assert re.fullmatch(rf"Made with {re.escape(versions)} on \d{{4}}-\d\d-\d\d, \d\d:\d\d .+\.", made)


def test_table_holds_the_summary(fit: dlrd.Fit, page: Page) -> None:
    summary = fit.summary()
    assert page.texts["th"] == ["mean", "sd", "5%", "50%", "95%", *summary.names]
    cells = np.reshape([float(cell.replace("−", "-")) for cell in page.texts["td"]], (3, 5))
    expected = np.column_stack([summary.mean, summary.std, summary.quantiles.T])
    np.testing.assert_allclose(cells, expected, atol=6e-4)


def test_nothing_is_loaded(source: str, page: Page) -> None:
    assert "://" not in source
    assert {"script", "link", "img", "iframe"}.isdisjoint(page.tags)
    references = [value for name, value in page.attributes if name in ("href", "src")]
    assert all(value.startswith("#") for value in references)
    assert "@import" not in source
    assert re.findall(r"url\((?!#)", source) == []


def test_pictures_belong_to_the_page(source: str, page: Page) -> None:
    assert page.texts["figcaption"] == [
        "ELBO",
        "Learning rate",
        "Signal-to-noise ratio",
        "Fitted marginals",
    ]
    assert page.tags.count("svg") == 4
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    used = {value for name, value in page.attributes if name == "href"}
    used |= set(re.findall(r"url\((#[^)]*)\)", source))
    assert used == {f"#{name}" for name in ids}
    for variable in set(re.findall(r"var\((--\w+)\)", source)):
        assert source.count(f"{variable}:") == 2, f"{variable} must have a light and a dark value"


def with_family(fit: dlrd.Fit, family: Any, dim: int) -> dlrd.Fit:
    return dataclasses.replace(fit, family=family, names=coordinate_names((dim,)))


def test_long_tables_scroll_by_themselves(fit: dlrd.Fit, page: Page) -> None:
    assert ("class", "scrolled") in page.attributes
    long = Page(fit_page(with_family(fit, dlrd.MeanFieldNormal.standard(40), 40)))
    assert ("class", "scrolled long") in long.attributes
    assert len(long.texts["td"]) == 5 * 40


class Ward(FunctionModel):
    """Variables of its own, one of them with a name that a page must not take for a tag."""

    def __init__(self, num_more: int = 0) -> None:
        super().__init__(lambda z: -z @ z, (3,))
        self.num_more = num_more

    def constrained(self, draws: jax.Array) -> dict[str, jax.Array]:
        more = {f"more {i}": draws[:, 0] for i in range(self.num_more)}
        return {"scale": jnp.exp(draws[:, 0]), "<b>&": draws[:, 1:]} | more


def test_variables_by_their_names(fit: dlrd.Fit) -> None:
    page = Page(fit_page(dataclasses.replace(fit, model=Ward())))
    assert page.texts["figcaption"][3:] == ["scale", "<b>&"]
    assert page.texts["h2"] == ["Course and result", "Fitted variables"]
    facts = facts_of(page)
    assert (facts["Dimension"], facts["Variables"]) == ("3", "scale, <b>& (2)")
    assert page.texts["th"][5:] == ["scale", "<b>&[0]", "<b>&[1]"]
    assert "b" not in page.tags


def test_many_variables_are_in_the_table(fit: dlrd.Fit) -> None:
    page = Page(fit_page(dataclasses.replace(fit, model=Ward(num_more=300))))
    assert page.tags.count("svg") == 3 + MAX_VARIABLES
    assert "Shown are the first 6 of 302 variables. All are in the table." in page.texts["p"]
    assert len(page.texts["td"]) == 5 * 303
    variables = facts_of(page)["Variables"]
    assert variables.startswith("scale, <b>& (2), more 0, ")
    assert variables.endswith("more 9 and 290 more")


def test_everything_is_escaped(fit: dlrd.Fit) -> None:
    class Foreign:
        def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
            return jax.random.normal(key, (*sample_shape, 2))

        def log_prob(self, x: jax.Array) -> jax.Array:
            return -0.5 * jnp.sum(x**2, axis=-1)

    Foreign.__name__ = '<script>alert("&")</script>'
    page = Page(fit_page(with_family(fit, Foreign(), 2)))
    assert "script" not in page.tags
    assert facts_of(page)["Family"] == Foreign.__name__


@pytest.mark.parametrize(
    ("elbo", "error", "shown"),
    [
        (-1234.5678, 0.2, "−1,234.57 ± 0.14"),
        (-1234.5678, 20.0, "−1,235 ± 14"),
        (-2.5, 0.0, "−2.5"),
        (-2.5, np.nan, "−2.5"),
        (np.nan, 0.1, "not known"),
    ],
)
def test_elbo_has_the_digits_that_its_error_supports(
    fit: dlrd.Fit, elbo: float, error: float, shown: str
) -> None:
    """Twenty rows of one error each: the mean is over the last two."""
    rows = slice(0, 20)
    history = dataclasses.replace(
        fit.history,
        step=fit.history.step[rows],
        elbo=np.full(20, elbo),
        elbo_error=np.full(20, error),
        learning_rate=fit.history.learning_rate[rows],
        snr=fit.history.snr[rows],
        decays=fit.history.decays[:0],
    )
    facts = facts_of(Page(fit_page(dataclasses.replace(fit, history=history))))
    assert facts["ELBO"] == shown
    assert facts["Decays"] == "none"


def test_error_of_single_draws_comes_from_the_spread_of_the_rows(fit: dlrd.Fit) -> None:
    """Which have no error of their own then; the mean is over the last tenth."""
    elbo = np.random.default_rng(0).normal(size=1500)
    history = dataclasses.replace(fit.history, elbo=elbo, elbo_error=np.full(1500, np.nan))
    single = dataclasses.replace(fit, num_draws=1, history=history)
    shown = facts_of(Page(fit_page(single)))["ELBO"]
    error = elbo[-150:].std(ddof=1) / np.sqrt(150)
    assert shown == f"{elbo[-150:].mean():.3f} ± {error:.3f}".replace("-", "−")


def test_small_scales_keep_their_digits(fit: dlrd.Fit) -> None:
    family = dlrd.MeanFieldNormal(jnp.asarray([1.0, 2e-4]), jnp.log(jnp.asarray([1.0, 1e-4])))
    cells = Page(fit_page(with_family(fit, family, 2))).texts["td"]
    assert float(cells[6].replace("−", "-")) == pytest.approx(1e-4, rel=0.05)


def test_fit_writes_the_page(fit: dlrd.Fit, tmp_path: pathlib.Path) -> None:
    fit.report(tmp_path / "fit.html")
    assert Page((tmp_path / "fit.html").read_text(encoding="utf-8")).texts["h1"] == [fit.outcome.sentence]


def test_bad_input_is_named() -> None:
    with pytest.raises(TypeError, match=r"fit must be what dlrd\.fit returns, got dict"):
        fit_page({})  # pyright: ignore[reportArgumentType] - the wrong type is the test
