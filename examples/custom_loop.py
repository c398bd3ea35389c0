"""A training loop of one's own with step(), tests by hand, and one with forward and backward."""

import caffe
import numpy as np
from caffe import layers as L

caffe.set_mode_cpu()
caffe.set_random_seed(0)

rng = np.random.RandomState(0)
centres = rng.randn(10, 1, 12, 12)


def write_data(name, count):
    import h5py

    labels = rng.randint(10, size=count)
    data = centres[labels] + 0.5 * rng.randn(count, 1, 12, 12)
    with h5py.File(name + ".h5", "w") as f:
        f["data"], f["label"] = data.astype("f4"), labels.astype("f4")
    with open(name + ".txt", "w") as f:
        f.write(name + ".h5\n")


def lenet(source, batch_size):
    n = caffe.NetSpec()
    n.data, n.label = L.HDF5Data(source=source, batch_size=batch_size, ntop=2)
    n.conv1 = L.Convolution(n.data, kernel_size=3, num_output=8, weight_filler=dict(type="xavier"))
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=0)
    n.fc1 = L.InnerProduct(n.pool1, num_output=32, weight_filler=dict(type="xavier"))
    n.relu1 = L.ReLU(n.fc1, in_place=True)
    n.score = L.InnerProduct(n.relu1, num_output=10, weight_filler=dict(type="xavier"))
    n.loss = L.SoftmaxWithLoss(n.score, n.label)
    return n.to_proto()


write_data("train", 640)
write_data("test", 200)
for phase, size in (("train", 32), ("test", 50)):
    with open(phase + ".prototxt", "w") as f:
        f.write(str(lenet(phase + ".txt", size)))
with open("solver.prototxt", "w") as f:
    f.write(
        """train_net: "train.prototxt" test_net: "test.prototxt"
        test_iter: 4 test_interval: 500 base_lr: 0.05 momentum: 0.9 weight_decay: 0.0005
        lr_policy: "inv" gamma: 0.0001 power: 0.75 display: 20 max_iter: 100
        snapshot_prefix: "mine" """
    )

solver = caffe.SGDSolver("solver.prototxt")
print([(k, v.data.shape) for k, v in solver.net.blobs.items()])
solver.net.forward()
solver.test_nets[0].forward()
assert 2 < solver.net.blobs["loss"].data < 4

niter, test_interval = 60, 20
train_loss = np.zeros(niter)
test_acc = np.zeros(int(np.ceil(niter / test_interval)))
output = np.zeros((niter, 8, 10))
for it in range(niter):
    solver.step(1)
    train_loss[it] = solver.net.blobs["loss"].data
    # Start the forward pass at conv1, to avoid loading new data.
    solver.test_nets[0].forward(start="conv1")
    output[it] = solver.test_nets[0].blobs["score"].data[:8]
    if it % test_interval == 0:
        correct = 0
        for test_it in range(4):
            solver.test_nets[0].forward()
            correct += sum(
                solver.test_nets[0].blobs["score"].data.argmax(1)
                == solver.test_nets[0].blobs["label"].data
            )
        test_acc[it // test_interval] = correct / 200.0
assert solver.iter == niter
assert train_loss[-5:].mean() < 0.3 * train_loss[0], train_loss
assert test_acc[-1] > 0.9 > test_acc[0], test_acc
assert (output[0] != output[-1]).any()

# The same with a bare hand: plain SGD on the diffs, then the solver's own update.
lr = 0.01
before = []
for it in range(10):
    solver.net.clear_param_diffs()
    out = solver.net.forward()
    solver.net.backward()
    before.append(float(out["loss"]))
    for layer in solver.net.params:
        for blob in solver.net.params[layer]:
            blob.data[...] -= lr * blob.diff
weights = solver.net.params["score"][0].data.copy()
solver.net.clear_param_diffs()
solver.net.forward()
solver.net.backward()
solver.apply_update()
assert (solver.net.params["score"][0].data != weights).any()
assert solver.iter == niter

solver.snapshot()
again = caffe.SGDSolver("solver.prototxt")
again.restore("mine_iter_60.solverstate")
assert again.iter == 60
assert (again.net.params["score"][0].data == solver.net.params["score"][0].data).all()
again.solve()
assert again.iter == 100
print("accuracies", test_acc)
