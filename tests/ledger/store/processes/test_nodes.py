"""Who is alive: told by locks, which end with their process."""

import multiprocessing
import os
import signal

import pytest

from ledger.store.processes import nodes


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "ledger.sqlite3"


def test_a_node_lives_until_it_is_released(ledger):
    claim = nodes.Claim(ledger, "host/1/1")
    for _ in range(3):  # looking at a node does not take its place
        assert nodes.is_alive(ledger, "host/1/1")
    assert not nodes.is_alive(ledger, "host/2/1")
    claim.release()
    assert not nodes.is_alive(ledger, "host/1/1")
    claim.release()


def test_the_folder_is_the_owners_alone(ledger):
    claim = nodes.Claim(ledger, "n")
    folder = ledger.with_name("ledger.sqlite3-nodes")
    assert folder.stat().st_mode & 0o777 == 0o700
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    claim.release()
    assert list(folder.iterdir()) == []


def hold(ledger, said):
    nodes.Claim(ledger, "other")
    said.send("claimed")
    signal.pause()


@pytest.mark.process
def test_a_killed_process_is_dead(ledger):
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=hold, args=(ledger, there))
    process.start()
    assert here.recv() == "claimed"
    assert nodes.is_alive(ledger, "other")
    process.kill()
    process.join()
    assert not nodes.is_alive(ledger, "other")
    assert list(ledger.with_name("ledger.sqlite3-nodes").iterdir()) == []


def test_a_turn_is_one_holders(tmp_path):
    path = tmp_path / "turn"
    turn = nodes.take_turn(path)
    assert turn is not None
    assert nodes.take_turn(path) is None
    os.close(turn)
    again = nodes.take_turn(path)
    assert again is not None
    os.close(again)


def test_what_is_answered_can_be_read_while_the_node_lives(ledger):
    claim, other = nodes.Claim(ledger, "n"), nodes.Claim(ledger, "m")
    claim.note_answered(["a", "b"])
    other.note_answered(["c"])
    assert nodes.answered(ledger, ["n", "m", "never"]) == {"a", "b", "c"}
    assert nodes.answered(ledger, ["n"]) == {"a", "b"}
    claim.note_answered(["b"])
    assert nodes.answered(ledger, ["n"]) == {"b"}
    assert nodes.is_alive(ledger, "n")
    claim.note_answered(f"{number:064}" for number in range(2 * nodes.ANSWERED_MAX))
    assert len(nodes.answered(ledger, ["n"])) == nodes.ANSWERED_MAX
    claim.release()
    claim.note_answered(["d"])  # late, by another thread
    assert nodes.answered(ledger, ["n"]) == set()
    other.release()
