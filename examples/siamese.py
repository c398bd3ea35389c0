"""A siamese net: two branches on the same weights learn to bring equal pairs together."""

import caffe
import numpy as np
from caffe import layers as L

caffe.set_mode_cpu()
caffe.set_random_seed(2)


def branch(n, bottom, suffix):
    """One half; layers of both halves name the same params."""
    ip1 = L.InnerProduct(
        bottom,
        num_output=16,
        param=[dict(name="ip1_w", lr_mult=1), dict(name="ip1_b", lr_mult=2)],
        weight_filler=dict(type="xavier"),
    )
    relu = L.ReLU(ip1, in_place=True)
    feat = L.InnerProduct(
        relu,
        num_output=2,
        param=[dict(name="feat_w", lr_mult=1), dict(name="feat_b", lr_mult=2)],
        weight_filler=dict(type="xavier"),
    )
    n["ip1" + suffix], n["relu1" + suffix], n["feat" + suffix] = ip1, relu, feat
    return feat


class Spec(caffe.NetSpec):
    def __setitem__(self, name, top):
        setattr(self, name, top)


n = Spec()
n.pair_data, n.sim = L.MemoryData(batch_size=64, channels=2, height=4, width=4, ntop=2)
n.data, n.data_p = L.Slice(n.pair_data, slice_dim=1, slice_point=1, ntop=2)
n.loss = L.ContrastiveLoss(branch(n, n.data, ""), branch(n, n.data_p, "_p"), n.sim, margin=1)
with open("siamese.prototxt", "w") as f:
    f.write(str(n.to_proto()))
with open("solver.prototxt", "w") as f:
    f.write('net: "siamese.prototxt" base_lr: 0.05 momentum: 0.9 lr_policy: "fixed"')

rng = np.random.RandomState(0)
centres = rng.rand(3, 4, 4)
first, second = rng.randint(3, size=(2, 640))
pairs = np.stack([centres[first], centres[second]], axis=1) + 0.05 * rng.randn(640, 2, 4, 4)
same = (first == second).astype(np.float32)

solver = caffe.SGDSolver("solver.prototxt")
solver.net.set_input_arrays(pairs.astype(np.float32), same)
params = solver.net.params
assert (params["ip1"][0].data == params["ip1_p"][0].data).all()
params["ip1"][0].data[0, 0] = 5.0
assert params["ip1_p"][0].data[0, 0] == 5.0

losses = []
for _ in range(120):
    solver.step(1)
    losses.append(float(solver.net.blobs["loss"].data))
assert np.mean(losses[-10:]) < 0.2 * np.mean(losses[:5]), losses
assert (params["feat"][0].data == params["feat_p"][0].data).all()

# A net of one branch takes the trained weights by name and puts equal things together.
with open("one.prototxt", "w") as f:
    one = caffe.NetSpec()
    one.data = L.Input(input_param=dict(shape=dict(dim=[3, 1, 4, 4])))
    one.ip1 = L.InnerProduct(one.data, num_output=16)
    one.relu1 = L.ReLU(one.ip1, in_place=True)
    one.feat = L.InnerProduct(one.relu1, num_output=2)
    f.write(str(one.to_proto()))
half = caffe.Net("one.prototxt", caffe.TEST)
half.share_with(solver.net)
points = half.forward(data=centres[:, np.newaxis])["feat"].copy()
near = half.forward(data=centres[:, np.newaxis] + 0.05 * rng.randn(3, 1, 4, 4))["feat"]
apart = min(np.linalg.norm(points[i] - points[j]) for i in range(3) for j in range(i))
assert np.linalg.norm(points - near, axis=1).max() < 0.5 * apart
solver.step(1)
assert (half.params["feat"][0].data == params["feat"][0].data).all()
print("siamese loss", losses[-1])
