"""The pattern of a symmetric matrix, as all that reads it understands it."""

import numpy as np

from dlrd.families.coloring import color
from dlrd.families.elimination import eliminate
from dlrd.families.pattern import Pattern


def test_colouring_and_elimination_read_the_same_entries():
    matrix = np.array(
        [[4.0, 0.0, 1.0, 0.0], [0.0, 5.0, 2.0, 3.0], [1.0, 2.0, 6.0, 0.0], [0.0, 3.0, 0.0, 7.0]]
    )
    dim, rows, columns = pattern = Pattern(4, *np.nonzero(np.tril(matrix, -1)))
    assert dim == 4
    assert np.all(rows > columns)
    coloring, elimination = color(pattern), eliminate(pattern)
    assert elimination is not None
    diagonal, entries = coloring.recovered(coloring.seeds() @ matrix)
    np.testing.assert_array_equal(diagonal, matrix.diagonal())
    np.testing.assert_array_equal(entries, [1.0, 2.0, 3.0])
    places, order = elimination.places(pattern), elimination.order
    first, second = order[elimination.rows[places]], order[elimination.columns[places]]
    np.testing.assert_array_equal(matrix[first, second], entries)
