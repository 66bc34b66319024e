/* Which version of the plugin ABI this header set describes. */
#ifndef RLK_ABI_VERSION_H
#define RLK_ABI_VERSION_H

/* The major version is part of the entry symbol's name: a plugin of another major exports another symbol.
   The minor version grows by one with every appended field, slot, service or extension.
   While the ABI is a draft, RLK_ABI_DRAFT is not 0 and host and plugin must agree on it exactly; it becomes 0 when
   CHANGELOG.md declares the ABI frozen. */
#define RLK_ABI_MAJOR 1
#define RLK_ABI_MINOR 0
#define RLK_ABI_DRAFT 2

#endif
