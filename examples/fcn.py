"""A small fully convolutional net finds discs, squares, triangles and crosses, pixel by pixel.

python fcn.py                             # draws scenes, trains, and prints the IoU of classes
python fcn.py --prepare                   # only writes images, masks, prototxts
fire_train --solver solver.prototxt --leaves 4 -n 3     # then the same on three ranks, bit for bit
caffe test -model fcn_test.prototxt -weights fcn_iter_1500.caffemodel -iterations 10 -per_class
"""

import argparse
import os

import caffe
import numpy as np
from caffe import layers as L
from caffe import params as P
from PIL import Image

from pycaffe_fire.data.shapes import NAMES, scenes

CLASSES = len(NAMES)


def write_scenes(split, count):
    """Images and masks as PNG files, and a list of them as ImageSegData reads it."""
    os.makedirs(split, exist_ok=True)
    lines = []
    for i, scene in enumerate(scenes(split, 0, count)):
        image, mask = f"{split}/{i:05d}.png", f"{split}/{i:05d}_mask.png"
        Image.fromarray(scene.image[::-1].transpose(1, 2, 0)).save(image, compress_level=1)
        Image.fromarray(scene.mask).save(mask, compress_level=1)
        lines.append(f"{image} {mask}\n")
    with open(f"{split}.txt", "w") as file:
        file.writelines(lines)


def convolution(bottom, filters, dilation=1):
    made = L.Convolution(
        bottom, num_output=filters, kernel_size=3, pad=dilation, dilation=dilation,
        bias_term=False, weight_filler=dict(type="msra"),
    )  # fmt: skip
    normalised = L.Scale(L.BatchNorm(made), bias_term=True, in_place=True)
    return made, L.ReLU(normalised, in_place=True)


def upsampled(bottom):
    """Twice as large, bilinearly at first."""
    return L.Deconvolution(
        bottom,
        convolution_param=dict(
            num_output=CLASSES, group=CLASSES, kernel_size=4, stride=2, pad=1, bias_term=False,
            weight_filler=dict(type="bilinear"),
        ),
    )  # fmt: skip


def fcn(split, batch):
    """Dilated convolutions see a whole shape; scores of finer features sharpen its outline."""
    n = caffe.NetSpec()
    n.data, n.label = L.ImageSegData(
        image_data_param=dict(source=f"{split}.txt", batch_size=batch, shuffle=split == "train"),
        transform_param=dict(mean_value=[128, 128, 128], scale=1 / 64, mirror=split == "train"),
        ntop=2,
    )
    n.conv1, n.relu1 = convolution(n.data, 16)
    n.pool1 = L.Pooling(n.relu1, pool=P.Pooling.MAX, kernel_size=2, stride=2)
    n.conv2, n.relu2 = convolution(n.pool1, 32)
    n.pool2 = L.Pooling(n.relu2, pool=P.Pooling.MAX, kernel_size=2, stride=2)
    n.conv3, n.relu3 = convolution(n.pool2, 48)
    n.conv4, n.relu4 = convolution(n.relu3, 48, dilation=2)
    n.conv5, n.relu5 = convolution(n.relu4, 48, dilation=4)
    small = dict(kernel_size=1, num_output=CLASSES, weight_filler=dict(type="xavier"))
    n.coarse = L.Convolution(n.relu5, **small)
    n.coarse_up = upsampled(n.coarse)
    n.fine = L.Convolution(n.relu2, **small)
    n.both = L.Eltwise(n.coarse_up, n.fine, operation=P.Eltwise.SUM)
    n.score = upsampled(n.both)
    n.loss = L.SoftmaxWithLoss(n.score, n.label, loss_param=dict(ignore_label=255))
    n.accuracy = L.Accuracy(n.score, n.label, ignore_label=255)
    return str(n.to_proto())


def prepare(images, iterations):
    """Write images and masks, a net for each phase, and the solver."""
    for split, count, batch in (("train", images, 16), ("test", 160, 16)):
        write_scenes(split, count)
        with open(f"fcn_{split}.prototxt", "w") as file:
            file.write(fcn(split, batch))
    with open("solver.prototxt", "w") as file:
        file.write(
            'train_net: "fcn_train.prototxt" test_net: "fcn_test.prototxt" test_iter: 10\n'
            f"test_interval: 100000 test_initialization: false max_iter: {iterations}\n"
            'type: "Adam" base_lr: 0.005 momentum: 0.9 momentum2: 0.999 lr_policy: "poly" power: 1\n'
            'display: 50 random_seed: 7 snapshot_prefix: "fcn"\n'
        )


def ious(net, batches):
    """Intersection over union of each class, over all pixels of some batches."""
    counts = np.zeros((CLASSES, CLASSES))
    for _ in range(batches):
        net.forward()
        labels = net.blobs["label"].data[:, 0].astype(int)
        guesses = net.blobs["score"].data.argmax(axis=1)
        np.add.at(counts, (labels, guesses), 1)
    right = np.diag(counts)
    return right / np.maximum(1, counts.sum(axis=0) + counts.sum(axis=1) - right)


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--images", type=int, default=5000, help="scenes to train on")
parser.add_argument("--iterations", type=int, default=1500)
parser.add_argument("--prepare", action="store_true", help="write all files and train nothing")
options = parser.parse_args()
prepare(options.images, options.iterations)
if options.prepare:
    print("solver.prototxt is ready: fire_train --solver solver.prototxt")
    raise SystemExit

caffe.set_mode_cpu()
solver = caffe.get_solver("solver.prototxt")
losses = []
for _ in range(options.iterations):
    solver.step(1)
    losses.append(float(solver.net.blobs["loss"].data))
assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:3]), (losses[:3], losses[-5:])

test = solver.test_nets[0]
test.share_with(solver.net)
found = ious(test, 10)
for name, iou in zip(NAMES, found, strict=True):
    print(f"{name:>10}: IoU {iou:.3f}")
print(f"fcn loss {np.mean(losses[-5:]):.3f}, mean IoU {found.mean():.3f}")
