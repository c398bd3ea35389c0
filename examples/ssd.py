"""A small SSD finds discs, squares, triangles and crosses: it learns boxes and classes.

python ssd.py                             # draws the shapes, trains, and prints the precision
python ssd.py --prepare                   # only writes databases, prototxts
fire_train --solver solver.prototxt --leaves 4 -n 3     # then the same on three ranks, bit for bit
caffe test -model test.prototxt -weights ssd_iter_1500.caffemodel -iterations 40 \
    -ap_version 11point -show_per_class_result
"""

import argparse
from pathlib import Path

import caffe
import numpy as np
from caffe import layers as L
from caffe import params as P
from caffe.model_libs import ConvBNLayer, CreateAnnotatedDataLayer, CreateMultiBoxHead

from pycaffe_fire.data import shapes

CLASSES = len(shapes.NAMES)
WHOLE_IMAGE = dict(max_sample=1, max_trials=1)
PART = dict(
    sampler=dict(min_scale=0.6, max_scale=1.0, min_aspect_ratio=0.5, max_aspect_ratio=2.0),
    sample_constraint=dict(min_jaccard_overlap=0.3),
    max_sample=1,
    max_trials=50,
)


def data(train):
    transform = dict(mean_value=[128], scale=1 / 64)
    if train:
        transform.update(
            mirror=True,
            resize_param=dict(resize_mode=P.Resize.WARP, height=96, width=96),
            emit_constraint=dict(emit_type=0),  # CENTER
            distort_param=dict(brightness_prob=0.5, brightness_delta=32),
            expand_param=dict(prob=0.3, max_expand_ratio=1.5),
        )
    return CreateAnnotatedDataLayer(
        f"data/shapes_{'train' if train else 'test'}_lmdb",
        batch_size=16 if train else 20,
        train=train,
        transform_param=transform,
        batch_sampler=[WHOLE_IMAGE, PART] if train else [],
    )


def ssd(train):
    """Five convolutions; boxes of three sizes are predicted at strides 4, 8 and 16."""
    n = caffe.NetSpec()
    n.data, n.label = data(train)
    last = "data"
    for name, filters, size, stride in (
        ("conv1", 16, 5, 2), ("conv2", 32, 3, 1), ("conv3", 64, 3, 1), ("conv4", 96, 3, 2),
        ("conv5", 128, 3, 2),
    ):  # fmt: skip
        ConvBNLayer(n, last, name, False, True, filters, size, size // 2, stride)
        n.update(name, dict(weight_filler=dict(type="msra")))
        last = name
        if name == "conv1":
            n.pool1 = L.Pooling(n.conv1, pool=P.Pooling.MAX, kernel_size=2, stride=2)
            last = "pool1"
    boxes = CreateMultiBoxHead(
        n, num_classes=CLASSES, from_layers=["conv3", "conv4", "conv5"], use_batchnorm=False,
        min_sizes=[12.0, 20.0, 34.0], max_sizes=[20.0, 34.0, 50.0], clip=False,
        prior_variance=[0.1, 0.1, 0.2, 0.2], kernel_size=3, pad=1,
    )  # fmt: skip
    if train:
        n.mbox_loss = L.MultiBoxLoss(
            *boxes, n.label, num_classes=CLASSES, code_type=P.PriorBox.CENTER_SIZE,
            propagate_down=[True, True, False, False],
        )  # fmt: skip
        return str(n.to_proto())
    n.scores = L.Reshape(boxes[1], shape=dict(dim=[0, -1, CLASSES]))
    n.prob = L.Flatten(L.Softmax(n.scores, axis=2), axis=1)
    n.detection_out = L.DetectionOutput(
        boxes[0], n.prob, boxes[2],
        detection_output_param=dict(
            num_classes=CLASSES, code_type=P.PriorBox.CENTER_SIZE, keep_top_k=50,
            nms_param=dict(nms_threshold=0.45, top_k=200), confidence_threshold=0.01,
        ),
    )  # fmt: skip
    n.detection_eval = L.DetectionEvaluate(n.detection_out, n.label, num_classes=CLASSES)
    return str(n.to_proto())


def prepare(images, iterations):
    """Draw the shapes; write a net for each phase, and the solver."""
    shapes.SPLITS.update(train=images, test=min(images, 800))
    for line in shapes.make_shapes(Path("data")):
        print(line)
    for name, train in (("train", True), ("test", False)):
        with open(f"{name}.prototxt", "w") as file:
            file.write(ssd(train))
    with open("solver.prototxt", "w") as file:
        file.write(
            f'train_net: "train.prototxt" test_net: "test.prototxt" max_iter: {iterations}\n'
            f"test_iter: {shapes.SPLITS['test'] // 20} test_interval: {iterations}\n"
            'test_initialization: false eval_type: "detection" ap_version: "11point"\n'
            'type: "Adam" base_lr: 0.002 momentum: 0.9 momentum2: 0.999 weight_decay: 0.0001\n'
            f'lr_policy: "multistep" gamma: 0.1 stepvalue: {iterations * 4 // 5}\n'
            'display: 50 random_seed: 1 snapshot_prefix: "ssd"\n'
        )


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--images", type=int, default=4000, help="scenes to train on")
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
    losses.append(float(solver.net.blobs["mbox_loss"].data))
assert np.mean(losses[-3:]) < 0.9 * np.mean(losses[:3]), (losses[:3], losses[-3:])

(precision,) = solver.test(0)
print(f"ssd loss {np.mean(losses[-3:]):.3f}, {precision.name} = {precision.value:.3f}")
