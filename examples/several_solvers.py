"""Training with NCCL as Caffe's own train.py does it; the launcher says which solver this is."""

import hashlib
import os

import caffe
import numpy as np


def time(solver, nccl):
    fprop, bprop = [], []
    total, allrd = caffe.Timer(), caffe.Timer()
    for _ in range(len(solver.net.layers)):
        fprop.append(caffe.Timer())
        bprop.append(caffe.Timer())
    display = solver.param.display

    def show_time():
        if solver.iter % display == 0:
            s = "\n"
            for i in range(len(solver.net.layers)):
                s += "forw %3d %8s : %.2f\n" % (i, solver.net._layer_names[i], fprop[i].ms)
            for i in range(len(solver.net.layers) - 1, -1, -1):
                s += "back %3d %8s : %.2f\n" % (i, solver.net._layer_names[i], bprop[i].ms)
            s += "solver total: %.2f\nallreduce: %.2f\n" % (total.ms, allrd.ms)
            caffe.log(s)

    solver.net.before_forward(lambda layer: fprop[layer].start())
    solver.net.after_forward(lambda layer: fprop[layer].stop())
    solver.net.before_backward(lambda layer: bprop[layer].start())
    solver.net.after_backward(lambda layer: bprop[layer].stop())
    solver.add_callback(lambda: total.start(), lambda: (total.stop(), allrd.start()))
    solver.add_callback(nccl)
    solver.add_callback(lambda: "", lambda: (allrd.stop(), show_time()))


def solve(proto, count, rank, uid, timing):
    caffe.set_mode_cpu()
    caffe.set_solver_count(count)
    caffe.set_solver_rank(rank)
    caffe.set_multiprocess(True)

    solver = caffe.SGDSolver(proto)
    nccl = caffe.NCCL(solver, uid)
    if rank:
        solver.net.params["ip"][0].data[...] = 0  # to be replaced
    nccl.bcast()
    if timing and rank == 0:
        time(solver, nccl)
    else:
        solver.add_callback(nccl)
    if solver.param.layer_wise_reduce:
        solver.net.after_backward(nccl)
    solver.step(solver.param.max_iter)
    return solver


rank = int(os.environ.get("PMI_RANK", 0))
count = int(os.environ.get("PMI_SIZE", 1))
caffe.init_log()
solver = solve("solver.prototxt", count, rank, caffe.NCCL.new_uid(), timing=count == 1)
weights = solver.net.params["ip"][0].data
digest = hashlib.sha256(np.ascontiguousarray(weights).tobytes()).hexdigest()
if os.environ.get("FAIL") == str(rank):
    raise ValueError("this solver has had enough")
print("rank %d of %d: %s" % (rank, count, digest), flush=True)
