"""A script as SSD's users write them: SSD300's nets and solver by caffe.model_libs, then a step.

The working directory holds shapes_{train,test}_lmdb, labelmap.prototxt and test_name_size.txt.
"""

import math

import caffe
from caffe.model_libs import *  # noqa: F403 (L, P and caffe_pb2, too, as everybody does)
from google.protobuf import text_format

# ruff: noqa: F405

SIDE = 300
CLASSES = 5
SOURCES = ["conv4_3", "fc7", "conv6_2", "conv7_2", "conv8_2", "conv9_2"]
NAMES = "test_name_size.txt"
LABELS = "labelmap.prototxt"


def resizing(modes):
    return dict(
        prob=1, resize_mode=P.Resize.WARP, height=SIDE, width=SIDE,
        interp_mode=[getattr(P.Resize, mode) for mode in modes],
    )  # fmt: skip


def part(**constraint):
    return dict(
        sampler=dict(min_scale=0.3, max_scale=1.0, min_aspect_ratio=0.5, max_aspect_ratio=2.0),
        sample_constraint=constraint, max_trials=50, max_sample=1,
    )  # fmt: skip


batch_sampler = [dict(sampler={}, max_trials=1, max_sample=1)]
batch_sampler += [part(min_jaccard_overlap=overlap) for overlap in (0.1, 0.3, 0.5, 0.7, 0.9)]
batch_sampler += [part(max_jaccard_overlap=1.0)]
train_transform_param = {
    "mirror": True,
    "mean_value": [104, 117, 123],
    "force_color": True,
    "resize_param": resizing(["LINEAR", "AREA", "NEAREST", "CUBIC", "LANCZOS4"]),
    "distort_param": dict(
        brightness_prob=0.5, brightness_delta=32, contrast_prob=0.5, contrast_lower=0.5,
        contrast_upper=1.5, hue_prob=0.5, hue_delta=18, saturation_prob=0.5, saturation_lower=0.5,
        saturation_upper=1.5, random_order_prob=0.0,
    ),
    "expand_param": dict(prob=0.5, max_expand_ratio=4.0),
    "emit_constraint": dict(emit_type=caffe_pb2.EmitConstraint.CENTER),
}  # fmt: skip
test_transform_param = {
    "mean_value": [104, 117, 123],
    "force_color": True,
    "resize_param": resizing(["LINEAR"]),
}
multibox_loss_param = {
    "loc_loss_type": P.MultiBoxLoss.SMOOTH_L1,
    "conf_loss_type": P.MultiBoxLoss.SOFTMAX,
    "loc_weight": 1.0,
    "num_classes": CLASSES,
    "share_location": True,
    "match_type": P.MultiBoxLoss.PER_PREDICTION,
    "overlap_threshold": 0.5,
    "use_prior_for_matching": True,
    "background_label_id": 0,
    "use_difficult_gt": True,
    "mining_type": P.MultiBoxLoss.MAX_NEGATIVE,
    "neg_pos_ratio": 3.0,
    "neg_overlap": 0.5,
    "code_type": P.PriorBox.CENTER_SIZE,
    "ignore_cross_boundary_bbox": False,
}
det_out_param = {
    "num_classes": CLASSES,
    "share_location": True,
    "background_label_id": 0,
    "nms_param": {"nms_threshold": 0.45, "top_k": 400},
    "save_output_param": {
        "output_directory": "results",
        "output_name_prefix": "comp4_det_test_",
        "output_format": "VOC",
        "label_map_file": LABELS,
        "name_size_file": NAMES,
        "num_test_image": 2,
    },
    "keep_top_k": 200,
    "confidence_threshold": 0.01,
    "code_type": P.PriorBox.CENTER_SIZE,
}
det_eval_param = {
    "num_classes": CLASSES,
    "background_label_id": 0,
    "overlap_threshold": 0.5,
    "evaluate_difficult_gt": False,
    "name_size_file": NAMES,
}


def AddExtraLayers(net, use_batchnorm=True, lr_mult=1):
    last = net.keys()[-1]
    for name, outputs, kernel, pad, stride in (
        ("conv6_1", 256, 1, 0, 1), ("conv6_2", 512, 3, 1, 2), ("conv7_1", 128, 1, 0, 1),
        ("conv7_2", 256, 3, 1, 2), ("conv8_1", 128, 1, 0, 1), ("conv8_2", 256, 3, 0, 1),
        ("conv9_1", 128, 1, 0, 1), ("conv9_2", 256, 3, 0, 1),
    ):  # fmt: skip
        ConvBNLayer(
            net, last, name, use_batchnorm, True, outputs, kernel, pad, stride, lr_mult=lr_mult
        )
        last = name
    return net


