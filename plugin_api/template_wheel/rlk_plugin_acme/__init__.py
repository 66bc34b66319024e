"""The folder of librlk_plugin_acme.so. rlk finds it by its entry point; nothing here is imported."""
