"""Which worker takes the next connection."""

from pathlib import Path

from addon.run.workers.board import Board


def test_the_worker_with_the_fewest_connections_takes_the_next(tmp_path: Path):
    one, two = Board(tmp_path), Board(tmp_path)
    one.write(0, 3)
    two.write(1, 2)
    assert not one.is_least(0, 4)
    assert two.is_least(1, 4)
    two.write(1, 3)
    assert one.is_least(0, 4)
    assert two.is_least(1, 4)


def test_seats_that_do_not_accept_do_not_count(tmp_path: Path):
    board = Board(tmp_path)
    board.write(0, 5)
    board.write(2, 1)
    assert not board.is_least(0, 4)
    board.clear(2)
    assert board.is_least(0, 4)
