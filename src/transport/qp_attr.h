/* SPDX-License-Identifier: BSD-2-Clause */
/* The queue pair transition table (IBA table 91, ibv_modify_qp(3)) and the checks of attribute
 * values. */
#ifndef ROCELINK_TRANSPORT_QP_ATTR_H
#define ROCELINK_TRANSPORT_QP_ATTR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct path;

/*
 * May a QP of this type go from one state to the other with these attributes (IBV_QP_STATE and
 * IBV_QP_CUR_STATE aside)? 0, or EINVAL with a sentence in why that names what is missing or not
 * allowed.
 */
int qp_attr_check_transition(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to,
			     int mask, char *why, size_t why_len);

/* Are the values that mask names within their ranges? */
int qp_attr_check_values(const struct ibv_qp_attr *attr, int mask, const struct path *path,
			 uint32_t port_mtu, char *why, size_t why_len);

const char *qp_state_name(enum ibv_qp_state state);
const char *qp_type_name(enum ibv_qp_type type);

/* Copy the attributes that mask names. */
void qp_attr_store(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask);

#endif
