"""Imported, it enables rlk in verl. In every worker, Ray's too, by the variable that they all see:

    VERL_USE_EXTERNAL_MODULES=rlk.integrations.verl

verl imports it before its own modules, and an installed verl that rlk does not know ends the worker with the reason."""
from rlk.integrations import enable

ENABLED = enable("verl")
