"""The operations of `app`. A module of `app` is imported when a command first uses it: `--help` answers at once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.app import access as access
    from headwater.app import apply as apply
    from headwater.app import context as context
    from headwater.app import deadletters as deadletters
    from headwater.app import demand as demand
    from headwater.app import demo_orders as demo_orders
    from headwater.app import doctor as doctor
    from headwater.app import drop_folder as drop_folder
    from headwater.app import ingest as ingest
    from headwater.app import init as init
    from headwater.app import pipeline as pipeline
    from headwater.app import query as query
    from headwater.app import schema as schema
    from headwater.app import serve as serve
    from headwater.app import simulate as simulate
    from headwater.app import status as status
    from headwater.app import why_runs_logs as why_runs_logs
    from headwater.app import workspace as workspace
else:

    def __getattr__(name):
        return import_module(f"headwater.app.{name}")
