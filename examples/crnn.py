"""A tiny CRNN reads rows of digits: convolutions, an LSTM over the columns, and CTC.

    python crnn.py                            # draws rows, trains, and reads rows it has never seen
    python crnn.py --prepare                  # only writes the data, crnn.prototxt and solver.prototxt
    fire_train --solver solver.prototxt --leaves 4 -n 3     # then the same on three ranks, bit for bit

Nobody says where in the image a digit is: the labels of a row are digits alone, 3 to 5 of them.
"""

import argparse

import caffe
import h5py
import numpy as np
from caffe import layers as L
from caffe import params as P

from pycaffe_fire.data.digits import render

LONGEST, HEIGHT, STEP = 5, 28, 20  # digits of a row; pixels of a digit; pixels from one to the next
WIDTH = STEP * LONGEST + 8
BLANK = 10


def draw_rows(split, count):
    """Images (count, 1, HEIGHT, WIDTH) from 0 to 1, and digits (count, LONGEST), -1 after the last.

    Digits overlap by their margins, and rows begin anywhere.
    """
    digits, labels = render(split, 0, count * LONGEST)
    choice = np.random.RandomState(len(split))
    images = np.zeros((count, 1, HEIGHT, WIDTH), np.float32)
    rows = np.full((count, LONGEST), -1, np.float32)
    for i in range(count):
        length = choice.randint(3, LONGEST + 1)
        start = choice.randint(0, WIDTH - STEP * length - 8 + 1)
        for k in range(length):
            number, left = i * LONGEST + k, start + STEP * k
            place = images[i, 0, :, left : left + 28]
            np.maximum(place, digits[number].reshape(28, 28) / 255.0, out=place)
            rows[i, k] = labels[number]
    return images, rows


def write_rows(split, count):
    images, labels = draw_rows(split, count)
    with h5py.File(f"rows_{split}.h5", "w") as file:
        file["data"], file["label"] = images, labels
    with open(f"rows_{split}.txt", "w") as file:
        file.write(f"rows_{split}.h5\n")


def crnn(split, batch):
    """Images become sequences of columns: (N, C, H, W) to (W, N, C * H)."""
    n = caffe.NetSpec()
    n.data, n.label = L.HDF5Data(
        source=f"rows_{split}.txt", batch_size=batch, shuffle=split == "train", ntop=2
    )
    x = n.data
    for i, filters in enumerate((16, 32, 32), 1):
        n[f"conv{i}"] = L.Convolution(
            x, kernel_size=3, pad=1, num_output=filters, weight_filler=dict(type="msra")
        )
        n[f"relu{i}"] = L.ReLU(n[f"conv{i}"], in_place=True)
        wide = 2 if i < 3 else 1  # columns are time: keep enough of them
        n[f"pool{i}"] = x = L.Pooling(
            n[f"relu{i}"], pool=P.Pooling.MAX, kernel_h=2, kernel_w=wide, stride_h=2, stride_w=wide
        )
    n.columns = L.Permute(x, permute_param=dict(order=[3, 0, 1, 2]))
    n.time = L.Reshape(n.columns, shape=dict(dim=[0, 0, -1]))
    n.cont = L.ContinuationIndicator(n.time)
    n.lstm = L.LSTM(
        n.time,
        n.cont,
        recurrent_param=dict(
            num_output=64, weight_filler=dict(type="xavier"), bias_filler=dict(value=0)
        ),
    )
    n.score = L.InnerProduct(
        n.lstm, axis=2, num_output=BLANK + 1, weight_filler=dict(type="xavier")
    )
    n.loss = L.WarpCTC(n.score, n.label, warp_ctc_param=dict(blank_label=BLANK))
    n.digits = L.Permute(n.label, permute_param=dict(order=[1, 0]))
    n.read, n.accuracy = L.CTCGreedyDecoder(n.score, n.cont, n.digits, ntop=2)
    n.silence = L.Silence(n.read, ntop=0)
    return str(n.to_proto())


def prepare(rows, iterations):
    """Write the data, a net for each phase, and the solver."""
    for split, count, batch in (("train", rows, 32), ("test", 200, 50)):
        write_rows(split, count)
        with open(f"crnn_{split}.prototxt", "w") as file:
            file.write(crnn(split, batch))
    with open("solver.prototxt", "w") as file:
        file.write(
            'train_net: "crnn_train.prototxt" test_net: "crnn_test.prototxt" test_iter: 4\n'
            f"test_interval: 100000 test_initialization: false max_iter: {iterations}\n"
            'type: "Adam" base_lr: 0.003 momentum: 0.9 momentum2: 0.999 lr_policy: "fixed"\n'
            'clip_gradients: 5 display: 100 random_seed: 7 snapshot_prefix: "crnn"\n'
        )


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--rows", type=int, default=4000, help="rows to train on")
parser.add_argument("--iterations", type=int, default=700)
parser.add_argument("--prepare", action="store_true", help="write all files and train nothing")
options = parser.parse_args()
prepare(options.rows, options.iterations)
if options.prepare:
    print("solver.prototxt is ready: fire_train --solver solver.prototxt")
    raise SystemExit

caffe.set_mode_cpu()
solver = caffe.get_solver("solver.prototxt")
losses = []
for _ in range(options.iterations):
    solver.step(1)
    losses.append(float(solver.net.blobs["loss"].data))
assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5]), (losses[:5], losses[-5:])

test = solver.test_nets[0]
test.share_with(solver.net)
accuracies = []
for _ in range(4):
    test.forward()
    accuracies.append(float(test.blobs["accuracy"].data))
for digits, read in zip(test.blobs["label"].data[:5], test.blobs["read"].data.T, strict=False):
    said, seen = ("".join(str(int(d)) for d in row if d >= 0) for row in (digits, read))
    print(f"{said:>{LONGEST}} was read as {seen}")
print(f"crnn loss {np.mean(losses[-5:]):.3f}, accuracy {np.mean(accuracies):.3f}")
