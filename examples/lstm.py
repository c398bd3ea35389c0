"""An LSTM that adds up what it is told to: sequences in time-major order, with cont markers."""

import caffe
import numpy as np
from caffe import layers as L

caffe.set_mode_cpu()
caffe.set_random_seed(4)

T, N = 8, 32
n = caffe.NetSpec()
n.data = L.Input(input_param=dict(shape=dict(dim=[T, N, 2])))
n.cont = L.Input(input_param=dict(shape=dict(dim=[T, N])))
n.target = L.Input(input_param=dict(shape=dict(dim=[N, 1])))
n.lstm = L.LSTM(
    n.data,
    n.cont,
    recurrent_param=dict(
        num_output=16,
        weight_filler=dict(type="uniform", min=-0.2, max=0.2),
        bias_filler=dict(type="constant", value=0),
    ),
)
n.early, n.last = L.Slice(n.lstm, axis=0, slice_point=T - 1, ntop=2)
n.silence = L.Silence(n.early, ntop=0)
n.flat = L.Reshape(n.last, shape=dict(dim=[N, -1]))
n.sum = L.InnerProduct(n.flat, num_output=1, weight_filler=dict(type="xavier"))
n.loss = L.EuclideanLoss(n.sum, n.target)
with open("lstm.prototxt", "w") as f:
    f.write(str(n.to_proto()))
with open("solver.prototxt", "w") as f:
    f.write(
        'net: "lstm.prototxt" type: "Adam" base_lr: 0.02 momentum: 0.9 momentum2: 0.999 '
        'lr_policy: "fixed" clip_gradients: 5'
    )

solver = caffe.get_solver("solver.prototxt")
net = solver.net
assert [b.data.shape for b in net.params["lstm"]] == [(64, 2), (64,), (64, 16)]
net.params["lstm"][1].data[16:32] = 1  # forget little at first
rng = np.random.RandomState(0)


def batch():
    """The second feature tells which values of the first count."""
    values, counts = rng.uniform(-1, 1, (T, N)), rng.rand(T, N) < 0.4
    net.blobs["data"].data[..., 0] = values
    net.blobs["data"].data[..., 1] = counts
    net.blobs["cont"].data[...] = 1
    net.blobs["cont"].data[0] = 0
    net.blobs["target"].data[:, 0] = (values * counts).sum(axis=0)


losses = []
for _ in range(150):
    batch()
    solver.step(1)
    losses.append(float(net.blobs["loss"].data))
assert np.mean(losses[-10:]) < 0.25 * np.mean(losses[:5]), (losses[:5], losses[-10:])

# A sequence that starts anew forgets what was before it; one that goes on does not.
batch()
net.forward()
whole = net.blobs["lstm"].data.copy()
net.blobs["cont"].data[4] = 0
net.forward()
cut = net.blobs["lstm"].data
np.testing.assert_allclose(cut[:4], whole[:4], rtol=1e-5, atol=1e-6)
assert np.abs(cut[4:] - whole[4:]).max() > 1e-3
print("lstm loss", losses[-1])
