/* SPDX-License-Identifier: BSD-2-Clause */
/* The system's own libibverbs: through it the machine's real devices stay usable beside ours. */
#ifndef ROCELINK_VERBS_SYSTEM_H
#define ROCELINK_VERBS_SYSTEM_H

/* Its symbol of this name and version, or NULL. *cache remembers it (NULL at first). */
void *system_symbol(_Atomic(void *) *cache, const char *name, const char *version);

#endif
