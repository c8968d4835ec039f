"""Watched: models for `faults`, one of which tells what its process has in use."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from streamcodec.service import InferenceRequest, Model, Service
from streamcodec.service.memory.budget import Budget
from tests.embedding.apps import state_of, task_count, watched_service


async def _state(_: InferenceRequest) -> Mapping[str, Any]:
    """Tell it as integers by name; `pid` is the process."""
    gc.unfreeze()  # the budget is older than the first request
    budgets = [thing for thing in gc.get_objects() if type(thing) is Budget]
    state: dict[str, int] = json.loads(state_of(budgets[0], tasks=task_count()))
    state["reserved"] = sum(budget.reserved for budget in budgets)
    return {name: np.array([number]) for name, number in (*state.items(), ("pid", os.getpid()))}


def service() -> Service:
    """Return the service; `streamcodec serve` calls this."""
    made = watched_service(has_loop=True)
    made.models.add(Model(name="state", predict=_state))
    return made
