"""A server keeps Python's garbage collector from looking at loaded modules again and again."""

from __future__ import annotations

import gc
import sys
from types import ModuleType

import pytest

from headwater.app.serve import _modules_frozen
from headwater.spark.user_code import RUN_PACKAGE


def test_what_is_there_is_frozen_once_after_modules_were_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    with _modules_frozen():
        gc.collect()
        frozen = gc.get_freeze_count()
        assert frozen > 0
        held = [[n] for n in range(1000)]
        monkeypatch.setitem(sys.modules, f"{RUN_PACKAGE}1", ModuleType("of_a_model"))
        gc.collect()
        assert gc.get_freeze_count() == frozen, "the module of a model is gone after its run"
        monkeypatch.setitem(sys.modules, "one_more_module", ModuleType("one_more_module"))
        gc.collect()
        assert gc.get_freeze_count() > frozen + len(held)
    assert gc.get_freeze_count() == 0
