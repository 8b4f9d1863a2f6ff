# SPDX-License-Identifier: BSD-2-Clause
"""
py_features.py DEVICE GID_INDEX: with Debian's pyverbs, what the kernel's software adapter refuses: on-demand
regions and advice, device memory, memory windows, completions with timestamps.
"""
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQEX, CqInitAttrEx, PollCqAttr
from pyverbs.device import DM, AllocDmAttr, Context
from pyverbs.mr import DMMR, MR, MW, MWBind, MWBindInfo
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

REMOTE = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
STAMPS = e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK


def poll(cq):
    """(wr_id, raw, wall clock) of the next completion, which must be a success."""
    end = time.monotonic() + 10
    while cq.start_poll(PollCqAttr()):
        assert time.monotonic() < end, "no completion"
    assert cq.status == e.IBV_WC_SUCCESS, cq.status
    result = cq.wr_id, cq.read_timestamp(), cq.read_completion_wallclock_ns()
    cq.end_poll()
    return result


def connect_to_itself(qp, ctx, gid_index):
    route = GlobalRoute(dgid=ctx.query_gid(1, gid_index), sgid_index=gid_index, hop_limit=64)
    attr = QPAttr(port_num=1, path_mtu=e.IBV_MTU_1024)
    attr.dest_qp_num, attr.rq_psn, attr.sq_psn = qp.qp_num, 1, 1
    attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
    attr.qp_access_flags = REMOTE
    attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 1
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
    qp.to_rts(attr)


def write(qp, cq, wr_id, local, remote, rkey):
    """RDMA WRITE of 64 bytes from `local`, (address, L_Key); what poll() says."""
    request = SendWR(wr_id, opcode=e.IBV_WR_RDMA_WRITE, num_sge=1,
                     sg=[SGE(local[0], 64, local[1])])
    request.set_wr_rdma(rkey, remote)
    qp.post_send(request)
    result = poll(cq)
    assert result[0] == wr_id
    return result


def main(name, gid_index):
    with Context(name=name) as ctx:
        limits = ctx.query_device_ex()
        assert limits.odp_caps.general_caps == e.IBV_ODP_SUPPORT | e.IBV_ODP_SUPPORT_IMPLICIT
        pd = PD(ctx)
        cq = CQEX(ctx, CqInitAttrEx(cqe=16, wc_flags=STAMPS))
        qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=8), sq_sig_all=1))
        connect_to_itself(qp, ctx, gid_index)

        demand = MR(pd, 8192, REMOTE | e.IBV_ACCESS_ON_DEMAND)
        pd.advise_mr(e._IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, e._IBV_ADVISE_MR_FLAG_FLUSH,
                     [SGE(demand.buf, 8192, demand.lkey)])
        demand.write("d" * 64, 64)
        wall = time.time_ns()
        _, raw_1, wall_1 = write(qp, cq, 1, (demand.buf, demand.lkey), demand.buf + 4096, demand.rkey)
        _, raw_2, wall_2 = write(qp, cq, 2, (demand.buf, demand.lkey), demand.buf + 4096, demand.rkey)
        assert demand.read(64, 4096) == b"d" * 64
        assert raw_1 <= raw_2 and wall <= wall_1 <= wall_2 <= time.time_ns()

        dm = DM(ctx, AllocDmAttr(length=256))
        device_region = DMMR(pd, 256, REMOTE | e.IBV_ACCESS_ZERO_BASED, dm, 0)
        write(qp, cq, 3, (demand.buf, demand.lkey), 128, device_region.rkey)
        assert dm.copy_from_dm(128, 64) == b"d" * 64

        windowed = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_MW_BIND)
        window = MW(pd, e.IBV_MW_TYPE_1)
        info = MWBindInfo(windowed, windowed.buf, 64, e.IBV_ACCESS_REMOTE_WRITE)
        qp.bind_mw(window, MWBind(info, e.IBV_SEND_SIGNALED))
        poll(cq)
        write(qp, cq, 5, (demand.buf, demand.lkey), windowed.buf, window.rkey)
        assert windowed.read(64, 0) == b"d" * 64

        for thing in (window, windowed, device_region, dm, demand, qp, cq, pd):
            thing.close()
    print("all features used")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
