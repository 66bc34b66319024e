"""vLLM calls register in each of its processes, as a plugin of the group vllm.general_plugins. It does something only where it is
named:

    VLLM_PLUGINS=rlk vllm serve ...
    VLLM_PLUGINS=rlk vllm serve --attention-backend CUSTOM ...     rlk's attention too

An installed vLLM that rlk does not know ends the process with the reason."""
import logging
import os

log = logging.getLogger("rlk.integrations")


def register():
    """Replaces vLLM's functions in this process where VLLM_PLUGINS names rlk."""
    if "rlk" in os.environ.get("VLLM_PLUGINS", "").split(","):
        from rlk.integrations import enable
        log.info("%s", enable("vllm"))
