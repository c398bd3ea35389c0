"""Fine-tuning with a Python data layer: learn four classes, then tune a new last layer to two."""

import os
import tempfile

import caffe
import numpy as np
import toy_layers  # noqa: F401 (the nets name its classes)
from caffe import layers as L
from caffe.proto import caffe_pb2

caffe.set_mode_cpu()
caffe.set_random_seed(3)


def toy_net(classes, seed, name, learn_all=True):
    """A small net; with learn_all=False only the last layer learns."""
    frozen = [dict(lr_mult=0)] * 2
    learned = [dict(lr_mult=1, decay_mult=1), dict(lr_mult=2, decay_mult=0)]
    param = learned if learn_all else frozen
    n = caffe.NetSpec()
    n.data, n.label = L.Python(
        module="toy_layers",
        layer="ToyDataLayer",
        ntop=2,
        param_str=str(dict(batch_size=16, classes=classes, seed=seed)),
    )
    n.fc1 = L.InnerProduct(n.data, num_output=16, param=param, weight_filler=dict(type="xavier"))
    n.relu1 = L.ReLU(n.fc1, in_place=True)
    n.scaled = L.Python(n.fc1, module="toy_layers", layer="ScaleLayer")
    last = L.InnerProduct(
        n.scaled, num_output=classes, param=learned, weight_filler=dict(type="xavier")
    )
    n.__setattr__(name, last)
    n.loss = L.SoftmaxWithLoss(last, n.label)
    n.acc = L.Accuracy(last, n.label)
    with tempfile.NamedTemporaryFile("w", delete=False, suffix=".prototxt") as f:
        f.write(str(n.to_proto()))
        return f.name


def solver_file(train, test):
    s = caffe_pb2.SolverParameter()
    s.train_net = train
    s.test_net.append(test)
    s.test_interval = 1000
    s.test_iter.append(5)
    s.max_iter = 1000
    s.type = "SGD"
    s.base_lr = 0.1
    s.lr_policy = "step"
    s.gamma = 0.1
    s.stepsize = 100
    s.momentum = 0.9
    s.weight_decay = 5e-4
    s.solver_mode = caffe_pb2.SolverParameter.CPU
    with tempfile.NamedTemporaryFile("w", delete=False, suffix=".prototxt") as f:
        f.write(str(s))
        return f.name


def run(niter, solver):
    loss, acc = np.zeros(niter), np.zeros(niter)
    for it in range(niter):
        solver.step(1)
        loss[it] = solver.net.blobs["loss"].data.copy()
        acc[it] = solver.net.blobs["acc"].data.copy()
    return loss, acc


solver = caffe.get_solver(solver_file(toy_net(4, 0, "fc_four"), toy_net(4, 1, "fc_four")))
loss, acc = run(60, solver)
assert loss[-5:].mean() < 0.2 < loss[0], loss
assert acc[-5:].mean() > 0.95
weights = os.path.join(tempfile.mkdtemp(), "weights.pretrained.caffemodel")
solver.net.save(weights)
factor = solver.net.params["scaled"][0].data.copy()
assert factor[0] != 1  # the Python layer's own weight has learned

tuned = caffe.get_solver(
    solver_file(toy_net(2, 5, "fc_two", learn_all=False), toy_net(2, 6, "fc_two"))
)
tuned.net.copy_from(weights)
assert (tuned.net.params["fc1"][0].data == solver.net.params["fc1"][0].data).all()
assert tuned.net.params["scaled"][0].data[0] == factor[0]
frozen = tuned.net.params["fc1"][0].data.copy()
loss, acc = run(30, tuned)
assert acc[-5:].mean() > 0.95, acc
assert (tuned.net.params["fc1"][0].data == frozen).all()

# The test net sees the trained weights, and new batches with every forward.
accuracy, seen = 0, []
for _ in range(10):
    accuracy += tuned.test_nets[0].forward()["acc"]
    seen.append(tuned.test_nets[0].blobs["data"].data.copy())
assert accuracy / 10 > 0.95
assert (seen[0] != seen[1]).any()
assert tuned.net.layers[0].batch_size == 16  # attributes of the layer's own class
print("fine-tuned to", accuracy / 10)
