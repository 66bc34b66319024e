"""slime calls init in every process of Megatron, after its own initialization:

    --custom-megatron-init-path rlk.integrations.slime.init

An installed slime that rlk does not know ends the process with the reason."""
import logging

from rlk.integrations import enable

log = logging.getLogger("rlk.integrations")


def init(args):
    """Replaces slime's functions in this process, and logs which."""
    log.info("%s", enable("slime"))
