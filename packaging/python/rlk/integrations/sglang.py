"""SGLang calls register in each of its processes, as a plugin of the group sglang.srt.plugins. It does something only where it
is named:

    SGLANG_PLUGINS=rlk python -m sglang.launch_server --sampling-backend rlk --attention-backend rlk ...

Of an SGLang that rlk does not know SGLang logs the reason, and then refuses the backends."""
import logging
import os

log = logging.getLogger("rlk.integrations")


def register():
    """Adds the sampler and the attention rlk in this process where SGLANG_PLUGINS names rlk."""
    if "rlk" in (name.strip() for name in os.environ.get("SGLANG_PLUGINS", "").split(",")):
        from rlk.integrations import enable
        log.info("%s", enable("sglang"))
