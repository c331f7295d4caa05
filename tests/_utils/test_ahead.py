"""The next item is made while the present one is worked on; order, errors and waiting are told."""

import threading
import time

import pytest
import torch

from owttt._utils.ahead import ahead


def test_items_come_in_order_and_one_ahead():
    made = []

    def items():
        for number in range(4):
            made.append((number, threading.current_thread().name, torch.get_num_threads()))
            yield number

    for number, waited in ahead(items()):
        assert waited >= 0
        time.sleep(0.05)
        assert len(made) == min(4, number + 2), "the next one is there already, and no more"
    assert [number for number, *_ in made] == [0, 1, 2, 3]
    assert all(name.startswith("owttt-ahead") and threads == torch.get_num_threads() for _, name, threads in made)
    assert list(ahead([])) == []


def test_waiting_is_told():
    def slow():
        for number in range(2):
            time.sleep(0.05)
            yield number

    assert all(waited > 0.03 for _, waited in ahead(slow()))


def test_an_error_comes_where_its_item_would():
    def broken():
        yield 1
        raise ValueError("no more")

    coming = ahead(broken())
    assert next(coming)[0] == 1
    with pytest.raises(ValueError, match="no more"):
        next(coming)


def test_leaving_early_ends_the_thread():
    before = threading.active_count()
    for number, _ in ahead(range(10)):
        if number == 2:
            break
    del number
    assert threading.active_count() == before
