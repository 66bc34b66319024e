"""What slime's paths name. slime calls init in every process of Megatron, after its own initialization:

    --custom-megatron-init-path rlk.integrations.slime.init

An installed slime that rlk does not know ends the process with the reason. The other functions compute what slime's own do,
and stand alone or beside init:

    --loss-type custom_loss --custom-loss-function-path rlk.integrations.slime.loss
    --custom-advantage-function-path rlk.integrations.slime.advantages
    --custom-pg-loss-reducer-function-path rlk.integrations.slime.pg_loss_reducer"""
import logging

from rlk.integrations import enable
from rlk.integrations._slime_advantages import advantages
from rlk.integrations._slime_loss import loss
from rlk.integrations._slime_reducer import pg_loss_reducer

__all__ = ["advantages", "init", "loss", "pg_loss_reducer"]
log = logging.getLogger("rlk.integrations")


def init(args):
    """Replaces slime's functions in this process, and logs which."""
    log.info("%s", enable("slime"))
