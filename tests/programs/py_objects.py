# SPDX-License-Identifier: BSD-2-Clause
"""
py_objects.py DEVICE GID_INDEX: with Debian's pyverbs, open the device, query it, create every object.
"""
import sys

import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CQEX, CompChannel, CqInitAttrEx
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr

QP_TYPES = (e.IBV_QPT_RC, e.IBV_QPT_UC, e.IBV_QPT_UD)


def check_queries(ctx, gid_index):
    attr = ctx.query_device()
    assert attr.max_qp >= 65536 and attr.max_cq >= 65536 and attr.max_mr >= 65536, attr
    assert attr.max_qp_wr >= 16384 and attr.max_sge >= 30, attr
    assert attr.node_guid and attr.sys_image_guid
    port = ctx.query_port(1)
    assert port.state == e.IBV_PORT_ACTIVE and port.link_layer == e.IBV_LINK_LAYER_ETHERNET
    assert port.lid == 0 and gid_index < port.gid_tbl_len
    ctx.query_device_ex()
    entry = ctx.query_gid_ex(port_num=1, gid_index=gid_index)
    assert entry.gid_type == e.IBV_GID_TYPE_ROCE_V2
    assert entry.gid_str() == str(ctx.query_gid(port_num=1, index=gid_index))
    assert ctx.query_gid_table(max_entries=port.gid_tbl_len)
    assert ctx.query_pkey(1, 0) & 0x7FFF
    return ctx.query_gid(port_num=1, index=gid_index)


def create_qps(ctx, pd, cq):
    qps = []
    for qp_type in QP_TYPES:
        cap = QPCap(max_send_wr=100, max_recv_wr=100, max_send_sge=4, max_recv_sge=4,
                    max_inline_data=256)
        qp = QP(pd, QPInitAttr(qp_type=qp_type, scq=cq, rcq=cq, cap=cap))
        assert qp.qp_state == e.IBV_QPS_RESET and 1 < qp.qp_num < 1 << 24
        attr, init = qp.query(e.IBV_QP_STATE | e.IBV_QP_CAP)
        assert attr.qp_state == e.IBV_QPS_RESET and init.cap.max_inline_data >= 256
        extended = QPInitAttrEx(qp_type=qp_type, scq=cq, rcq=cq, pd=pd, cap=cap,
                                comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                send_ops_flags=e.IBV_QP_EX_WITH_SEND)
        qps += [qp, QPEx(ctx, extended)]
    assert len({qp.qp_num for qp in qps}) == len(qps)
    return qps


def create_srq_qp(pd, cq):
    srq = SRQ(pd, SrqInitAttr(SrqAttr(max_wr=64, max_sge=2)))
    attr = srq.query()
    assert attr.max_wr >= 64 and attr.max_sge >= 2
    init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, srq=srq,
                      cap=QPCap(max_send_wr=1, max_recv_wr=0))
    return srq, QP(pd, init)


def main(name, gid_index):
    assert name in [d.name.decode() for d in get_device_list()]
    with Context(name=name) as ctx:
        gid = check_queries(ctx, gid_index)
        pd = PD(ctx)
        mrs = [MR(pd, 4096, access) for access in (
            e.IBV_ACCESS_LOCAL_WRITE,
            e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ |
            e.IBV_ACCESS_REMOTE_ATOMIC)]
        assert len({mr.rkey for mr in mrs}) == 2
        channel = CompChannel(ctx)
        cq = CQ(ctx, 100, channel=channel)
        cq_ex = CQEX(ctx, CqInitAttrEx(cqe=100))
        qps = create_qps(ctx, pd, cq)
        srq, srq_qp = create_srq_qp(pd, cq)
        route = GlobalRoute(dgid=gid, sgid_index=gid_index, hop_limit=64)
        ah = AH(pd, attr=AHAttr(gr=route, is_global=1, port_num=1))
        attr = QPAttr(qp_state=e.IBV_QPS_INIT, port_num=1)
        qps[0].to_init(attr)
        assert qps[0].qp_state == e.IBV_QPS_INIT
        for thing in [ah, srq_qp, srq] + qps + [cq_ex, cq, channel] + mrs + [pd]:
            thing.close()
    print("all objects created and destroyed")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
