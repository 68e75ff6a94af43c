"""The panels inside a web page."""

import re
import xml.etree.ElementTree as ET

import matplotlib.pyplot as plt
import pytest

import dlrd
from dlrd.plots import PanelImage, panel_images
from dlrd.plots.svg import CSS_COLORS


@pytest.fixture(scope="module")
def images(fit: dlrd.Fit) -> list[PanelImage]:
    return panel_images(fit)


def test_each_is_an_element_that_says_what_it_shows(images: list[PanelImage]) -> None:
    assert [image.title for image in images] == [
        "ELBO",
        "Learning rate",
        "Signal-to-noise ratio",
        "Fitted marginals",
    ]
    for image in images:
        root = ET.fromstring(image.svg)
        assert root.tag == "svg"
        # No width or height: the element around decides.
        assert root.attrib == {
            "viewBox": root.attrib["viewBox"],
            "role": "img",
            "aria-label": image.title,
        }
        assert [float(number) for number in root.attrib["viewBox"].split()] == pytest.approx(
            [0, 0, 72 * 4.8, 72 * 3.1]
        )


def test_colours_follow_the_page(images: list[PanelImage]) -> None:
    used = set()
    for image in images:
        assert not re.search(r"#[0-9a-f]{6}\b", image.svg), "a colour that does not follow the page"
        used |= set(re.findall(r"var\((--\w+)\)", image.svg))
    assert used == set(CSS_COLORS.values())


def test_references_stay_within_their_image(images: list[PanelImage]) -> None:
    """So that four of them share a page."""
    for number, image in enumerate(images):
        ids = re.findall(r' id="([^"]*)"', image.svg)
        assert ids
        assert len(ids) == len(set(ids))
        assert all(name.startswith(f"panel{number}-") for name in ids)
        assert set(re.findall(r'(?:href="|url\()#([^")]+)', image.svg)) == set(ids)


def test_what_a_page_has_no_use_for_is_gone(images: list[PanelImage]) -> None:
    for image in images:
        for rest in ("<?xml", "<!", "<metadata", "<style", "xlink", "\n "):
            assert rest not in image.svg


def test_the_same_each_time_whatever_the_users_style_is(fit: dlrd.Fit, images: list[PanelImage]) -> None:
    with plt.style.context("dark_background"):
        assert panel_images(fit) == images