def predictions(net):
    """The base net, what SSD adds to it, and the head; returns the head's tops."""
    VGGNetBody(net, from_layer="data", fully_conv=True, reduced=True, dilated=True, dropout=False)
    AddExtraLayers(net, False, lr_mult=1)
    low, high = 20, 90
    step = int(math.floor((high - low) / (len(SOURCES) - 2)))
    shares = [10, *range(low, high + 1, step)]
    min_sizes = [SIDE * share / 100.0 for share in shares]
    max_sizes = [*min_sizes[1:], SIDE * (shares[-1] + step) / 100.0]
    return CreateMultiBoxHead(
        net, data_layer="data", from_layers=SOURCES, use_batchnorm=False, min_sizes=min_sizes,
        max_sizes=max_sizes, aspect_ratios=[[2], [2, 3], [2, 3], [2, 3], [2], [2]],
        steps=[8, 16, 32, 64, 100, 300], normalizations=[20, -1, -1, -1, -1, -1],
        num_classes=CLASSES, share_location=True, flip=True, clip=False,
        prior_variance=[0.1, 0.1, 0.2, 0.2], kernel_size=3, pad=1, lr_mult=1,
    )  # fmt: skip


def write(path, message, name=""):
    with open(path, "w") as file:
        if name:
            print(f'name: "{name}"', file=file)
        print(message, file=file)


net = caffe.NetSpec()
net.data, net.label = CreateAnnotatedDataLayer(
    "shapes_train_lmdb", batch_size=2, train=True, output_label=True, label_map_file=LABELS,
    transform_param=train_transform_param, batch_sampler=batch_sampler,
)  # fmt: skip
mbox_layers = predictions(net)
mbox_layers.append(net.label)
net["mbox_loss"] = L.MultiBoxLoss(
    *mbox_layers, multibox_loss_param=multibox_loss_param,
    loss_param=dict(normalization=P.Loss.VALID),
    include=dict(phase=caffe_pb2.Phase.Value("TRAIN")), propagate_down=[True, True, False, False],
)  # fmt: skip
write("train.prototxt", net.to_proto(), "VGG_shapes_SSD_300x300_train")

net = caffe.NetSpec()
net.data, net.label = CreateAnnotatedDataLayer(
    "shapes_test_lmdb", batch_size=1, train=False, output_label=True, label_map_file=LABELS,
    transform_param=test_transform_param,
)  # fmt: skip
mbox_layers = predictions(net)
net["mbox_conf_reshape"] = L.Reshape(net["mbox_conf"], shape=dict(dim=[0, -1, CLASSES]))
net["mbox_conf_softmax"] = L.Softmax(net["mbox_conf_reshape"], axis=2)
net["mbox_conf_flatten"] = L.Flatten(net["mbox_conf_softmax"], axis=1)
mbox_layers[1] = net["mbox_conf_flatten"]
testing = dict(phase=caffe_pb2.Phase.Value("TEST"))
net.detection_out = L.DetectionOutput(
    *mbox_layers, detection_output_param=det_out_param, include=testing
)
net.detection_eval = L.DetectionEvaluate(
    net.detection_out, net.label, detection_evaluate_param=det_eval_param, include=testing
)
write("test.prototxt", net.to_proto(), "VGG_shapes_SSD_300x300_test")

deploy = net.to_proto()
del deploy.layer[0]
del deploy.layer[-1]
deploy.name = "VGG_shapes_SSD_300x300_deploy"
deploy.input.extend(["data"])
deploy.input_shape.extend([caffe_pb2.BlobShape(dim=[1, 3, SIDE, SIDE])])
write("deploy.prototxt", deploy)

solver_param = caffe_pb2.SolverParameter(
    train_net="train.prototxt", test_net=["test.prototxt"], snapshot_prefix="VGG_shapes",
    base_lr=0.001, weight_decay=0.0005, lr_policy="multistep", stepvalue=[80000, 100000],
    gamma=0.1, momentum=0.9, iter_size=1, max_iter=120000, snapshot=80000, display=10,
    average_loss=10, type="SGD", solver_mode=P.Solver.CPU, device_id=0, debug_info=False,
    snapshot_after_train=True, test_iter=[2], test_interval=10000, eval_type="detection",
    ap_version="11point", test_initialization=True, random_seed=1,
)  # fmt: skip
write("solver.prototxt", solver_param)

# One step of nets that are as deep, but narrow.
for path in ("train.prototxt", "test.prototxt"):
    narrow = caffe_pb2.NetParameter()
    with open(path) as file:
        text_format.Merge(file.read(), narrow)
    for layer in narrow.layer:
        if layer.type == "Convolution" and "mbox" not in layer.name:
            layer.convolution_param.num_output //= 32
    write(f"narrow_{path}", narrow)
solver_param.train_net = "narrow_train.prototxt"
solver_param.test_net[0] = "narrow_test.prototxt"
write("narrow_solver.prototxt", solver_param)
solver = caffe.SGDSolver("narrow_solver.prototxt")
before = solver.net.params["conv6_2"][0].data.copy()
solver.step(1)
assert (before != solver.net.params["conv6_2"][0].data).any()
print("loss", float(solver.net.blobs["mbox_loss"].data))
