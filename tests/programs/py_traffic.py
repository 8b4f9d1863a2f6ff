# SPDX-License-Identifier: BSD-2-Clause
"""
py_traffic.py DEVICE GID_INDEX: two RC queue pairs of one process talk, with Debian's pyverbs: SEND
(plain, with immediate), WRITE, WRITE with immediate, READ, compare-and-swap, fetch-and-add; every
byte is checked.
"""
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

ACCESS = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ |
          e.IBV_ACCESS_REMOTE_ATOMIC)
SIZE = 1 << 20


class End:
    """One side: a queue pair with a completion queue and a region of its own."""

    def __init__(self, ctx, pd):
        self.cq = CQ(ctx, 100)
        cap = QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=2, max_recv_sge=2)
        self.qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap))
        self.mr = MR(pd, SIZE, ACCESS)

    def connect(self, peer, gid, gid_index, mtu):
        route = GlobalRoute(dgid=gid, sgid_index=gid_index, hop_limit=64)
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = ACCESS
        attr.path_mtu = mtu
        attr.dest_qp_num = peer.qp.qp_num
        attr.rq_psn, attr.sq_psn = 0xFFFFFE, 0xFFFFFE  # wraps at once
        attr.max_dest_rd_atomic = attr.max_rd_atomic = 4
        attr.min_rnr_timer, attr.timeout = 12, 14
        attr.retry_cnt = attr.rnr_retry = 7
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self.qp.to_rts(attr)

    def sge(self, length, offset=0):
        return SGE(self.mr.buf + offset, length, self.mr.lkey)

    def complete(self, opcode):
        """The next completion; it must be a good one of this kind."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            n, wcs = self.cq.poll(1)
            if n:
                assert wcs[0].status == e.IBV_WC_SUCCESS, "status %d" % wcs[0].status
                assert wcs[0].opcode == opcode, "opcode %d" % wcs[0].opcode
                return wcs[0]
        raise AssertionError("no completion")


def pattern(length, seed):
    block = bytes((i * 7 + seed) & 0xFF for i in range(256))
    return (block * (length // 256 + 1))[:length]


def send(a, b, length, imm=None):
    data = pattern(length, length)
    a.mr.write(data, length)
    b.qp.post_recv(RecvWR(1, 1, [b.sge(SIZE)]))
    opcode = e.IBV_WR_SEND if imm is None else e.IBV_WR_SEND_WITH_IMM
    a.qp.post_send(SendWR(wr_id=2, num_sge=1, sg=[a.sge(length)], opcode=opcode, imm_data=imm or 0))
    a.complete(e.IBV_WC_SEND)
    wc = b.complete(e.IBV_WC_RECV)
    assert wc.byte_len == length and wc.wr_id == 1 and wc.qp_num == b.qp.qp_num
    assert b.mr.read(length, 0) == data
    assert bool(wc.wc_flags & e.IBV_WC_WITH_IMM) == (imm is not None)


def remote(a, b, opcode, length):
    wr = SendWR(wr_id=3, num_sge=1, sg=[a.sge(length)], opcode=opcode)
    wr.set_wr_rdma(b.mr.rkey, b.mr.buf)
    a.qp.post_send(wr)


def write(a, b, length):
    data = pattern(length, 5)
    a.mr.write(data, length)
    remote(a, b, e.IBV_WR_RDMA_WRITE, length)
    a.complete(e.IBV_WC_RDMA_WRITE)
    assert b.mr.read(length, 0) == data


def write_imm(a, b, length):
    b.qp.post_recv(RecvWR(4, 1, [b.sge(1, SIZE - 1)]))
    remote(a, b, e.IBV_WR_RDMA_WRITE_WITH_IMM, length)
    a.complete(e.IBV_WC_RDMA_WRITE)
    assert b.complete(e.IBV_WC_RECV_RDMA_WITH_IMM).byte_len == length


def read(a, b, length):
    data = pattern(length, 9)
    b.mr.write(data, length)
    remote(a, b, e.IBV_WR_RDMA_READ, length)
    a.complete(e.IBV_WC_RDMA_READ)
    assert a.mr.read(length, 0) == data


def atomic(a, b, opcode, wc_opcode, before, compare_add, swap, after):
    b.mr.write(before.to_bytes(8, "little"), 8)
    wr = SendWR(wr_id=5, num_sge=1, sg=[a.sge(8)], opcode=opcode)
    wr.set_wr_atomic(b.mr.rkey, b.mr.buf, compare_add, swap)
    a.qp.post_send(wr)
    a.complete(wc_opcode)
    assert int.from_bytes(a.mr.read(8, 0), "little") == before
    assert int.from_bytes(b.mr.read(8, 0), "little") == after


def main(name, gid_index):
    with Context(name=name) as ctx, PD(ctx) as pd:
        gid = ctx.query_gid(port_num=1, index=gid_index)
        mtu = ctx.query_port(1).active_mtu
        ends = [End(ctx, pd), End(ctx, pd)]
        for me, peer in (ends, ends[::-1]):
            me.connect(peer, gid, gid_index, mtu)
        for a, b in (ends, ends[::-1]):
            for length in (1, 33, 1024, 1025, 5001, SIZE):
                send(a, b, length)
                write(a, b, length)
                read(a, b, length)
            send(a, b, 64, imm=0x12345678)
            write_imm(a, b, 3000)
            fetch, swap = e.IBV_WR_ATOMIC_FETCH_AND_ADD, e.IBV_WR_ATOMIC_CMP_AND_SWP
            atomic(a, b, fetch, e.IBV_WC_FETCH_ADD, 40, 2, 0, 42)
            atomic(a, b, fetch, e.IBV_WC_FETCH_ADD, (1 << 64) - 1, 2, 0, 1)
            atomic(a, b, swap, e.IBV_WC_COMP_SWAP, 7, 7, 99, 99)
            atomic(a, b, swap, e.IBV_WC_COMP_SWAP, 8, 7, 99, 8)
    print("all traffic verified")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
