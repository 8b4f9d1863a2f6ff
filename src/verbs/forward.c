/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Exported, and always the system's business: the calls of ABI 1.0 (programs built before 2007
 * don't see our devices), conversions of the kernel's structures, and, in the drop-in form, what
 * the system's library exports for drivers of real devices, which find this library under the same
 * name.
 *
 * All arguments of these functions are integers and pointers, at most ten; so one shape of C
 * function hands any of them on.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "verbs/system.h"

#define EXPORT __attribute__((visibility("default")))

typedef long forward(long, long, long, long, long, long, long, long, long, long);

#define FORWARD_AS(function, name, version)                                                   \
	EXPORT forward function;                                                              \
	long function(long a, long b, long c, long d, long e, long f, long g, long h, long i, \
		      long j)                                                                 \
	{                                                                                     \
		static _Atomic(void *) cached;                                                \
		forward *next = (forward *)system_symbol(&cached, #name, version);            \
                                                                                              \
		if (next)                                                                     \
			return next(a, b, c, d, e, f, g, h, i, j);                            \
		errno = ENOSYS;                                                               \
		return 0;                                                                     \
	}

#define FORWARD(name, version) FORWARD_AS(name, name, version)
#define FORWARD_1_0(name)                                        \
	__asm__(".symver old_" #name ", " #name "@IBVERBS_1.0"); \
	FORWARD_AS(old_##name, name, "IBVERBS_1.0")

FORWARD_1_0(ibv_ack_async_event)
FORWARD_1_0(ibv_ack_cq_events)
FORWARD_1_0(ibv_alloc_pd)
FORWARD_1_0(ibv_attach_mcast)
FORWARD_1_0(ibv_close_device)
FORWARD_1_0(ibv_create_ah)
FORWARD_1_0(ibv_create_cq)
FORWARD_1_0(ibv_create_qp)
FORWARD_1_0(ibv_create_srq)
FORWARD_1_0(ibv_dealloc_pd)
FORWARD_1_0(ibv_dereg_mr)
FORWARD_1_0(ibv_destroy_ah)
FORWARD_1_0(ibv_destroy_cq)
FORWARD_1_0(ibv_destroy_qp)
FORWARD_1_0(ibv_destroy_srq)
FORWARD_1_0(ibv_detach_mcast)
FORWARD_1_0(ibv_free_device_list)
FORWARD_1_0(ibv_get_async_event)
FORWARD_1_0(ibv_get_cq_event)
FORWARD_1_0(ibv_get_device_guid)
FORWARD_1_0(ibv_get_device_list)
FORWARD_1_0(ibv_get_device_name)
FORWARD_1_0(ibv_modify_qp)
FORWARD_1_0(ibv_modify_srq)
FORWARD_1_0(ibv_open_device)
FORWARD_1_0(ibv_query_device)
FORWARD_1_0(ibv_query_gid)
FORWARD_1_0(ibv_query_pkey)
FORWARD_1_0(ibv_query_port)
FORWARD_1_0(ibv_query_qp)
FORWARD_1_0(ibv_query_srq)
FORWARD_1_0(ibv_reg_mr)
FORWARD_1_0(ibv_resize_cq)

/* Once a driver's way in; the name alone keeps old drivers loading. */
__asm__(".symver old_ibv_register_driver, ibv_register_driver@IBVERBS_1.1");
FORWARD_AS(old_ibv_register_driver, ibv_register_driver, "IBVERBS_1.1")

FORWARD(ibv_copy_ah_attr_from_kern, "IBVERBS_1.1")
FORWARD(ibv_copy_qp_attr_from_kern, "IBVERBS_1.0")
FORWARD(ibv_copy_path_rec_from_kern, "IBVERBS_1.0")
FORWARD(ibv_copy_path_rec_to_kern, "IBVERBS_1.0")
FORWARD(ibv_dontfork_range, "IBVERBS_1.1")
FORWARD(ibv_dofork_range, "IBVERBS_1.1")

#ifdef ROCELINK_DROPIN
#define PRIVATE(name) FORWARD(name, "IBVERBS_PRIVATE_34")

EXPORT extern bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy;

PRIVATE(__ioctl_final_num_attrs)
PRIVATE(__verbs_log)
PRIVATE(_verbs_init_and_alloc_context)
PRIVATE(execute_ioctl)
PRIVATE(ibv_cmd_advise_mr)
PRIVATE(ibv_cmd_alloc_dm)
PRIVATE(ibv_cmd_alloc_mw)
PRIVATE(ibv_cmd_alloc_pd)
PRIVATE(ibv_cmd_attach_mcast)
PRIVATE(ibv_cmd_close_xrcd)
PRIVATE(ibv_cmd_create_ah)
PRIVATE(ibv_cmd_create_counters)
PRIVATE(ibv_cmd_create_cq)
PRIVATE(ibv_cmd_create_cq_ex)
PRIVATE(ibv_cmd_create_flow)
PRIVATE(ibv_cmd_create_flow_action_esp)
PRIVATE(ibv_cmd_create_qp)
PRIVATE(ibv_cmd_create_qp_ex2)
PRIVATE(ibv_cmd_create_qp_ex)
PRIVATE(ibv_cmd_create_rwq_ind_table)
PRIVATE(ibv_cmd_create_srq)
PRIVATE(ibv_cmd_create_srq_ex)
PRIVATE(ibv_cmd_create_wq)
PRIVATE(ibv_cmd_dealloc_mw)
PRIVATE(ibv_cmd_dealloc_pd)
PRIVATE(ibv_cmd_dereg_mr)
PRIVATE(ibv_cmd_destroy_ah)
PRIVATE(ibv_cmd_destroy_counters)
PRIVATE(ibv_cmd_destroy_cq)
PRIVATE(ibv_cmd_destroy_flow)
PRIVATE(ibv_cmd_destroy_flow_action)
PRIVATE(ibv_cmd_destroy_qp)
PRIVATE(ibv_cmd_destroy_rwq_ind_table)
PRIVATE(ibv_cmd_destroy_srq)
PRIVATE(ibv_cmd_destroy_wq)
PRIVATE(ibv_cmd_detach_mcast)
PRIVATE(ibv_cmd_free_dm)
PRIVATE(ibv_cmd_get_context)
PRIVATE(ibv_cmd_modify_cq)
PRIVATE(ibv_cmd_modify_flow_action_esp)
PRIVATE(ibv_cmd_modify_qp)
PRIVATE(ibv_cmd_modify_qp_ex)
PRIVATE(ibv_cmd_modify_srq)
PRIVATE(ibv_cmd_modify_wq)
PRIVATE(ibv_cmd_open_qp)
PRIVATE(ibv_cmd_open_xrcd)
PRIVATE(ibv_cmd_poll_cq)
PRIVATE(ibv_cmd_post_recv)
PRIVATE(ibv_cmd_post_send)
PRIVATE(ibv_cmd_post_srq_recv)
PRIVATE(ibv_cmd_query_context)
PRIVATE(ibv_cmd_query_device_any)
PRIVATE(ibv_cmd_query_mr)
PRIVATE(ibv_cmd_query_port)
PRIVATE(ibv_cmd_query_qp)
PRIVATE(ibv_cmd_query_srq)
PRIVATE(ibv_cmd_read_counters)
PRIVATE(ibv_cmd_reg_dm_mr)
PRIVATE(ibv_cmd_reg_dmabuf_mr)
PRIVATE(ibv_cmd_reg_mr)
PRIVATE(ibv_cmd_req_notify_cq)
PRIVATE(ibv_cmd_rereg_mr)
PRIVATE(ibv_cmd_resize_cq)
PRIVATE(ibv_read_ibdev_sysfs_file)
PRIVATE(verbs_init_cq)
PRIVATE(verbs_open_device)
PRIVATE(verbs_register_driver_34)
PRIVATE(verbs_set_ops)
PRIVATE(verbs_uninit_context)
#endif
