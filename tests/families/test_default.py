"""The family of a fit that is given none."""

import numpy as np
import pytest

from dlrd import FullRankNormal, MeanFieldNormal
from dlrd.families import default_family
from dlrd.families.curvature import MAX_WHOLE


@pytest.mark.parametrize(
    ("dim", "kind"), [(1, FullRankNormal), (MAX_WHOLE, FullRankNormal), (MAX_WHOLE + 1, MeanFieldNormal)]
)
def test_of_full_rank_up_to_where_the_whole_curvature_is_worth_it(dim: int, kind: type):
    family = default_family(dim)
    assert isinstance(family, kind)
    np.testing.assert_array_equal(family.mean, np.zeros(dim))
    np.testing.assert_array_equal(family.scale_tril, np.eye(dim))
